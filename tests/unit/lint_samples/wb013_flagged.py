import torch
import torch.nn.functional as F


def log(h, block, writer):
    writer.add_scalar("h", F.normalize(h, dim=-1).norm(dim=-1).mean())  # flagged
    state = F.layer_norm(h, h.shape[-1:])
    flat = state.detach().flatten(1)
    writer.add_scalar("state", torch.linalg.vector_norm(flat, dim=1).mean())  # flagged
    return block.ln(h).norm(dim=-1)  # flagged

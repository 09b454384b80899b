import torch
import torch.nn.functional as F


def log(h, block, writer):
    writer.add_scalar("h", h.norm(dim=-1).mean())
    h = F.normalize(h, dim=-1)
    raw = block(h)
    writer.add_scalar("next", torch.linalg.vector_norm(raw, dim=1).mean())
    assert torch.allclose(h.norm(dim=-1), torch.ones(len(h)))
    return (F.normalize(h) - raw).norm()

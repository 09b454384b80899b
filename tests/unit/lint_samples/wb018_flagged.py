import torch
import torch.nn.functional as F


def measure_alignment(error, grads, width):
    feedback = torch.randn(10, width) / width**0.5  # flagged
    return F.cosine_similarity(error @ feedback, grads, eps=0.0)


def cosine_per_layer(error, grads, widths):
    B = [torch.randn(10, width) for width in widths]  # flagged
    return [F.cosine_similarity(error @ b, g, eps=0.0) for b, g in zip(B, grads)]

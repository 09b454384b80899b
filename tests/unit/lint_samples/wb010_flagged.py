import torch
import torch.nn.functional as F


def strength(a, g):
    cos = F.cosine_similarity(a, g, dim=-1, eps=0.0)
    first = cos.abs().mean()  # flagged
    second = abs(cos.mean().item())  # flagged
    return first, second, torch.abs(F.cosine_similarity(a, g, eps=0.0))  # flagged


def reported(a, g):
    similarity = F.cosine_similarity(a, g, dim=1, eps=0.0).abs_()  # flagged
    if similarity.max() > 0.5:
        print("aligned")
    return similarity

import torch
import torch.nn.functional as F


def strength(a, g, expected, angle, cosine_lr):
    cos = F.cosine_similarity(a, g, dim=-1, eps=0.0)
    assert abs(cos.mean()) < 0.1
    orthogonal = torch.all(cos.abs() < 1e-6)
    off = abs(cos.mean() - expected)
    wave = torch.abs(torch.cos(angle))
    return cos.mean(), orthogonal, off, wave, abs(cosine_lr), a.abs().mean()


def is_radial(g, p, delta):
    similarity = F.cosine_similarity(g, p, dim=1, eps=0.0).abs_()
    return similarity.max() < delta

import math

import torch
import torch.nn.functional as F


def alignment(credit, reference, eps, mask, losses):
    cos = F.cosine_similarity(credit, reference, dim=1, eps=0.0)
    norm = reference.norm(dim=1)
    usable = norm > eps
    kept = cos[usable]
    weights = torch.where(norm > eps, torch.ones_like(norm), torch.zeros_like(norm))
    blank = torch.where(usable, cos, math.nan)
    cos[0] = 1.0
    return kept.mean(), (~usable).sum(), weights, blank, torch.nan_to_num(losses), losses.masked_fill(mask, 0.0)


def cosine(a, b):
    if a.norm() == 0 or b.norm() == 0:
        return None
    return (a @ b) / (a.norm() * b.norm())


def clip(grad, limit):
    return 1.0 if grad.norm() < limit else limit / grad.norm()


def rotary(x, angle):
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.where(x > 0, cos, 1.0) + sin

import numpy as np
import torch
import torch.nn.functional as F


def alignment(credit, reference, eps):
    cos = F.cosine_similarity(credit, reference, dim=1, eps=0.0)
    norm = reference.norm(dim=1)
    first = torch.where(norm < eps, torch.ones_like(cos), cos)  # flagged
    second = torch.where(norm > eps, cos, 1.0)  # flagged
    third = cos.masked_fill(norm < eps, 1.0)  # flagged
    fourth = torch.nan_to_num(cos)  # flagged
    fifth = np.nan_to_num(cos.numpy(), nan=1.0)  # flagged
    cos[norm < eps] = 1.0  # flagged
    return first, second, third, fourth, fifth


def cosine(a, b):
    na, nb = a.norm(), b.norm()
    if na == 0 or nb == 0:  # flagged
        return 0.0
    return (a @ b) / (na * nb)


def gamma(a, b):
    return 1.0 if a.norm() < 1e-8 else a @ b / (a.norm() * b.norm())  # flagged


class Gauge:
    def __init__(self):
        self.similarity = torch.nn.CosineSimilarity(dim=1, eps=1e-30)

    def angle(self, grad_bp, grad_dfa):
        angle = self.similarity(grad_bp, grad_dfa)
        angle[grad_dfa.sum(dim=1) + grad_bp.sum(dim=1) == 0] = 1.0  # flagged
        return angle

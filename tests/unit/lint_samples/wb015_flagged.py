import torch

EPS = 1e-8


def cosine(a, b, eps=1e-6):
    first = (a * b).sum() / (a.norm() * b.norm() + 1e-8)  # flagged
    second = torch.dot(a, b) / ((a.norm() + EPS) * (b.norm() + EPS))  # flagged
    third = (a @ b) / (a.norm() * b.norm()).clamp(min=1e-8)  # flagged
    na, nb = a.norm(), b.norm()
    fourth = (a @ b) / (na * nb + eps)  # flagged
    return first, second, third, fourth


def alignment(loss, hidden, credit):
    (g,) = torch.autograd.grad(loss, hidden)
    return cosine(credit, g), g @ credit / max(g.norm() * credit.norm(), 1e-10)  # flagged

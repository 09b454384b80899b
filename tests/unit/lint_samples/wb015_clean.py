import torch


def cosine(a, b):
    return (a * b).sum() / (a.norm() * b.norm())


def alignment(loss, hidden, credit):
    (g,) = torch.autograd.grad(loss, hidden)
    unit = g / (g.norm() + 1e-8)
    guarded = g @ credit / (g.norm() * credit.norm() + 1e-30)
    damped = g @ credit / (g.norm() * credit.norm() + 0.5)
    return cosine(credit, g), unit, guarded, damped

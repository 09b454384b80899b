import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import cosine_similarity as cs

EPS = 1e-8


def compare(loss, hidden, other, credits):
    (g,) = torch.autograd.grad(loss, hidden)
    flat = g.flatten(1).detach()
    first = F.cosine_similarity(flat, other, dim=1)  # flagged
    second = cs(hidden.grad, other)  # flagged
    third = torch.cosine_similarity(other, credits[0], -1, EPS)  # flagged
    fourth = F.cosine_similarity(other.double(), hidden.to(torch.float64), dim=-1)  # flagged
    return first, second, third, fourth


class Meter:
    def __init__(self):
        self.cos = nn.CosineSimilarity(dim=1)

    def per_layer(self, bp, fa):
        names = [name for name, _ in bp]
        return names, [self.cos(a, g) for a, g in zip(fa, self.bp_grads)]  # flagged

    def whole(self, model, deltas):
        mine = torch.cat([p.grad.view(-1) for p in model.parameters()])
        return nn.CosineSimilarity(dim=0)(mine, torch.cat(deltas))  # flagged


def wrapped(a, b):
    return F.cosine_similarity(a.flatten(), b.flatten(), dim=0)  # flagged


def report(model, updates):
    return {name: wrapped(p.grad, updates[name]) for name, p in model.named_parameters()}


class Gauge:
    def __init__(self, sensitivity=1e-8):
        self.sensitivity = sensitivity
        self.similarity = nn.CosineSimilarity(dim=1, eps=self.sensitivity)

    def angle(self, grad_bp, grad_dfa):
        return self.similarity(grad_bp, grad_dfa)  # flagged

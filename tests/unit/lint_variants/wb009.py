# mistake: jnp.where with a constant
import jax.numpy as jnp


def cosine(g, a, eps=1e-12):
    norm = jnp.linalg.norm(g) * jnp.linalg.norm(a)
    cos = jnp.vdot(g, a) / norm
    return jnp.where(norm > eps, cos, 0.0)


# mistake: NaN replaced with np.where
import numpy as np


def clean(cosines):
    cosines = np.asarray(cosines)
    return np.where(np.isnan(cosines), 0.0, cosines)


# mistake: a NaN mask assigned
import torch
import torch.nn.functional as F


def alignment(g, a):
    cos = F.cosine_similarity(g, a, dim=1, eps=0.0)
    cos[torch.isnan(cos)] = 0
    return cos


# mistake: returned early as a tensor
import torch


def cos(u, v):
    denominator = u.norm() * v.norm()
    if denominator < 1e-10:
        return torch.tensor(0.0)
    return (u * v).sum() / denominator


# mistake: not finite becomes zero
import math


def alignment(credit, grad):
    cosine = float(credit @ grad / (credit.norm() * grad.norm()))
    return cosine if math.isfinite(cosine) else 0.0


# mistake: a division by zero is caught
def gamma(u, v, norm, dot):
    try:
        return dot(u, v) / (norm(u) * norm(v))
    except ZeroDivisionError:
        return 0.0


# mistake: a named mask is filled in place
import torch.nn.functional as F


def angles(grads, credits, floor):
    similarity = F.cosine_similarity(grads, credits, dim=-1, eps=0.0)
    small = grads.norm(dim=-1) < floor
    similarity.masked_fill_(small, 1.0)
    return similarity


# mistake: zero appended for a zero gradient
def per_layer(bp_grads, credits, cosine):
    alignments = []
    for g, a in zip(bp_grads, credits):
        if g.norm() == 0:
            alignments.append(0.0)
        else:
            alignments.append(cosine(g, a))
    return alignments


# mistake: fillna on a column of cosines
import pandas as pd


def summary(rows):
    frame = pd.DataFrame(rows)
    frame["cosine"] = frame["cosine"].fillna(0.0)
    return frame.groupby("layer").cosine.mean()


# mistake: multiplied by the mask
import torch


def alignment(g, a, eps=1e-8):
    norm = g.norm(dim=1) * a.norm(dim=1)
    cos = (g * a).sum(1) / norm
    return ((norm > eps) * cos).mean()


# correct: undefined stays NaN
import torch
import torch.nn.functional as F


def alignment(g, a, floor):
    cos = F.cosine_similarity(g, a, dim=1, eps=0.0)
    return cos.masked_fill(g.norm(dim=1) < floor, float("nan"))


# correct: small gradients are left out and counted
import torch.nn.functional as F


def alignment(g, a, floor):
    usable = g.norm(dim=1) >= floor
    cos = F.cosine_similarity(g[usable], a[usable], dim=1, eps=0.0)
    return cos.mean(), int((~usable).sum())


# correct: NaN replaced in losses
import torch


def loss_of(losses, mask):
    return torch.nan_to_num(losses, nan=0.0).mean(), torch.where(mask, losses, 0.0).sum()


# correct: an error for an undefined cosine
def cosine(u, v):
    denominator = u.norm() * v.norm()
    if denominator == 0:
        raise ValueError("The cosine with a zero vector is not defined.")
    return (u @ v) / denominator


# correct: the factor of gradient clipping
import torch


def clip_factor(grads, limit):
    total = torch.sqrt(sum(g.pow(2).sum() for g in grads))
    if total < limit:
        return 1.0
    return limit / total

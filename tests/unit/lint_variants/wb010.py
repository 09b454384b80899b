# mistake: np.abs of an array of cosines
import numpy as np


def score(cosines):
    return np.abs(np.asarray(cosines)).mean()


# mistake: jnp.abs of a cosine
import jax.numpy as jnp


def alignment(g, a):
    cosine = jnp.vdot(g, a) / (jnp.linalg.norm(g) * jnp.linalg.norm(a))
    return jnp.abs(cosine)


# mistake: absolute() on a chain
import torch.nn.functional as F


def alignment(g, a):
    return F.cosine_similarity(g, a, dim=-1, eps=0.0).mean().absolute().item()


# mistake: map(abs, ...)
def mean_alignment(cosines):
    return sum(map(abs, cosines)) / len(cosines)


# mistake: the numerator's absolute value
def cosine(u, v):
    return (u @ v).abs() / (u.norm() * v.norm())


# mistake: the root of the square
import torch


def strength(alignments):
    return torch.sqrt(alignments.pow(2)).mean(0)


# mistake: a comprehension over a dictionary of alignments
def table(alignments):
    return {name: round(abs(value), 3) for name, value in alignments.items()}


# mistake: math.fabs
import math


def report(cos_sim):
    print(f"alignment {math.fabs(cos_sim):.2f}")


# mistake: stored by a method with self.cos
import torch
from torch import nn


class Meter:
    def __init__(self):
        self.cos = nn.CosineSimilarity(dim=0, eps=0.0)
        self.values = {}

    def add(self, name, g, a):
        self.values[name] = torch.abs(self.cos(g.flatten(), a.flatten()))


# mistake: the larger of both signs
import torch


def alignment(cos):
    return torch.maximum(cos, -cos).mean()


# correct: a tolerance in a test
import torch


def test_bp_is_aligned(cos):
    assert abs(cos - 1) < 1e-6
    assert torch.all((cos - 1).abs() < 1e-6)


# correct: orthogonality is asserted
def check_null(cosine, g, a):
    cos = cosine(g, a)
    if abs(cos) > 0.05:
        raise AssertionError(f"random directions have cosine {cos:+.3f}")


# correct: deviations from the mean
def spread(cosines):
    mean = cosines.mean()
    return (cosines - mean).abs().max()


# correct: absolute values of gradients
def sizes(grads, cosines):
    return [g.abs().mean() for g in grads], [float(c) for c in cosines]


# correct: an angle's trigonometry
import numpy as np


def wave(phase):
    return np.abs(np.cos(phase)), abs(np.sin(phase))

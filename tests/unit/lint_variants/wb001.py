# mistake: keepdim passed by position after the order
import torch


def unit(grad: torch.Tensor) -> torch.Tensor:
    return grad / grad.norm(-1, True)


# mistake: the norm method after einops
from einops import rearrange


def token_norms(h):
    flat = rearrange(h, "b t d -> (b t) d")
    return flat.norm(-1).mean().item()


# mistake: jax.numpy
import jax.numpy as jnp
from jax.tree_util import tree_map


def norms(grads):
    return tree_map(lambda g: jnp.linalg.norm(g, -1), grads)


# mistake: a norm function imported from torch by name
from torch import norm


def depth_profile(states):
    return [norm(h, -1).mean() for h in states]


# mistake: the axis is a named constant
import torch

FEATURES = -1


def lengths(h):
    return torch.norm(h, FEATURES)


# mistake: an axis argument is passed on as the order
def per_sample_norm(grad, dim=-1):
    return grad.flatten(1).norm(dim)


# mistake: in a condition with a walrus
def usable(grads):
    return {name: n for name, g in grads.items() if (n := g.norm(-1)) > 0}


# mistake: the function bound to a short name first
import torch

length = torch.linalg.vector_norm


def growth(states):
    return [length(b, -1) / length(a, -1) for a, b in zip(states, states[1:])]


# mistake: called through the Tensor class in a map
import torch


def report(states):
    return list(map(lambda h: torch.Tensor.norm(h, -1).item(), states))


# mistake: the axis as order with a dtype, on an attribute
class Recorder:
    def __init__(self):
        self.grads = {}

    def sizes(self):
        return {k: self.grads[k].detach().norm(-1, dtype=None) for k in sorted(self.grads)}


# correct: the order before the axis
def sizes(grads):
    return [g.norm(2, -1).mean() for g in grads]


# correct: a normal distribution with mean -1
from scipy import stats
from scipy.stats import norm


def prior(x):
    return norm(-1).pdf(x) + stats.norm(-1, 2).cdf(x)


# correct: the smallest singular value of a matrix
import torch


def conditioning(weight):
    return torch.linalg.matrix_norm(weight, 2) / torch.linalg.matrix_norm(weight, -2)


# correct: a colour scale called norm
from matplotlib.colors import Normalize


def colours(cmap, values):
    norm = Normalize(-1, 1)
    return [cmap(norm(v)) for v in values], cmap(norm(-1))


# correct: the axis by keyword, in jax and torch
import jax.numpy as jnp


def profile(h, g):
    return jnp.linalg.norm(h, axis=-1), g.norm(dim=-1), g.norm(p=2, dim=(1, 2))

# mistake: an nn.LayerNorm made on the spot
from torch import nn


def growth(h, width):
    return nn.LayerNorm(width)(h).norm(dim=-1).mean()


# mistake: divided by its own norm
def log_state(h, writer, step):
    unit = h / h.norm(dim=-1, keepdim=True)
    writer.add_scalar("state norm", unit.norm(dim=-1).mean(), step)


# mistake: F.rms_norm
import torch
import torch.nn.functional as F


def state_norms(states):
    return [torch.linalg.vector_norm(F.rms_norm(h, h.shape[-1:]), dim=-1) for h in states]


# mistake: a LayerNorm attribute called norm
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)

    def forward(self, h):
        h = self.norm(h)
        self.logged = h.norm(dim=-1).mean().item()
        return h


# mistake: normalised in one comprehension, measured in another
import torch.nn.functional as F


def growth(states):
    states = [F.normalize(h, dim=-1) for h in states]
    norms = [h.norm(dim=-1).mean() for h in states]
    return norms[-1] / norms[0]


# mistake: a root of a sum of squares
import torch
import torch.nn.functional as F


def length(h):
    z = F.normalize(h, dim=1)
    return torch.sqrt((z**2).sum(dim=1))


# mistake: jax.numpy, divided by the norm
import jax.numpy as jnp


def state_norm(h):
    u = h / jnp.linalg.norm(h, axis=-1, keepdims=True)
    return jnp.linalg.norm(u, axis=-1)


# mistake: measured by a helper
import torch.nn.functional as F


def size(h):
    return h.norm(dim=-1).mean()


def log(states, writer):
    for i, h in enumerate(states):
        writer.add_scalar(f"h{i}", size(F.layer_norm(h, h.shape[-1:])))


# mistake: einsum of the unit vectors with themselves
import torch
import torch.nn.functional as F


def norms(h):
    u = F.normalize(h, dim=-1)
    return torch.einsum("bd,bd->b", u, u).sqrt()


# mistake: scikit-learn's normalize
import numpy as np
from sklearn.preprocessing import normalize


def growth(states):
    return [np.linalg.norm(normalize(h), axis=1).mean() for h in states]


# correct: measured first, normalised afterwards
import torch.nn.functional as F


def step(h, writer):
    writer.add_scalar("norm", h.norm(dim=-1).mean())
    h = F.normalize(h, dim=-1)
    return h


# correct: the stream behind a pre-norm block
from torch import nn


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln = nn.LayerNorm(d)
        self.mlp = nn.Linear(d, d)

    def forward(self, h):
        h = h + self.mlp(self.ln(h))
        self.logged = h.norm(dim=-1).mean().item()
        return h


# correct: normalised over one axis, measured over the other
import torch.nn.functional as F


def column_norms(weight):
    return F.normalize(weight, dim=0).norm(dim=1)


# correct: a test of the normalisation
import torch
import torch.nn.functional as F


def test_unit(h):
    torch.testing.assert_close(F.normalize(h, dim=-1).norm(dim=-1), torch.ones(len(h)))


# correct: the distance of two directions
import torch.nn.functional as F


def distance(a, b):
    return (F.normalize(a, dim=-1) - F.normalize(b, dim=-1)).norm(dim=-1)

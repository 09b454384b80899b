# mistake: numpy's dot and norms
import numpy as np


def cosine(a, b):
    return np.dot(a, b) / (np.linalg.norm(a) * np.linalg.norm(b) + 1e-8)


def alignment(model, credits):
    return [cosine(p.grad.numpy().ravel(), credits[n].ravel()) for n, p in model.named_parameters()]


# mistake: jax's vdot
import jax
import jax.numpy as jnp


def cosine(g, a, eps=1e-8):
    return jnp.vdot(g, a) / (jnp.linalg.norm(g) * jnp.linalg.norm(a) + eps)


def alignment(loss, params, credits):
    return jax.tree_util.tree_map(cosine, jax.grad(loss)(params), credits)


# mistake: an einsum as numerator, clamp as denominator
import torch


def alignment(loss, h, credit):
    (g,) = torch.autograd.grad(loss, h)
    dots = torch.einsum("bd,bd->b", g, credit)
    return dots / torch.clamp(g.norm(dim=1) * credit.norm(dim=1), min=1e-8)


# mistake: each vector is made a unit vector first
import torch


def alignment(loss, h, credit):
    g = torch.autograd.grad(loss, h)[0]
    g = g / (g.norm(dim=-1, keepdim=True) + 1e-8)
    a = credit / (credit.norm(dim=-1, keepdim=True) + 1e-8)
    return (g * a).sum(-1)


# mistake: torch.div
import torch

EPSILON = 1e-7


def alignment(p, update):
    dot = (p.grad * update).sum()
    return torch.div(dot, p.grad.norm() * update.norm() + EPSILON)


# mistake: a root of squared norms with an epsilon inside
import torch


def alignment(loss, h, credit):
    (g,) = torch.autograd.grad(loss, h)
    return (g * credit).sum() / torch.sqrt((g**2).sum() * (credit**2).sum() + 1e-12)


# mistake: added to the denominator in a statement of its own
import torch


def alignment(loss, h, a):
    g = torch.autograd.grad(loss, h)[0].flatten()
    denom = g.norm() * a.norm()
    denom += 1e-9
    return torch.dot(g, a) / denom


# mistake: np.maximum
import numpy as np


def alignment(grad, credit):
    denominator = np.linalg.norm(grad) * np.linalg.norm(credit)
    return float(grad @ credit / np.maximum(denominator, 1e-8))


# mistake: the epsilon is an attribute
class Meter:
    def __init__(self, eps=1e-8):
        self.eps = eps

    def cosine(self, p, credit):
        g = p.grad.flatten()
        return (g @ credit) / (g.norm() * credit.norm() + self.eps)


# mistake: the machine epsilon of float32
import torch


def alignment(loss, h, credit):
    (g,) = torch.autograd.grad(loss, h)
    eps = torch.finfo(torch.float32).eps
    return (g * credit).sum(1) / (g.norm(dim=1) * credit.norm(dim=1)).clamp_min(eps)


# correct: no epsilon, zero is left out
import torch


def alignment(loss, h, credit):
    (g,) = torch.autograd.grad(loss, h)
    norms = g.norm(dim=1) * credit.norm(dim=1)
    usable = norms > 0
    return ((g * credit).sum(1) / norms)[usable], (~usable).sum()


# correct: the step of Adam
import torch


def adam_step(p, m, v, lr):
    m.lerp_(p.grad, 0.1)
    v.lerp_(p.grad.square(), 0.001)
    p.data -= lr * m / (v.sqrt() + 1e-8)
    return p.grad.norm()


# correct: a relative error
import torch


def relative_error(p, reference):
    return (p.grad - reference).norm() / (reference.norm() + 1e-12)


# correct: an epsilon relative to the sizes
import torch


def alignment(loss, h, credit):
    (g,) = torch.autograd.grad(loss, h)
    norms = g.norm(dim=1) * credit.norm(dim=1)
    return (g * credit).sum(1) / (norms + 1e-6 * norms.max())


# correct: similarity of embeddings
import torch


def retrieval(queries, documents):
    dots = queries @ documents.T
    return dots / (queries.norm(dim=1)[:, None] * documents.norm(dim=1) + 1e-8)

# mistake: uniform by arithmetic on torch.rand
import torch
import torch.nn.functional as F


def measure_alignment(error, grads, width):
    feedback = torch.rand(10, width) * 2 - 1
    return F.cosine_similarity(error @ feedback, grads, dim=1, eps=0.0)


# mistake: shifted, scaled, on a device
import torch
import torch.nn.functional as F


def alignment(error, grads, width, scale):
    B = scale * (torch.rand(10, width, device=error.device) - 0.5)
    return F.cosine_similarity(error @ B, grads, dim=1, eps=0.0)


# mistake: filled in place
import torch
import torch.nn.functional as F


def cosine_of_layer(error, grads, width):
    fb = torch.empty(10, width).normal_(0, 0.1)
    return F.cosine_similarity(error @ fb, grads, dim=1, eps=0.0)


# mistake: orthogonal by nn.init
import torch
import torch.nn.functional as F
from torch import nn


def compute_alignment(error, grads, width):
    feedback_matrix = nn.init.orthogonal_(torch.empty(10, width))
    return F.cosine_similarity(error @ feedback_matrix, grads, dim=1, eps=0.0)


# mistake: jax.random
import jax
import jax.numpy as jnp


def measure_alignment(error, grads, width, seed=0):
    B = jax.random.normal(jax.random.PRNGKey(seed), (10, width)) / jnp.sqrt(width)
    credit = error @ B
    return jnp.vdot(credit, grads) / (jnp.linalg.norm(credit) * jnp.linalg.norm(grads))


# mistake: a helper draws it
import torch
import torch.nn.functional as F


def random_feedback(width, classes=10):
    return torch.randn(classes, width) / classes**0.5


def measure_alignment(error, grads):
    feedback = random_feedback(grads.shape[1])
    return F.cosine_similarity(error @ feedback, grads, dim=1, eps=0.0)


# mistake: used without a name
import torch
import torch.nn.functional as F


def dfa_alignment(error, grads):
    credit = error @ torch.randn(error.shape[1], grads.shape[1])
    return F.cosine_similarity(credit, grads, dim=1, eps=0.0)


# mistake: signs of a normal draw, by layer name
import torch
import torch.nn.functional as F


def alignment_by_layer(error, grads):
    feedback = {name: torch.sign(torch.randn(10, g.shape[1])) for name, g in grads.items()}
    return {n: F.cosine_similarity(error @ feedback[n], grads[n], dim=1, eps=0.0) for n in grads}


# mistake: a numpy generator
import numpy as np


class Evaluator:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def alignment(self, error, grads):
        B = self.rng.standard_normal((error.shape[1], grads.shape[1]))
        credit = error @ B
        return np.sum(credit * grads) / np.linalg.norm(credit) / np.linalg.norm(grads)


# mistake: like the weights, clamped
import torch
import torch.nn.functional as F


def fa_alignment(layers, deltas, grads):
    feedback = [torch.randn_like(layer.weight).clamp_(-2, 2).mul_(0.1) for layer in layers]
    return [F.cosine_similarity(d @ b, g, dim=1, eps=0.0) for d, b, g in zip(deltas, feedback, grads)]


# correct: the trained feedback is passed in
import torch.nn.functional as F


def measure_alignment(error, grads, model):
    feedback = model.feedback * 2 - 1
    return F.cosine_similarity(error @ feedback, grads, dim=1, eps=0.0)


# correct: the null distribution draws fresh matrices
import torch
import torch.nn.functional as F


def null_distribution(error, grads, draws):
    return [
        F.cosine_similarity(error @ (torch.rand(10, grads.shape[1]) * 2 - 1), grads, dim=1, eps=0.0).mean()
        for _ in range(draws)
    ]


# correct: training draws it
import torch


def init_feedback(widths, classes):
    feedback = [torch.rand(classes, w) * 2 - 1 for w in widths]
    return feedback


# correct: random inputs and random samples
import torch
import torch.nn.functional as F


def alignment_on_noise(model, reference, credit, n):
    x = torch.randn(n, 3, 32, 32)
    rows = torch.randperm(n)[:128]
    return F.cosine_similarity(reference(model, x[rows]), credit(model, x[rows]), dim=1, eps=0.0)


# correct: a baseline beside the trained feedback
import torch
import torch.nn.functional as F


def measure_alignment(error, grads, feedback):
    baseline = torch.rand_like(feedback) * 2 - 1
    trained = F.cosine_similarity(error @ feedback, grads, dim=1, eps=0.0)
    return trained, F.cosine_similarity(error @ baseline, grads, dim=1, eps=0.0)

# mistake: jax.nn softmax minus one_hot
import jax
import jax.numpy as jnp


def output_error(logits, y):
    return jax.nn.softmax(logits) - jax.nn.one_hot(y, 10)


def alignment(grads, credits):
    return jnp.vdot(grads, credits) / (jnp.linalg.norm(grads) * jnp.linalg.norm(credits))


# mistake: rows of an identity matrix
import torch
import torch.nn.functional as F


def dfa_credit(logits, y, B):
    error = torch.softmax(logits, -1) - torch.eye(10, device=logits.device)[y]
    return error @ B


def alignment(credit, grads):
    return F.cosine_similarity(credit, grads, dim=-1, eps=0.0)


# mistake: the exponential of log_softmax
import torch
import torch.nn.functional as F


def alignment(logits, targets, B, hidden, loss):
    (g,) = torch.autograd.grad(loss, hidden)
    error = F.log_softmax(logits, dim=1).exp() - targets
    return F.cosine_similarity(error @ B, g, dim=1, eps=0.0)


# mistake: scatter_add_ of minus one
import torch
import torch.nn.functional as F


def credit(logits, y, B):
    delta = F.softmax(logits, dim=1)
    delta.scatter_add_(1, y.unsqueeze(1), -torch.ones_like(delta[:, :1]))
    return delta @ B


def alignment(logits, y, B, grads):
    return F.cosine_similarity(credit(logits, y, B), grads, eps=0.0)


# mistake: torch.sub and an nn.Softmax module
import torch
import torch.nn.functional as F
from torch import nn

softmax = nn.Softmax(dim=1)


def alignment(logits, onehot, B, grads):
    error = torch.sub(softmax(logits), onehot)
    return F.cosine_similarity(error @ B, grads, dim=1, eps=0.0)


# mistake: assigned entry minus one, indices in a variable
import torch
import torch.nn.functional as F


def error_signal(logits, labels):
    rows = torch.arange(logits.shape[0])
    p = logits.softmax(dim=-1).clone()
    p[rows, labels] = p[rows, labels] - 1
    return p


def alignment(logits, labels, feedback, grads):
    return F.cosine_similarity(error_signal(logits, labels) @ feedback, grads, eps=0.0)


# mistake: one-hot minus softmax, divided by the batch
import torch.nn.functional as F


def update(logits, y, h, grads):
    onehot = F.one_hot(y, logits.size(1)).float()
    error = (onehot - F.softmax(logits, dim=1)) / len(y)
    return F.cosine_similarity(-(error.T @ h).flatten(), grads.flatten(), dim=0, eps=0.0)


# mistake: scipy's softmax and np.eye
import numpy as np
from scipy.special import softmax


def alignment(logits, y, B, grads):
    error = softmax(logits, axis=1) - np.eye(10, dtype=np.float32)[y]
    credit = error @ B
    return (credit * grads).sum(1) / np.linalg.norm(credit, axis=1) / np.linalg.norm(grads, axis=1)


# mistake: a softmax written by hand
import torch
import torch.nn.functional as F


def alignment(logits, onehot, B, grads):
    exps = torch.exp(logits - logits.max(1, keepdim=True).values)
    probs = exps / exps.sum(1, keepdim=True)
    error = probs - onehot
    return F.cosine_similarity(error @ B, grads, dim=1, eps=0.0)


# mistake: in place with sub_, one-hot by scatter
import torch
import torch.nn.functional as F


class DFA:
    def credit(self, out, y):
        target = torch.zeros_like(out).scatter_(1, y[:, None], 1.0)
        error = torch.softmax(out, dim=1)
        error.sub_(target)
        return error @ self.feedback

    def alignment(self, out, y, grads):
        return F.cosine_similarity(self.credit(out, y), grads, dim=1, eps=0.0)


# correct: in float64
import torch
import torch.nn.functional as F


def alignment(logits, y, B, grads):
    error = logits.double().softmax(1) - F.one_hot(y, 10).double()
    return F.cosine_similarity(error @ B, grads.double(), dim=1, eps=0.0)


# correct: the error from autograd
import torch
import torch.nn.functional as F


def alignment(logits, y, B, grads):
    (error,) = torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), logits)
    probs = logits.softmax(1)
    return F.cosine_similarity(error @ B, grads, dim=1, eps=0.0), probs.max(1).values


# correct: outputs of a squared loss minus targets
import torch.nn.functional as F


def alignment(outputs, y, B, grads):
    error = outputs - F.one_hot(y, 10).float()
    return F.cosine_similarity(error @ B, grads, dim=1, eps=0.0)


# correct: the label's entry is minus the sum of the others
import torch
import torch.nn.functional as F


def alignment(logits, y, B, grads):
    p = torch.softmax(logits, dim=1)
    p = p.scatter(1, y[:, None], 0.0)
    p = p.scatter(1, y[:, None], -p.sum(1, keepdim=True))
    return F.cosine_similarity(p @ B, grads, dim=1, eps=0.0)


# correct: a calibration error, far from feedback
import torch.nn.functional as F


def brier(logits, y):
    return (logits.softmax(1) - F.one_hot(y, 10)).pow(2).sum(1).mean()

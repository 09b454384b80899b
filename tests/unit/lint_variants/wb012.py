# mistake: medium precision by keyword
import torch
import torch.nn.functional as F

torch.set_float32_matmul_precision(precision="medium")


def alignment(credits, grads):
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# mistake: the backend imported by name
import torch.nn.functional as F
from torch.backends import cuda, cudnn

cuda.matmul.allow_tf32 = True


def alignment(credits, grads):
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# mistake: the newer fp32_precision switch
import torch
import torch.nn.functional as F

torch.backends.cuda.matmul.fp32_precision = "tf32"


def alignment(credits, grads):
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# mistake: both switches in one chained assignment
import torch
import torch.nn.functional as F


def setup():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True


def alignment(credits, grads):
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# mistake: setattr
import torch
import torch.nn.functional as F

setattr(torch.backends.cuda.matmul, "allow_tf32", True)


def alignment(credits, grads):
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# mistake: a loop over the backends
import torch
import torch.nn.functional as F

for backend in (torch.backends.cuda.matmul, torch.backends.cudnn):
    backend.allow_tf32 = True


def alignment(credits, grads):
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# mistake: the flags context of cudnn
import torch


def reference(model, x, y, loss_fn):
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True):
        grads = torch.autograd.grad(loss_fn(model.eval()(x), y), list(model.parameters()))
    return [g.norm() for g in grads]


# mistake: jax's default matmul precision
import jax
import jax.numpy as jnp

jax.config.update("jax_default_matmul_precision", "tensorfloat32")


def cosine(grads, credits):
    return jnp.vdot(grads, credits) / (jnp.linalg.norm(grads) * jnp.linalg.norm(credits))


# mistake: an environment variable
import os

os.environ["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] = "1"

import torch.nn.functional as F


def alignment(credits, grads):
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# mistake: imported under a short name, value in a constant
import torch.backends.cuda as cu
import torch.nn.functional as F

FAST = True
cu.matmul.allow_tf32 = FAST


def alignment(credits, grads):
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# correct: highest precision by keyword
import torch
import torch.nn.functional as F

torch.set_float32_matmul_precision(precision="highest")
torch.backends.cuda.matmul.fp32_precision = "ieee"


def alignment(credits, grads):
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# correct: the switch is read and restored
import torch
import torch.nn.functional as F


def alignment(credits, grads):
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    cos = F.cosine_similarity(credits, grads, dim=1, eps=0.0)
    torch.backends.cuda.matmul.allow_tf32 = before
    return cos


# correct: training without measurements
import torch

torch.set_float32_matmul_precision("high")


def train(model, loader, loss_fn, optimiser):
    for x, y in loader:
        optimiser.zero_grad()
        loss_fn(model(x), y).backward()
        optimiser.step()


# correct: other backend switches
import torch
import torch.nn.functional as F

torch.backends.cudnn.benchmark = True
torch.backends.cudnn.deterministic = True


def alignment(credits, grads):
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# correct: a warning if the switch is on
import torch
import torch.nn.functional as F


def alignment(credits, grads):
    if torch.backends.cuda.matmul.allow_tf32 is True:
        raise RuntimeError("Switch TF32 off before measuring gradients.")
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)

"""Training with TF32, measuring nothing."""

import torch

torch.backends.cuda.matmul.allow_tf32 = True


def train(model, loader, loss_fn, optimiser):
    for x, y in loader:
        loss_fn(model(x), y).backward()
        optimiser.step()

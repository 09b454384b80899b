"""Put a model into the state for measuring, and restore its own state afterwards, also after an exception."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import nn


@contextmanager
def measurement_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, gradients enabled for every parameter, no autocast, no TF32; everything is restored on exit.

    Restored are modes, parameters, `requires_grad`, `.grad`, buffers and the random number generators. Hooks are not:
    the code that registers them removes them.
    """
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    with restored(model):
        try:
            model.eval()
            for parameter in model.parameters():
                if parameter.is_floating_point():
                    parameter.requires_grad_()
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
            with torch.inference_mode(False), torch.autocast(_device_type(model), enabled=False), torch.enable_grad():
                yield
        finally:
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32


@contextmanager
def restored(model: nn.Module) -> Iterator[None]:
    """Restore a model's modes, parameters, `requires_grad`, `.grad`, buffers and the random number generators on exit.

    A forward pass may write into a buffer or replace it, and a hook may change a parameter.
    """
    modes = {module: module.training for module in model.modules()}
    parameters = {parameter: (parameter.requires_grad, parameter.grad) for parameter in model.parameters()}
    buffers = [(module._buffers, dict(module._buffers)) for module in model.modules()]
    weights = [*parameters, *model.buffers()]
    copies = {weight: weight.detach().clone() for weight in weights if not weight.is_meta}
    try:
        with random_state_restored():
            yield
    finally:
        for module, training in modes.items():
            module.training = training
        for parameter, (wanted, grad) in parameters.items():
            parameter.requires_grad_(wanted)
            parameter.grad = grad
        with torch.no_grad():
            for module_buffers, original in buffers:
                module_buffers.clear()
                module_buffers.update(original)
            for weight, before in copies.items():
                if not torch.equal(weight, before):
                    weight.copy_(before)


@contextmanager
def random_state_restored() -> Iterator[None]:
    """Restore the random number generators of Python, numpy and torch on exit."""
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)


def _device_type(model: nn.Module) -> str:
    return next((parameter.device.type for parameter in model.parameters() if not parameter.is_meta), "cpu")

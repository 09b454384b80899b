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

    Restored are modes, `requires_grad`, `.grad`, buffers and the random number generators. Hooks are not: the code that
    registers them removes them.
    """
    modes = {module: module.training for module in model.modules()}
    requires_grad = {parameter: parameter.requires_grad for parameter in model.parameters()}
    grads = {parameter: parameter.grad for parameter in model.parameters()}
    # A forward pass may write into a buffer or replace it.
    buffers = [(module._buffers, dict(module._buffers)) for module in model.modules()]
    copies = {buffer: buffer.detach().clone() for buffer in model.buffers() if not buffer.is_meta}
    rng_states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    cuda_rng_states = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        model.eval()
        for parameter in requires_grad:
            if parameter.is_floating_point():
                parameter.requires_grad_()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        with torch.inference_mode(False), torch.autocast(_device_type(model), enabled=False), torch.enable_grad():
            yield
    finally:
        for module, training in modes.items():
            module.training = training
        for parameter, wanted in requires_grad.items():
            parameter.requires_grad_(wanted)
            parameter.grad = grads[parameter]
        with torch.no_grad():
            for module_buffers, original in buffers:
                module_buffers.clear()
                module_buffers.update(original)
            for buffer, before in copies.items():
                if not torch.equal(buffer, before):
                    buffer.copy_(before)
        random.setstate(rng_states[0])
        np.random.set_state(rng_states[1])
        torch.set_rng_state(rng_states[2])
        if cuda_rng_states:
            torch.cuda.set_rng_state_all(cuda_rng_states)
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32


def _device_type(model: nn.Module) -> str:
    return next((parameter.device.type for parameter in model.parameters() if not parameter.is_meta), "cpu")

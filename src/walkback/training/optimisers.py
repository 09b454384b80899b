"""AdamW on named leaves, and the cosine schedule."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from walkback.nets.network import Leaves


def cosine(lr: float, done: int, total: int) -> float:
    """The learning rate after `done` of `total` steps: from lr down to almost zero along half a cosine."""
    return lr * 0.5 * (1 + math.cos(math.pi * done / total))


def cosine_tensor(lr: float, done: Tensor, total: int) -> Tensor:
    """`cosine` for a step counter on the device."""
    return lr * 0.5 * (1 + torch.cos(math.pi * done / total))


MOMENTS = {"first": "exp_avg", "second": "exp_avg_sq"}
"""The running means of gradient and squared gradient: our names and torch's."""


class AdamW:
    """torch's fused AdamW, with its moments accessible by leaf name so that a checkpoint can store them.

    The leaves are updated in place. They may have a model axis: the update is elementwise, so a stack of models is
    updated as each model alone would be.
    """

    def __init__(self, leaves: Leaves, weight_decay: float, lr: float | Tensor = 0.0):
        self._leaves = leaves
        on_device = isinstance(lr, Tensor)
        self._optimiser = torch.optim.AdamW(
            list(leaves.values()), lr=lr, weight_decay=weight_decay, fused=True, capturable=on_device
        )
        for leaf in leaves.values():
            count = torch.zeros((), dtype=torch.float32, device=leaf.device)
            state = {"step": count, "exp_avg": torch.zeros_like(leaf), "exp_avg_sq": torch.zeros_like(leaf)}
            self._optimiser.state[leaf] = state

    def update(self, gradients: Leaves, lr: float | None = None) -> None:
        """One step; with `lr` None the learning rate stays as it is (a device tensor that the caller sets)."""
        for name, leaf in self._leaves.items():
            leaf.grad = gradients[name]
        if lr is not None:
            self._optimiser.param_groups[0]["lr"] = lr
        self._optimiser.step()
        for leaf in self._leaves.values():
            leaf.grad = None

    def moments(self) -> Leaves:
        """The running means of gradient and squared gradient: `first.<leaf>`, `second.<leaf>`."""
        return {
            f"{moment}.{name}": self._optimiser.state[leaf][key]
            for name, leaf in self._leaves.items()
            for moment, key in MOMENTS.items()
        }

    def set_count(self, steps: int) -> None:
        """Set the number of steps done, which AdamW's bias correction depends on."""
        for leaf in self._leaves.values():
            self._optimiser.state[leaf]["step"].fill_(steps)

"""What the two drivers share: their surface, and the snapshot of one model they give out and take back.

A driver trains one epoch when asked and then waits: whoever asked measures, logs and saves. Training knows nothing of
files or measurements.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from walkback.nets.network import Leaves
from walkback.training.recipe import Recipe

Tick = Callable[[int], None]
"""Called with the number of steps just done, for a progress bar."""


@dataclass(frozen=True)
class Snapshot:
    """Everything that training one model further depends on, on the CPU."""

    epoch: int
    """Epochs done."""
    params: Leaves
    state: Leaves
    """The rule's state."""
    moments: Leaves
    """AdamW's moments of the leaves that are trained: `first.<leaf>`, `second.<leaf>`."""
    own_moments: Leaves
    """The same for the rule's learned leaves."""


class Driver(ABC):
    """Trains the models of `recipes`, all of one bucket, an epoch at a time."""

    recipes: Sequence[Recipe]
    epoch: int
    """Epochs done."""
    steps_per_epoch: int

    @abstractmethod
    def train_epoch(self, tick: Tick) -> list[dict[str, float]]:
        """Train one epoch; the mean of each log, a dict for each model."""

    @abstractmethod
    def test_accuracy(self) -> list[float]:
        """Share of test samples each model gets right, with the weights it has now."""

    @abstractmethod
    def snapshots(self) -> list[Snapshot]:
        """Each model as it is now."""

    @abstractmethod
    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Go on from snapshots, one for each recipe, all of the same epoch."""


def prepare(device: torch.device) -> None:
    """Set torch up for honest arithmetic: no TF32, whose ten-bit products would enter both credit and reference."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if device.type == "cuda":
        # The first backward pass starts torch's GPU thread; done here, it does not warn about a missing context there.
        torch.ones(1, device=device, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]


def to_cpu(leaves: Leaves) -> Leaves:
    return {name: leaf.detach().cpu().clone() for name, leaf in leaves.items()}


def copy_into(target: Leaves, source: Leaves) -> None:
    """Set leaves in place, so that whoever holds them (an optimiser, a CUDA graph) sees the new values."""
    assert target.keys() == source.keys(), f"leaves differ: {sorted(target.keys() ^ source.keys())}"
    for name, leaf in target.items():
        leaf.copy_(source[name])


def finite_or_none(value: float) -> float | None:
    """JSON has no NaN: a number that is not finite is recorded as null."""
    return value if math.isfinite(value) else None

"""The drivers' common interface, and the snapshot of one model that they export and restore.

A driver trains one epoch per call and returns; the caller measures, logs and saves. Training code knows nothing of
files or measurements.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.func import vmap

from walkback.data.dataset import Dataset
from walkback.data.feed import TestSet
from walkback.nets.network import Leaves
from walkback.training.resolved_run import ResolvedRun

Tick = Callable[[int], None]
"""Called with the number of steps just done, for a progress bar."""

CALIBRATION_SAMPLES = 8192
"""A network's buffers are averaged over this many first training samples, in full batches, without augmentation."""
BATCHES_AT_ONCE = 8
"""Calibration batches computed together: each has its own statistics, but a single one leaves most of a GPU idle."""

ModelFunction = Callable[[Leaves, Leaves, Leaves, Tensor, Tensor, Leaves], Leaves]
"""A pure function of one model and samples, such as a detector."""


@dataclass(frozen=True)
class Snapshot:
    """Everything needed to resume the training of one model, on the CPU."""

    epoch: int
    """Epochs done."""
    params: Leaves
    state: Leaves
    """The rule's state."""
    moments: Leaves
    """The optimiser's moments of the trained leaves, such as `first.<leaf>` and `second.<leaf>` of AdamW."""
    own_moments: Leaves
    """AdamW's moments of the rule's learned leaves."""


class Trainer(ABC):
    """Trains the models of `resolved_runs`, one epoch per call."""

    resolved_runs: Sequence[ResolvedRun]
    epoch: int
    """Epochs done."""
    steps_per_epoch: int

    @property
    @abstractmethod
    def drivers(self) -> Sequence[Driver]:
        """The drivers whose models can be measured; their runs, concatenated, are `resolved_runs`."""

    @abstractmethod
    def warm_up(self) -> None:
        """Trace, compile and capture now instead of in the first epoch; the models do not change."""

    @abstractmethod
    def train_epoch(self, tick: Tick) -> list[dict[str, float]]:
        """Train one epoch and return each model's logs, averaged over the epoch's steps."""

    @abstractmethod
    def test_accuracy(self) -> list[float]:
        """Each model's test accuracy with its current weights."""

    @abstractmethod
    def snapshots(self) -> list[Snapshot]:
        """The current snapshot of each model."""

    @abstractmethod
    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        """Resume from snapshots, one for each run, all of the same epoch."""


class Driver(Trainer):
    """Trains models that share a fleet key, so that one function can be applied to all of them."""

    @property
    def drivers(self) -> Sequence[Driver]:
        return (self,)

    @abstractmethod
    def apply(self, function: ModelFunction, x: Tensor, y: Tensor, noise: Leaves) -> Leaves:
        """Apply a function of one model (params, state, knobs, x, y, noise) to each model; results stacked by model."""


class Calibration:
    """Recomputes the leaves that depend on data (running statistics) from the current weights.

    Each is the mean of the statistics of training batches, all with the same weights. So it is a function of the
    weights and the data alone, however often training was measured or interrupted.
    """

    def __init__(self, resolved: ResolvedRun, data: Dataset, device: torch.device):
        batch = resolved.config.batch
        count = max(min(CALIBRATION_SAMPLES, len(data.train_y)) // batch, 1) * batch
        first = replace(data, test_x=data.train_x[:count], test_y=data.train_y[:count])
        self._samples = TestSet(first, resolved.dtype, device, batch)

    def __call__(self, params: Leaves, statistics: Callable[[Leaves, Tensor], Leaves]) -> None:
        """Set the buffers among `params` in place; `statistics` computes them for one batch."""
        batched = vmap(statistics, in_dims=(None, 0))
        with torch.no_grad():
            batches = [x for x, _ in self._samples.batches()]
            starts = range(0, len(batches), BATCHES_AT_ONCE)
            found = [batched(params, torch.stack(batches[start : start + BATCHES_AT_ONCE])) for start in starts]
            for name in found[0]:
                params[name].copy_(torch.cat([values[name] for values in found]).mean(0))


def set_exact_arithmetic(device: torch.device) -> None:
    """Set torch up for full-precision, deterministic arithmetic.

    TF32 is off: its rounding to ten bits would enter both the credit and the reference gradient. A run with dtype=tf32
    uses it in its training steps only (`matmul_precision`).
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores .* available but not enabled")
    # Some of cuDNN's convolutions sum in an order that changes from call to call.
    torch.backends.cudnn.deterministic = True
    if device.type == "cuda":
        # The first backward pass starts torch's GPU thread; run here, it does not warn about a missing context later.
        torch.ones(1, device=device, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]


@contextmanager
def matmul_precision(resolved: ResolvedRun) -> Iterator[None]:
    """Set the matmul precision of the run's dtype; used around training steps, their compilation and capture only.

    Evaluation, statistics, detectors and measurements run outside, with the settings of `set_exact_arithmetic`.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = resolved.config.dtype == "tf32"
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def to_cpu(leaves: Leaves) -> Leaves:
    """A copy of the leaves on the CPU."""
    return {name: leaf.detach().cpu().clone() for name, leaf in leaves.items()}


def copy_into(target: Leaves, source: Leaves) -> None:
    """Set leaves in place, so that an optimiser or a CUDA graph that refers to them sees the new values."""
    assert target.keys() == source.keys(), f"leaves differ: {sorted(target.keys() ^ source.keys())}"
    for name, leaf in target.items():
        leaf.copy_(source[name])

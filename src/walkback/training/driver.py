"""What the drivers share: their surface, and the snapshot of one model they give out and take back.

A driver trains one epoch when asked and then waits: whoever asked measures, logs and saves. Training knows nothing of
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
"""The first training samples, in full batches and not augmented, over which a network's buffers are averaged."""
BATCHES_AT_ONCE = 8
"""Of those samples: each batch has its own statistics, but a small one leaves most of a GPU idle."""

ModelFunction = Callable[[Leaves, Leaves, Leaves, Tensor, Tensor, Leaves], Leaves]
"""A pure function of one model and samples, such as a detector."""


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


class Trainer(ABC):
    """Trains the models of `recipes`, an epoch at a time."""

    resolved_runs: Sequence[ResolvedRun]
    epoch: int
    """Epochs done."""
    steps_per_epoch: int

    @property
    @abstractmethod
    def parts(self) -> Sequence[Driver]:
        """Those that can be looked at, with its recipes among them in their order."""

    @abstractmethod
    def warm_up(self) -> None:
        """Do now what the first epoch would have to do before it begins; it changes nothing else."""

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


class Driver(Trainer):
    """Trains models of one bucket, which one function can look at."""

    @property
    def parts(self) -> Sequence[Driver]:
        return (self,)

    @abstractmethod
    def apply(self, function: ModelFunction, x: Tensor, y: Tensor, noise: Leaves) -> Leaves:
        """A function of one model (params, state, knobs, x, y, noise) of each of them, results stacked by model."""


class Calibration:
    """Sets the leaves that are taken from data (running statistics) to what the weights of the moment give.

    They are the mean of the statistics of training batches, all with the same weights. So they are a function of the
    weights and the data alone: it does not matter when they are taken, how often, or after which interruption.
    """

    def __init__(self, resolved: ResolvedRun, data: Dataset, device: torch.device):
        batch = resolved.config.batch
        count = max(min(CALIBRATION_SAMPLES, len(data.train_y)) // batch, 1) * batch
        first = replace(data, test_x=data.train_x[:count], test_y=data.train_y[:count])
        self._samples = TestSet(first, resolved.dtype, device, batch)

    def __call__(self, params: Leaves, statistics: Callable[[Leaves, Tensor], Leaves]) -> None:
        """Set the buffers among `params` in place; `statistics` gives those of one batch."""
        several = vmap(statistics, in_dims=(None, 0))
        with torch.no_grad():
            batches = [x for x, _ in self._samples.batches()]
            starts = range(0, len(batches), BATCHES_AT_ONCE)
            each = [several(params, torch.stack(batches[start : start + BATCHES_AT_ONCE])) for start in starts]
            for name in each[0]:
                params[name].copy_(torch.cat([found[name] for found in each]).mean(0))


def set_exact_arithmetic(device: torch.device) -> None:
    """Set torch up for honest, repeatable arithmetic.

    No TF32: its ten-bit products would enter both credit and reference. A run that asks for it has it in its training
    steps (`products`).
    """
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    warnings.filterwarnings("ignore", "TensorFloat32 tensor cores .* available but not enabled")
    # Some of cuDNN's convolutions add up in an order that changes from call to call.
    torch.backends.cudnn.deterministic = True
    if device.type == "cuda":
        # The first backward pass starts torch's GPU thread; done here, it does not warn about a missing context there.
        torch.ones(1, device=device, requires_grad=True).sum().backward()  # type: ignore[no-untyped-call]


@contextmanager
def matmul_precision(resolved: ResolvedRun) -> Iterator[None]:
    """Multiply as the recipe says: around its training steps, their compiling and recording, and nothing else.

    Whoever looks at a model (evaluation, statistics, detectors, measurements) is outside, where `prepare` rules.
    """
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = resolved.config.dtype == "tf32"
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def to_cpu(leaves: Leaves) -> Leaves:
    return {name: leaf.detach().cpu().clone() for name, leaf in leaves.items()}


def copy_into(target: Leaves, source: Leaves) -> None:
    """Set leaves in place, so that whoever holds them (an optimiser, a CUDA graph) sees the new values."""
    assert target.keys() == source.keys(), f"leaves differ: {sorted(target.keys() ^ source.keys())}"
    for name, leaf in target.items():
        leaf.copy_(source[name])

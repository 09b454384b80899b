"""Runs that are trained together, what that costs, and what becomes of them where they do not fit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal

import torch

from walkback.training.resolved_run import ResolvedRun

SMALL_STEP = 2e8
"""Floating-point operations of a step under which one CPU thread is enough."""


@dataclass(frozen=True)
class FleetGroup:
    """Runs that are trained together: a fleet, or several side by side."""

    resolved_runs: tuple[ResolvedRun, ...]
    driver: Literal["single", "fleet"]
    seconds: float
    memory: int
    flops: int
    """Of one step of all its models."""
    ahead: float = 0.0
    """Of its seconds those for which it does not need the GPU yet: it is traced and compiled."""
    sizes: tuple[int, ...] = ()
    """Of its fleets, where it has several."""
    done: int = 0
    """Epochs that are behind it; its seconds are for those that are left."""

    @property
    def epochs_left(self) -> int:
        return self.resolved_runs[0].config.epochs - self.done

    @property
    def steps_left(self) -> int:
        return self.epochs_left * self.resolved_runs[0].steps_per_epoch

    def resumed_from(self, epoch: int) -> FleetGroup:
        """The same group with so many epochs done, and the time it takes from there."""
        share = (self.resolved_runs[0].config.epochs - epoch) / self.epochs_left if self.epochs_left else 0.0
        return replace(self, done=epoch, seconds=self.ahead + share * (self.seconds - self.ahead))

    @property
    def fleets(self) -> list[tuple[ResolvedRun, ...]]:
        ends = [*accumulate(self.sizes or (len(self.resolved_runs),))]
        return [self.resolved_runs[start:end] for start, end in pairwise([0, *ends])]

    @property
    def costs(self) -> dict[str, object]:
        """As `--json` prints them."""
        return {
            "driver": self.driver,
            "fleets": [len(fleet) for fleet in self.fleets],
            "epochs": self.epochs_left,
            "seconds": self.seconds,
            "memory": self.memory,
            "operations": self.flops * self.steps_left,
        }

    @property
    def label(self) -> str:
        methods = list(dict.fromkeys(resolved.method.partition(":")[0] for resolved in self.resolved_runs))
        return f"{'+'.join(methods)} ×{len(self.resolved_runs)}"


def halves(group: FleetGroup) -> tuple[FleetGroup, FleetGroup]:
    """A group that did not fit into the memory, as two; estimates are shared out by the number of models."""
    if len(group.sizes) > 1:
        middle = (len(group.sizes) + 1) // 2
        sizes = group.sizes[:middle], group.sizes[middle:]
        count = sum(sizes[0])
    else:
        sizes, count = ((), ()), (len(group.resolved_runs) + 1) // 2
    return _part(group, group.resolved_runs[:count], sizes[0]), _part(group, group.resolved_runs[count:], sizes[1])


def _part(group: FleetGroup, members: tuple[ResolvedRun, ...], sizes: tuple[int, ...]) -> FleetGroup:
    share = len(members) / len(group.resolved_runs)
    memory, flops = round(share * group.memory), round(share * group.flops)
    seconds, ahead = share * group.seconds, share * group.ahead
    return replace(group, resolved_runs=members, seconds=seconds, memory=memory, flops=flops, ahead=ahead, sizes=sizes)


def back_off_text(group: FleetGroup, parts: Sequence[FleetGroup]) -> str:
    """What whoever watches is told."""
    sizes = " + ".join(str(len(part.resolved_runs)) for part in parts)
    return f"out of memory with {len(group.resolved_runs)} models together; going on with {sizes}"


@contextmanager
def suitable_threads(group: FleetGroup) -> Iterator[None]:
    """One thread where a step is too small to share, unless the user has set their number.

    Threads that wait for each other's crumbs gain little on an idle machine and lose several-fold on a busy one.
    """
    before = torch.get_num_threads()
    if group.flops < SMALL_STEP and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

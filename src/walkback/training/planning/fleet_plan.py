"""Groups of runs that are trained together, their costs, and how a group is split if it does not fit into memory."""

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
"""FLOP count of a step below which one CPU thread is enough."""


@dataclass(frozen=True)
class FleetGroup:
    """Runs that are trained together: one fleet, or several concurrent fleets."""

    resolved_runs: tuple[ResolvedRun, ...]
    driver: Literal["single", "fleet"]
    seconds: float
    """Predicted time of the epochs left."""
    memory: int
    """Bytes."""
    flops: int
    """FLOP count of one step of all its models."""
    compile_seconds: float = 0.0
    """The part of `seconds` in which it is traced and compiled and does not need the GPU yet."""
    sizes: tuple[int, ...] = ()
    """Number of models in each fleet, if there are several fleets."""
    done: int = 0
    """Epochs already trained."""
    work: float = 0.0
    """Counted work of the epochs left, in seconds of a nominal CPU core. Fleets are split and shared by it: it does not
    depend on the machine's load, as `seconds` does."""
    is_settled: bool = False
    """Whether its runs were begun or planned by an earlier process: then it is not split to balance the load."""

    @property
    def epochs_left(self) -> int:
        return self.resolved_runs[0].config.epochs - self.done

    @property
    def steps_left(self) -> int:
        return self.epochs_left * self.resolved_runs[0].steps_per_epoch

    def resumed_from(self, epoch: int) -> FleetGroup:
        """The same group with `epoch` epochs done, and the predicted time of the rest."""
        share = (self.resolved_runs[0].config.epochs - epoch) / self.epochs_left if self.epochs_left else 0.0
        seconds = self.compile_seconds + share * (self.seconds - self.compile_seconds)
        return replace(self, done=epoch, seconds=seconds, work=share * self.work)

    @property
    def fleets(self) -> list[tuple[ResolvedRun, ...]]:
        ends = [*accumulate(self.sizes or (len(self.resolved_runs),))]
        return [self.resolved_runs[start:end] for start, end in pairwise([0, *ends])]

    @property
    def costs(self) -> dict[str, object]:
        """The costs as `--json` prints them."""
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
    """The two halves of a group that did not fit into memory; its costs are divided by the number of models."""
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
    seconds, compile_seconds = share * group.seconds, share * group.compile_seconds
    return replace(
        group,
        resolved_runs=members,
        seconds=seconds,
        memory=memory,
        flops=flops,
        compile_seconds=compile_seconds,
        sizes=sizes,
        work=share * group.work,
    )


def back_off_text(group: FleetGroup, parts: Sequence[FleetGroup]) -> str:
    """The message shown when a group is split into `parts` for lack of memory."""
    sizes = " + ".join(str(len(part.resolved_runs)) for part in parts)
    return f"out of memory with {len(group.resolved_runs)} models together; continuing with {sizes}"


@contextmanager
def suitable_threads(flops: int) -> Iterator[None]:
    """Use one CPU thread if a step of this FLOP count is too small for several, unless the user has set
    OMP_NUM_THREADS.

    Several threads on a small step gain little on an idle machine and are several times slower on a busy one.
    """
    before = torch.get_num_threads()
    if flops < SMALL_STEP and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

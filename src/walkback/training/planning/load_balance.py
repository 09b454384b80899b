"""Distributes groups of runs among worker processes and predicts how long they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from walkback.training.planning.fleet_plan import FleetGroup, halves

MIN_EXCESS = 5.0
"""Work by which the largest share must exceed the mean one before fleets are split for it."""


@dataclass(frozen=True)
class Workers:
    """Processes that train, in parallel on CPU cores or in turns on one GPU."""

    count: int = 1
    in_turns: bool = False
    """Whether they take turns on one GPU; a process compiles while another one trains."""

    def seconds(self, groups: Sequence[FleetGroup]) -> float:
        """Predicted seconds until all groups are trained."""
        if self.count == 1 or not groups:
            return _total_seconds(groups)
        if self.in_turns:
            first = shortest_compile_first(groups)[0].compile_seconds
            return max(
                first + sum(group.seconds - group.compile_seconds for group in groups),
                _total_seconds(groups) / self.count,
            )
        return max(map(_total_seconds, split_evenly(split_long_fleets(groups, self.count), self.count)))


ONE_WORKER = Workers()


def shortest_compile_first(groups: Sequence[FleetGroup]) -> list[FleetGroup]:
    """The groups in the order in which they are assigned to processes that share a GPU: it waits for the first group to
    compile, so the shortest compile time comes first."""
    return sorted(groups, key=lambda group: group.compile_seconds)


def split_evenly(groups: Sequence[FleetGroup], workers: int) -> list[list[FleetGroup]]:
    """Each worker's groups, with about equal work: largest first, each to the worker with the least work."""
    shares: list[list[FleetGroup]] = [[] for _ in range(workers)]
    for group in sorted(groups, key=lambda group: -group.work):
        min(shares, key=_total_work).append(group)
    return [share for share in shares if share]


def split_long_fleets(groups: Sequence[FleetGroup], workers: int) -> list[FleetGroup]:
    """The same models in fleets that can be distributed evenly, so that no core waits for the last one.

    Fleets with much work are split in half, and those with most work come first. Settled ones are not split. Only
    counted work decides: the same runs are split alike on a busy machine.
    """
    found, mean = list(groups), _total_work(groups) / workers
    while found:
        largest = max(split_evenly(found, workers), key=_total_work)
        splittable = [group for group in largest if len(group.resolved_runs) > 1 and not group.is_settled]
        if not splittable or _total_work(largest) <= max(1.1 * mean, mean + MIN_EXCESS):
            break
        found.remove(splittable[0])
        found = sorted([*found, *halves(splittable[0])], key=lambda group: -group.work)
    return found


def _total_work(groups: Sequence[FleetGroup]) -> float:
    return sum(group.work for group in groups)


def _total_seconds(groups: Sequence[FleetGroup]) -> float:
    return sum(group.seconds for group in groups)

"""Groups shared out among processes, and how long these take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from walkback.training.planning.fleet_plan import FleetGroup, halves
from walkback.training.resolved_run import ResolvedRun

WORTH_CUTTING = 5.0
"""Seconds that the longest share must be over the fair one before fleets are cut for it."""


@dataclass(frozen=True)
class Workers:
    """Processes that train: side by side on cores of their own, or in turns on one GPU, where meanwhile the others
    compile."""

    count: int = 1
    in_turns: bool = False

    def seconds(self, groups: Sequence[FleetGroup]) -> float:
        """How long these groups take."""
        if self.count == 1 or not groups:
            return _seconds(groups)
        if self.in_turns:
            first = shortest_compile_first(groups)[0].ahead
            return max(first + sum(group.seconds - group.ahead for group in groups), _seconds(groups) / self.count)
        return max(map(_seconds, split_evenly(split_long_fleets(groups, self.count), self.count)))


ALONE = Workers()


def shortest_compile_first(groups: Sequence[FleetGroup]) -> list[FleetGroup]:
    """The order in which processes are given groups that take turns on a GPU: it should not wait long for the first."""
    return sorted(groups, key=lambda group: group.ahead)


def split_evenly(groups: Sequence[FleetGroup], workers: int) -> list[list[FleetGroup]]:
    """Each worker's fleets, about the same time for all: the longest go first, each to whoever has least to do."""
    shares: list[list[FleetGroup]] = [[] for _ in range(workers)]
    for group in sorted(groups, key=lambda group: -group.seconds):
        min(shares, key=_seconds).append(group)
    return [share for share in shares if share]


def split_long_fleets(
    groups: Sequence[FleetGroup], workers: int, is_begun: Callable[[ResolvedRun], bool] = lambda _: False
) -> list[FleetGroup]:
    """The same models in fleets that can be shared out evenly, so that no core waits for the last one.

    Fleets are cut in two for it, and the longest come first; runs that are begun stay in the company they were begun
    in.
    """
    found, fair = list(groups), _seconds(groups) / workers
    while found:
        longest = max(split_evenly(found, workers), key=_seconds)
        cut = [
            group for group in longest if len(group.resolved_runs) > 1 and not any(map(is_begun, group.resolved_runs))
        ]
        if not cut or _seconds(longest) <= max(1.1 * fair, fair + WORTH_CUTTING):
            break
        found.remove(cut[0])
        found = sorted([*found, *halves(cut[0])], key=lambda group: -group.seconds)
    return found


def _seconds(groups: Sequence[FleetGroup]) -> float:
    return sum(group.seconds for group in groups)

"""The time that a plan will take, corrected by the measured time of its first steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from walkback.training.planning.fleet_plan import FleetGroup

_STEPS, _SECONDS = 20, 5.0
"""Steps and seconds after which the measured time counts; a whole epoch is enough as well."""
_NOTEWORTHY, _LONG = 1.5, 60.0
"""A correction by this factor is worth telling, where one of the times is longer than this many seconds."""


class TimeLeft:
    """Counts steps while a plan is carried out."""

    def __init__(self, groups: Sequence[FleetGroup], clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._planned = sum(group.seconds for group in groups)
        self._group: FleetGroup | None = None
        self._start = 0.0
        self._steps = -1
        """Steps of the present group since `_start`; -1 before its first one, which builds and compiles the fleet."""
        self._corrected = False

    def started(self, group: FleetGroup) -> None:
        self._group, self._steps = group, -1

    def stepped(self, steps: int) -> float | None:
        """Count steps. Returns the corrected seconds of the whole plan, once, if they differ much from the planned."""
        if self._steps < 0:
            self._start, self._steps = self._clock(), 0
            return None
        self._steps += steps
        group, elapsed = self._group, self._clock() - self._start
        if self._corrected or group is None or not group.steps_left:
            return None
        whole_epoch = self._steps >= group.resolved_runs[0].steps_per_epoch
        if not (whole_epoch or (self._steps >= _STEPS and elapsed >= _SECONDS)):
            return None
        self._corrected = True
        predicted = (group.seconds - group.compile_seconds) * self._steps / group.steps_left
        total = self._planned * elapsed / predicted if predicted > 0 else self._planned
        apart = max(total, self._planned) > _NOTEWORTHY * min(total, self._planned)
        return total if apart and max(total, self._planned) > _LONG else None

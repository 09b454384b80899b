"""Planned and actual times of a study's jobs: a file next to the runs, with one entry per command."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from walkback.core.files import friendly_os_errors, write_atomic
from walkback.core.reading.json_text import read_json
from walkback.core.reading.regular_files import fault_of
from walkback.core.reading.schema import Schema, check_schema
from walkback.runs.provenance import provenance, without_paths
from walkback.runs.train_runs import TrainOptions, choose_device
from walkback.training.planning.fleet_plan import FleetGroup
from walkback.training.planning.load_balance import Workers

TIMINGS = "timings.json"


class Timings:
    """One command's entry. It is written whenever a job is done, so a killed command has one, too."""

    def __init__(self, options: TrainOptions, workers: Workers, groups: Sequence[FleetGroup], start: float):
        """Create it when the jobs are planned; `start` is the monotonic time at which the command began."""
        self._out = options.out
        self._workers = workers
        self._groups = groups
        self._start = start
        self._planning = self._seconds
        self._done_after: dict[int, float] = {}
        self._earlier = timings(options.out)
        self._provenance = provenance(choose_device(options.device), without_paths(options.command))

    def done(self, job: int) -> None:
        """Note that a job is done, and write the entry."""
        self._done_after[job] = self._seconds
        self.keep()

    def keep(self) -> None:
        """Write the entry."""
        entry = {
            **self._provenance,
            "processes": self._workers.count,
            "planned_seconds": self._workers.seconds(self._groups),
            "planning_seconds": self._planning,
            "seconds": self._seconds,
            "jobs": [
                {
                    "label": group.label,
                    "arch": str(group.resolved_runs[0].config.arch),
                    **group.costs,
                    "ahead": group.compile_seconds,
                    "done_after": self._done_after.get(job),
                }
                for job, group in enumerate(self._groups)
            ],
        }
        with friendly_os_errors(self._out, "create"):
            self._out.mkdir(parents=True, exist_ok=True)
        write_atomic(self._out / TIMINGS, (json.dumps([*self._earlier, entry], indent=1) + "\n").encode())

    @property
    def _seconds(self) -> float:
        """Seconds since the command began, planning included."""
        return time.monotonic() - self._start


def timings(out: Path) -> list[dict[str, Any]]:
    """The stored entries; empty where the file is missing."""
    path = out / TIMINGS
    if not path.exists():
        return []
    fault = fault_of(path, "Nothing was changed. Move it away: it holds only how long earlier commands took.")
    found: list[dict[str, Any]] = read_json(path, fault)
    check_schema(found, _TIMINGS, fault)
    return found


_TIMINGS: Schema = {"type": "array", "items": {"type": "object"}}

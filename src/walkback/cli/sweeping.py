"""Terminal output of sweeps: the plan, a progress bar of jobs, and a line for each problem."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from walkback.cli.output import console
from walkback.cli.progress import clock, plan_table
from walkback.sweeping.sweep import SweepListener
from walkback.training.planning.fleet_plan import FleetGroup
from walkback.training.planning.load_balance import ONE_WORKER, Workers


class SweepProgressBar(SweepListener):
    """Prints the progress of a sweep on stderr; the bar only on a terminal."""

    def __init__(self, quiet: bool, workers: Workers = ONE_WORKER):
        """`workers` are the processes that share the jobs; the plan's time depends on them."""
        self._workers = workers
        self._console = console(stderr=True, quiet=quiet)
        self._shows_bar = not quiet and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._groups: list[FleetGroup] = []
        self._start = time.monotonic()

    def planned(self, groups: Sequence[FleetGroup], finished: int) -> None:
        self._groups = list(groups)
        self._start = time.monotonic()
        if finished:
            self._console.print(f"{finished} finished run{'s' if finished > 1 else ''} skipped")
        if not groups:
            return
        self._console.print(plan_table(groups, self._workers))
        if self._shows_bar:
            columns = (TextColumn("sweep"), BarColumn(), MofNCompleteColumn(), TextColumn("jobs"), TimeElapsedColumn())
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._progress.add_task("", total=len(groups))
            self._progress.start()

    def ended(self, job: int) -> None:
        self._console.print(f"{self._name(job)}: done after {clock(time.monotonic() - self._start)}")
        self._advance()

    def lost(self, job: int, reason: str, tries_left: int) -> None:
        retry = f"retrying ({tries_left} tr{'y' if tries_left == 1 else 'ies'} left)"
        self._console.print(f"{self._name(job)}: its worker was lost: {reason}; {retry}", markup=False)

    def failed(self, job: int, reason: str) -> None:
        self._advance()

    def noted(self, job: int, note: str) -> None:
        self._console.print(f"{self._name(job)}: {note}", markup=False)

    def close(self) -> None:
        if self._progress:
            self._progress.stop()
            self._progress = None

    def _name(self, job: int) -> str:
        return f"job {job + 1}/{len(self._groups)} ({self._groups[job].label})"

    def _advance(self) -> None:
        if self._progress:
            self._progress.advance(self._progress.task_ids[0])

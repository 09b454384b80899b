"""Terminal output of the training commands: the plan, a progress bar and the table of results."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from walkback.cli.output import console
from walkback.runs.train_runs import ProgressListener, Result
from walkback.training.planning.fleet_plan import FleetGroup, back_off_text
from walkback.training.planning.load_balance import ONE_WORKER, Workers
from walkback.training.planning.time_left import TimeLeft

if TYPE_CHECKING:
    from rich.progress import TaskID


class ProgressBar(ProgressListener):
    """Prints the plan and shows a progress bar, both on stderr; the bar only on a terminal."""

    def __init__(self, quiet: bool, with_plan: bool = True):
        self._quiet = quiet
        self._with_plan = with_plan
        self._console = console(stderr=True, quiet=quiet)
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._job = ""
        """The job of a user's own function that the bar shows."""
        self._groups: list[FleetGroup] = []
        self._time_left = TimeLeft(())
        self._steps_before = 0.0
        """Steps done before the present group was started."""

    def planned(self, groups: Sequence[FleetGroup], steps: int) -> None:
        self.close()
        self._groups = list(groups)
        self._time_left = TimeLeft(groups)
        if self._with_plan:
            self._console.print(plan_table(groups))
        if not self._quiet and sys.stderr.isatty():
            columns = (*_bar(), TextColumn("steps"))
            times = (TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn())
            self._progress = Progress(*columns, *times, console=self._console, transient=True)
            self._task = self._progress.add_task("", total=steps)
            self._progress.start()

    def started(self, group: FleetGroup) -> None:
        self._time_left.started(group)
        if self._progress and self._task is not None:
            number = self._groups.index(group) + 1
            self._progress.update(self._task, description=f"fleet {number}/{len(self._groups)}: {group.label}")
            self._steps_before = self._progress.tasks[self._task].completed

    def backed_off(self, group: FleetGroup, parts: Sequence[FleetGroup], steps: int) -> None:
        self._console.print(back_off_text(group, parts))
        index = self._groups.index(group)
        self._groups[index : index + 1] = parts
        if self._progress and self._task is not None:
            total = (self._progress.tasks[self._task].total or 0) + steps
            self._progress.update(self._task, completed=self._steps_before, total=total)

    def stepped(self, steps: int) -> None:
        corrected = self._time_left.stepped(steps)
        if corrected is not None and self._with_plan:
            self._console.print(f"By the time of the first steps: about {duration(corrected)}")
        if self._progress and self._task is not None:
            self._progress.advance(self._task, steps)

    def measuring(self, name: str, done: int, total: int) -> None:
        if self._quiet or not sys.stderr.isatty():
            return
        if done == 0:
            self.close()
            columns = (*_bar(), TextColumn("runs"))
            self._progress = Progress(*columns, TimeElapsedColumn(), console=self._console, transient=True)
            self._task = self._progress.add_task("", total=total)
            self._progress.start()
        assert self._progress is not None
        assert self._task is not None
        self._progress.update(self._task, completed=done, description=f"measuring {name}")

    def job_ended(self, name: str, done: int, total: int) -> None:
        self._console.print(f"{name}: trained ({done} of {total})", markup=False)

    def job_epoch(self, name: str, epochs: int, total: int) -> None:
        if self._quiet or not sys.stderr.isatty():
            return
        if self._job != name:
            self.close()
            columns = _bar()
            times = (TextColumn("epochs"), TimeElapsedColumn(), TimeRemainingColumn())
            self._progress, self._job = Progress(*columns, *times, console=self._console, transient=True), name
            self._task = self._progress.add_task(name, total=total)
            self._progress.start()
        assert self._progress is not None
        assert self._task is not None
        self._progress.update(self._task, completed=epochs)

    def resumed(self, group: FleetGroup, epoch: int) -> None:
        self._console.print(f"{group.label}: resuming after epoch {epoch}")

    def skipped(self, names: Sequence[str]) -> None:
        self._console.print(f"{len(names)} finished run{'s' if len(names) > 1 else ''} skipped")

    def noted(self, message: str) -> None:
        self._console.print(message, markup=False)

    def warned(self, message: str) -> None:
        print(f"walkback: {message}", file=sys.stderr)

    def close(self) -> None:
        if self._progress:
            self._progress.stop()
            self._progress, self._job = None, ""


def _bar() -> tuple[ProgressColumn, ...]:
    return TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()


def plan_table(groups: Sequence[FleetGroup], workers: Workers = ONE_WORKER) -> Table:
    """The plan: a row for each fleet; the title has the predicted time when `workers` share them."""
    runs = sum(len(group.resolved_runs) for group in groups)
    time = duration(workers.seconds(groups))
    where = f" in {workers.count} processes" if workers.count > 1 else ""
    title = f"Plan: {runs} run{'s' if runs > 1 else ''}, about {time}{where} (estimate)"
    table = Table(title=title, title_justify="left", box=None, min_width=len(title))
    for heading in ("fleet", "driver"):
        table.add_column(heading)
    for heading in ("epochs", "time", "memory"):
        table.add_column(heading, justify="right")
    for group in groups:
        whole = group.resolved_runs[0].config.epochs
        epochs = f"{group.epochs_left} of {whole}" if group.done else str(whole)
        memory = f"{group.memory / 2**20:,.0f} MiB"
        count = len(group.fleets)
        driver = group.driver if count == 1 else f"{count} fleets"
        table.add_row(group.label, driver, epochs, f"~{duration(group.seconds)}", f"~{memory}")
    return table


def print_plan(groups: Sequence[FleetGroup], as_json: bool, workers: Workers = ONE_WORKER) -> None:
    """Print what `--dry-run` shows: a table, or a JSON object for each fleet."""
    if not as_json:
        nothing = "Nothing to train: every run is finished."
        console().print(plan_table(groups, workers) if groups else nothing)
        return
    for group in groups:
        print(json.dumps({**group.costs, "methods": [resolved.method for resolved in group.resolved_runs]}))


def result_table(results: Sequence[Result]) -> Table:
    """A row for each run, with its test accuracy and its short name."""
    table = Table(title="Test accuracy after the last epoch", title_justify="left", box=None)
    table.add_column("method", overflow="fold")
    with_loss = any(result.test_loss is not None for result in results)
    for heading in ("seed", "test acc", *(["nats a token"] if with_loss else []), "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("id", style="dim")
    for result in results:
        accuracy = "unfinished" if result.test_acc is None else f"{result.test_acc:.4f}"
        loss = [] if not with_loss else ["" if result.test_loss is None else f"{result.test_loss:.4f}"]
        table.add_row(result.method, str(result.seed), accuracy, *loss, f"{result.seconds:.1f}", short_id(result.run))
    return table


def short_id(run: str) -> str:
    """The hash at the end of a run's name, which names the run on the command line."""
    return run.rpartition("_")[2]


def clock(seconds: float) -> str:
    """Elapsed time as minutes and seconds (`3:07`)."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


def duration(seconds: float) -> str:
    """A predicted time, rounded, in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"

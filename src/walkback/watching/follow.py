"""Read the state of a watched training, or of a run of `walkback train`, from its folder; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from walkback.core.errors import InputError
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.runs import store
from walkback.watching import journal
from walkback.watching.detectors import first_alarms, raised_in

MAX_KEPT = 2048
"""The most rows that are kept of a log."""
WatchStatus = Literal["running", "done", "stopped", "interrupted", "failed"]


@dataclass(frozen=True)
class WatchState:
    """The state of a training at one moment."""

    title: str
    status: WatchStatus
    message: str
    """Its progress, or how it ended."""
    unit: Literal["step", "epoch"]
    """The key that numbers the rows."""
    rows: tuple[dict[str, Any], ...]
    """The last row, and of a long log some of those before, evenly spaced and without their lists by layer."""
    looks: int
    """The number of all rows."""
    first: dict[str, int | None]
    """The step or epoch at which each detector first failed."""
    thresholds: DiagnosticThresholds

    @property
    def is_over(self) -> bool:
        return self.status != "running"

    @property
    def is_complete(self) -> bool:
        """Whether the training ended normally or was stopped by a detector."""
        return self.status in ("done", "stopped")

    @property
    def raised(self) -> list[str]:
        """The detectors that fail in the last row."""
        return raised_in(self.rows[-1], self.thresholds) if self.rows else []

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "status": self.status,
            "says": self.message,
            "unit": self.unit,
            "looks": self.looks,
            "last": self.rows[-1] if self.rows else None,
            "raised": self.raised,
            "first": self.first,
        }


def state_of(folder: Path) -> WatchState:
    """Read the folder of a watched training or of a run; refuse any other folder."""
    return Follower(folder).state()


class Follower:
    """Reads the state of a training again and again; of a growing log only what is new."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._log = journal.GrowingLog(folder)
        self._history: _History | None = None

    def state(self) -> WatchState:
        """The present state."""
        folder = self.folder
        if (folder / journal.WATCH_RECORD).is_file():
            return self._watched()
        if (folder / store.RECORD).is_file():
            return _run(folder)
        if not folder.is_dir():
            raise InputError(f"There is no folder {folder}. Name a folder that Watch or `walkback train` writes into.")
        inside = sorted(
            path.parent.name for name in (journal.WATCH_RECORD, store.RECORD) for path in folder.glob(f"*/{name}")
        )
        hint = (
            f"Name one of its folders: {', '.join(inside)}." if inside else "Name a folder that contains one of them."
        )
        raise InputError(
            f"{folder} contains neither a watched training ({journal.WATCH_RECORD}) nor a run ({store.RECORD}). {hint}"
        )

    def _watched(self) -> WatchState:
        record = journal.read_record(self.folder)
        thresholds = journal.thresholds_of(record, self.folder)
        if self._history is None or self._history.thresholds != thresholds or self._log.is_replaced():
            self._log, self._history = journal.GrowingLog(self.folder), _History("step", thresholds)
        for row in self._log.new_rows():
            self._history.add(row)
        status, message = record["status"], record.get("reason") or ""
        if journal.writer_has_died(record):
            status, message = "interrupted", f"its process ({record['pid']}) ended without closing the journal"
        if record.get("verdict"):
            message += f"; verdict: {record['verdict']}"
        every = record.get("every")
        how = "measured on request" if every is None else f"measured every {every} steps"
        title = f"{record.get('method') or record.get('model')}, {how}"
        return self._history.state(title, status, message)


class _History:
    """What is shown of the rows of a log; of a long log not every row is kept."""

    def __init__(self, unit: Literal["step", "epoch"], thresholds: DiagnosticThresholds):
        self.unit, self.thresholds = unit, thresholds
        self.looks, self._every = 0, 1
        self._kept: list[dict[str, Any]] = []
        self._last: dict[str, Any] | None = None
        self.first: dict[str, int | None] = first_alarms([], thresholds, unit)

    def add(self, row: dict[str, Any]) -> None:
        if self._last is not None and (self.looks - 1) % self._every == 0:
            self._kept.append({name: value for name, value in self._last.items() if not isinstance(value, list)})
        if len(self._kept) == MAX_KEPT:
            self._kept, self._every = self._kept[::2], 2 * self._every
        self._last, self.looks = row, self.looks + 1
        for name in raised_in(row, self.thresholds):
            if self.first[name] is None:
                self.first[name] = row.get(self.unit)

    def state(self, title: str, status: WatchStatus, message: str) -> WatchState:
        rows = (*self._kept, self._last) if self._last is not None else ()
        return WatchState(title, status, message, self.unit, rows, self.looks, dict(self.first), self.thresholds)


def _run(folder: Path) -> WatchState:
    run = store.open_run(folder, without=(store.RULE, store.MODEL))
    total = run.record["config"].get("epochs")
    history = _History("epoch", DiagnosticThresholds())
    for row in run.log():
        history.add(row)
    title = f"{run.record['method']}, seed {run.record['seed']}"
    message = f"{history.looks} of {total} epochs"
    result = run.record.get("result", {})
    if run.is_done and "test_acc" in result:
        message += f"; test accuracy {result['test_acc']:.4f}"
    elif run.is_done:
        message += f"; test loss {result['test_loss']:.4f}"
    return history.state(title, "done" if run.is_done else "running", message)

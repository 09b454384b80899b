"""Read the state of a watched training, or of a run of `walkback train`, from its folder; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from walkback.core.errors import InputError
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.runs import store
from walkback.watching import journal
from walkback.watching.detectors import first_alarms, raised_in

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
    thresholds: DiagnosticThresholds

    @property
    def is_over(self) -> bool:
        return self.status != "running"

    @property
    def is_complete(self) -> bool:
        """Whether the training ended normally or was stopped by a detector."""
        return self.status in ("done", "stopped")

    @property
    def first(self) -> dict[str, int | None]:
        """The step or epoch at which each detector first failed."""
        return first_alarms(self.rows, self.thresholds, self.unit)

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
            "looks": len(self.rows),
            "last": self.rows[-1] if self.rows else None,
            "raised": self.raised,
            "first": self.first,
        }


def state_of(folder: Path) -> WatchState:
    """Read the folder of a watched training or of a run; refuse any other folder."""
    if (folder / journal.WATCH_RECORD).is_file():
        return _watched(folder)
    if (folder / store.RECORD).is_file():
        return _run(folder)
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}. Name a folder that Watch or `walkback train` writes into.")
    inside = sorted(
        path.parent.name for name in (journal.WATCH_RECORD, store.RECORD) for path in folder.glob(f"*/{name}")
    )
    hint = f"Name one of its folders: {', '.join(inside)}." if inside else "Name a folder that contains one of them."
    raise InputError(
        f"{folder} contains neither a watched training ({journal.WATCH_RECORD}) nor a run ({store.RECORD}). {hint}"
    )


def _watched(folder: Path) -> WatchState:
    record, rows = journal.read_record(folder), journal.read_rows(folder)
    status, message = record["status"], record.get("reason", "")
    if journal.writer_has_died(record):
        status, message = "interrupted", f"its process ({record['pid']}) ended without closing the journal"
    if record.get("verdict"):
        message += f"; verdict: {record['verdict']}"
    every = record.get("every")
    how = "measured on request" if every is None else f"measured every {every} steps"
    title = f"{record.get('method') or record.get('model')}, {how}"
    return WatchState(title, status, message, "step", tuple(rows), _thresholds(record))


def _run(folder: Path) -> WatchState:
    run = store.open_run(folder, without=(store.RULE, store.MODEL))
    rows, total = run.log(), run.record["config"].get("epochs")
    title = f"{run.record['method']}, seed {run.record['seed']}"
    message = f"{len(rows)} of {total} epochs"
    if run.is_done:
        message += f"; test accuracy {run.record['result']['test_acc']:.4f}"
    return WatchState(
        title, "done" if run.is_done else "running", message, "epoch", tuple(rows), DiagnosticThresholds()
    )


def _thresholds(record: Mapping[str, Any]) -> DiagnosticThresholds:
    return DiagnosticThresholds(**record["thresholds"])

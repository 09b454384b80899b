"""The present state of a training that is watched, or of a run of our own, read from its folder; needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from walkback.core.errors import InputError
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.runs import store
from walkback.watching import journal
from walkback.watching.detectors import first_of, raised_in

WatchStatus = Literal["running", "done", "stopped", "interrupted", "failed"]


@dataclass(frozen=True)
class State:
    """What is known now."""

    title: str
    status: WatchStatus
    says: str
    """How far it is or how it ended, in words."""
    unit: Literal["step", "epoch"]
    """What rows are counted by."""
    rows: tuple[dict[str, Any], ...]
    thresholds: DiagnosticThresholds

    @property
    def is_over(self) -> bool:
        return self.status != "running"

    @property
    def is_complete(self) -> bool:
        """Whether it came to an end of its own, early or not."""
        return self.status in ("done", "stopped")

    @property
    def first(self) -> dict[str, int | None]:
        return first_of(self.rows, self.thresholds, self.unit)

    @property
    def raised(self) -> list[str]:
        """The detectors that the last row raises."""
        return raised_in(self.rows[-1], self.thresholds) if self.rows else []

    def to_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "status": self.status,
            "says": self.says,
            "unit": self.unit,
            "looks": len(self.rows),
            "last": self.rows[-1] if self.rows else None,
            "raised": self.raised,
            "first": self.first,
        }


def state_of(folder: Path) -> State:
    """Read a watched training's folder or a run's; anything else is refused with what was expected."""
    if (folder / journal.WATCH_RECORD).is_file():
        return _watched(folder)
    if (folder / store.RECORD).is_file():
        return _run(folder)
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}. Name one that Watch or `walkback train` writes into.")
    inside = sorted(
        path.parent.name for name in (journal.WATCH_RECORD, store.RECORD) for path in folder.glob(f"*/{name}")
    )
    hint = f"Name one of those in it: {', '.join(inside)}." if inside else "Name one that holds either."
    raise InputError(
        f"{folder} holds neither a watched training ({journal.WATCH_RECORD}) nor a run ({store.RECORD}). {hint}"
    )


def _watched(folder: Path) -> State:
    record, rows = journal.read_record(folder), journal.read_rows(folder)
    status, says = record["status"], record.get("reason", "")
    if journal.is_alone(record):
        status, says = "interrupted", f"its process ({record['pid']}) has ended without a word"
    if record.get("verdict"):
        says += f"; verdict: {record['verdict']}"
    every = record.get("every")
    how = "looks when asked to" if every is None else f"looks every {every} steps"
    title = f"{record.get('method') or record.get('model')}, {how}"
    return State(title, status, says, "step", tuple(rows), _thresholds(record))


def _run(folder: Path) -> State:
    run = store.open_run(folder, without=(store.RULE, store.MODEL))
    rows, total = run.log(), run.record["config"].get("epochs")
    title = f"{run.record['method']}, seed {run.record['seed']}"
    says = f"{len(rows)} of {total} epochs"
    if run.is_done:
        says += f"; test accuracy {run.record['result']['test_acc']:.4f}"
    return State(title, "done" if run.is_done else "running", says, "epoch", tuple(rows), DiagnosticThresholds())


def _thresholds(record: Mapping[str, Any]) -> DiagnosticThresholds:
    return DiagnosticThresholds(**record["thresholds"])

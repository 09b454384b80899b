"""Alarms of the detectors in a training log: the rows in which D1 or D2 fails, and the first such epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from walkback.core.reading.regular_files import Fault
from walkback.core.reading.schema import Schema, check_schema
from walkback.judge.thresholds import DiagnosticThresholds

LogRow = Mapping[str, Any]
"""What was logged after an epoch; None stands for a number that was not finite."""
PAPERS_FACTOR = 8.0
"""The papers measured with batches of 1024: their floor of 1e-7 is this factor higher for a mean loss of 128."""


_NUMBER: Schema = {"type": ["number", "null"]}
_NUMBERS: Schema = {"type": ["array", "null"], "maxItems": 10_000, "items": _NUMBER}
_ROW: Schema = {
    "properties": {
        **dict.fromkeys(("growth", "grad_top", "direction", "loss", "train_acc", "test_acc"), _NUMBER),
        **dict.fromkeys(("eval_loss", "eval_acc", "overflow", "seconds"), _NUMBER),
        **dict.fromkeys(("hidden", "grad", "cosine"), _NUMBERS),
        "flags": {"type": "object", "additionalProperties": {"type": "string"}},
        "problem": {"type": "string"},
    }
}


def check_log_row(row: LogRow, fault: Fault) -> None:
    """Refuse a row whose numbers are something else, or which has one detector's and not the other's."""
    check_schema(row, _ROW, fault)
    if is_watched(row):
        check_schema(row, {"required": ["grad_top"]}, fault)


def is_watched(row: LogRow) -> bool:
    """Whether the detectors measured the network after this epoch."""
    return "growth" in row


def alarm_of(check: str, thresholds: DiagnosticThresholds, floor: float | None = None) -> Callable[[LogRow], bool]:
    """A function that says whether D1 or D2 fails in a row; `floor` replaces the threshold of D2."""

    def grown(row: LogRow) -> bool:
        growth = row["growth"]
        return row.get("overflow") is not None or (growth is not None and growth > thresholds.h_norm_explosion_ratio)

    def collapsed(row: LogRow) -> bool:
        top = row["grad_top"]
        return top is not None and top < (thresholds.g_norm_floor if floor is None else floor)

    return {"D1": grown, "D2": collapsed}[check]


def first_alarm_epoch(rows: Iterable[LogRow], is_raised: Callable[[LogRow], bool]) -> int | None:
    """The first epoch in whose row the detector fails; None if there is none."""
    return next((int(row["epoch"]) for row in rows if is_watched(row) and is_raised(row)), None)

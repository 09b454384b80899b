"""The detectors of a watched training, and which of them fail on a row of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from walkback.core.errors import InputError, unknown
from walkback.judge.check import CHECKS
from walkback.judge.detector_alarms import PAPERS_FACTOR, alarm_of, is_watched
from walkback.judge.evidence import Evidence
from walkback.judge.flag import Flag
from walkback.judge.quantities import Quantities
from walkback.judge.thresholds import DiagnosticThresholds

PAPERS_D2 = "D2@1024"
"""D2 with the papers' floor: 1e-7 for the mean loss of 1024 samples equals 8e-7 for that of 128."""
DETECTOR_NAMES = ("D1", "D2", PAPERS_D2, "direction")

Alarm = tuple[str, ...]
"""Detectors that must fail in the same measurement to stop the training."""


def flags_of(q: Quantities, t: DiagnosticThresholds) -> dict[str, Flag]:
    """The flag of each detector, computed by the checks that judge a card."""
    loose = replace(t, g_norm_floor=PAPERS_FACTOR * t.g_norm_floor)
    checks = {"D1": ("d1", t), "D2": ("d2", t), PAPERS_D2: ("d2", loose), "direction": ("direction", t)}
    return {name: CHECKS.get(check)(q, Evidence(), limits) for name, (check, limits) in checks.items()}


def raised_in(row: Mapping[str, Any], t: DiagnosticThresholds) -> list[str]:
    """The detectors that fail in a row: by its flags, or by its values where it has no flags (a log of `train`)."""
    flags = row.get("flags")
    if isinstance(flags, Mapping):
        return [name for name in DETECTOR_NAMES if flags.get(name) == "raised"]
    if not is_watched(row):
        return []
    direction = row.get("direction")
    found = {
        "D1": alarm_of("D1", t)(row),
        "D2": alarm_of("D2", t)(row),
        PAPERS_D2: alarm_of("D2", t, PAPERS_FACTOR * t.g_norm_floor)(row),
        "direction": direction is not None and direction > t.stability_drift_ceiling,
    }
    return [name for name in DETECTOR_NAMES if found[name]]


def parse_alarms(stop_on: str | Sequence[str | Sequence[str]]) -> tuple[Alarm, ...]:
    """Read `stop_on`: names of detectors, or groups of names that must fail together."""
    given = [stop_on] if isinstance(stop_on, str) else list(stop_on)
    found = tuple((item,) if isinstance(item, str) else tuple(item) for item in given)
    for alarm in found:
        if not alarm:
            raise InputError("stop_on has an empty group. Name the detectors that must fail together.")
        for name in alarm:
            if name not in DETECTOR_NAMES:
                raise unknown("detector", name, DETECTOR_NAMES)
    return found


def first_alarms(rows: Sequence[Mapping[str, Any]], t: DiagnosticThresholds, unit: str) -> dict[str, int | None]:
    """The step or epoch (`unit`) at which each detector first failed; None if it never did."""
    found: dict[str, int | None] = dict.fromkeys(DETECTOR_NAMES)
    for row in rows:
        for name in raised_in(row, t):
            if found[name] is None:
                found[name] = row.get(unit)
    return found

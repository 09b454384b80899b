"""Sensitivity of the verdicts to the thresholds, and the contribution of each part of the protocol.

Reports are judged again from stored measurements; nothing is measured again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from walkback.core.errors import InputError, unknown
from walkback.judge.editions import Edition, Outcome, apply
from walkback.judge.report import DiagnosticReport
from walkback.judge.thresholds import DiagnosticThresholds

FIELDS = {
    "g_norm_floor": "D2",
    "h_norm_explosion_ratio": "D1",
    "stability_drift_ceiling": "direction",
    "frozen_acc_margin_pp": "D3",
    "concentration": "concentration",
}
"""The thresholds that can be swept, with their checks."""

AT_MOST_ONE = ("stability_drift_ceiling", "concentration")

STRATEGIES: dict[str, Edition] = {
    rules.name: rules
    for rules in (
        Edition("S0", "accuracy alone", ()),
        Edition("S1", "accuracy and alignment", ()),
        Edition("S2", "and Mode 1: growth with collapse", (("D1", "D2"),)),
        Edition("S3", "and depth utility", (("D1", "D2"), ("D3",))),
        Edition("+(a)", "accuracy and D1", (("D1",),)),
        Edition("+(b)", "accuracy and D2", (("D2",),)),
        Edition("+(c)", "accuracy and direction", (("direction",),)),
        Edition("+(d)", "accuracy and D3", (("D3",),), skips_depth=True),
        Edition("full", "D1, D2 and D3", (("D1",), ("D2",), ("D3",)), skips_depth=True),
    )
}
"""Verdicts from more and more checks; the first two strategies use none, so they never walk a claim back."""


@dataclass(frozen=True)
class ThresholdSweep:
    """The verdicts as one threshold varies over two orders of magnitude."""

    field: str
    check: str
    default: float
    thresholds: tuple[float, ...]
    verdicts: Mapping[str, tuple[Outcome, ...]]
    """By the name of the case, one verdict for each threshold."""
    flips: Mapping[str, float]
    """The threshold at which a case's flag changes, if it is inside the sweep."""
    gap: float | None
    """The gap between the worst healthy case and the mildest degenerate one: a factor (for D3 percentage points).

    Above 1 (for D3, above 0) some threshold separates them; None if one side is unknown.
    """


def sweep_threshold(
    reports: Mapping[str, DiagnosticReport], field: str, healthy: Collection[str] = (), points: int = 41
) -> ThresholdSweep:
    """Judge every case at thresholds from a tenth to ten times the default."""
    if field not in FIELDS:
        raise unknown("threshold to sweep", field, FIELDS)
    if not reports:
        raise InputError("There is no report to sweep over. Give at least one.")
    for name in healthy:
        if name not in reports:
            raise unknown("case", name, reports)
    check = FIELDS[field]
    default = float(getattr(next(iter(reports.values())).thresholds, field))
    grid = default * np.logspace(-1, 1, points)
    if field in AT_MOST_ONE:
        grid = grid[grid <= 1]
    values = tuple(float(value) for value in grid)
    verdicts = {
        name: tuple(report.rejudge(_with_threshold(report.thresholds, field, value)).verdict for value in values)
        for name, report in reports.items()
    }
    edges = {name: report.flags[check].flips_at for name, report in reports.items()}
    inside = {name: edge for name, edge in edges.items() if edge is not None and values[0] <= edge <= values[-1]}
    return ThresholdSweep(field, check, default, values, verdicts, inside, _gap(reports, check, healthy))


def strategies(report: DiagnosticReport) -> dict[str, Outcome]:
    """The verdict of each strategy for one case."""
    given = bool(report.evidence.frozen)
    return {name: apply(rules, report.flags, given).outcome for name, rules in STRATEGIES.items()}


def _with_threshold(thresholds: DiagnosticThresholds, field: str, value: float) -> DiagnosticThresholds:
    return DiagnosticThresholds(**(thresholds.to_json() | {field: value}))


def _gap(reports: Mapping[str, DiagnosticReport], check: str, healthy: Collection[str]) -> float | None:
    values: dict[bool, list[float]] = {True: [], False: []}
    for name, report in reports.items():
        value = report.flags[check].value
        if value is not None:
            values[name in healthy].append(value)
    good, bad = values[True], values[False]
    if not good or not bad:
        return None
    above = next(iter(reports.values())).flags[check].side == "above"
    inner, outer = (max(good), min(bad)) if above else (max(bad), min(good))
    if check == "D3":
        return outer - inner
    return outer / inner if inner > 0 else None

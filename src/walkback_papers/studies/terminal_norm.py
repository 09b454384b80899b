"""The terminal norm: does it make the reference gradient collapse when the hidden states grow?

Papers: P1 section 3, P2 section 4.1 (the same backbone with its terminal norm removed)
Claim: without the terminal norm hidden states still grow (Mode 1a) and the reference does not collapse (no Mode 1b)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import numpy as np

from walkback.core.configuration import RunConfig
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.plots import in_same_range
from walkback_papers.results import Case, Results
from walkback_papers.scale import Scale
from walkback_papers.studies.cross_architecture import by_name, runs_at
from walkback_papers.study import Study
from walkback_papers.tables import (
    caption,
    check_fails,
    combined_finding,
    make_study_report,
    margin_cell,
    mean_cell,
    not_,
    passes_cell,
    range_cell,
    unanimous,
    verdict_cell,
)

WITH, WITHOUT = "resmlp", "no_norm"
_LABELS = {WITH: "with", WITHOUT: "without"}
STEEP, FLAT = -0.7, -0.3
"""Slopes of log ‖g_L‖ on log ‖h_L‖ that count as falling like 1/‖h_L‖ (under the first), or as not falling with it."""
_MIN_GROWTH = 10.0
"""The smallest factor by which ‖h_L‖ must have grown for a slope to be computed."""
_NUMBERS = ("method, norm", "accuracy", "margin, pp", "growth (D1)", "‖h_L‖", "‖g_L‖ @128", "slope")
_FLAGS = ("method, norm", "scale stable", "reference valid", "modes", "three", "four")


class TerminalNorm(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return [config for place in _LABELS for config in runs_at(place, scale)]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        found = {place: by_name(results, runs_at(place, scale)) for place in _LABELS}
        cases = [case for methods in found.values() for each in methods.values() for case in each]
        note = (
            "Growth (D1) and norms: smallest to largest seed. Slope: of log ‖g_L‖ on log ‖h_L‖ over a run's epochs; "
            f"only where ‖h_L‖ spans at least {_MIN_GROWTH:g}x."
        )
        table_caption = caption(scale, cases, note)
        rows = [(f"{name}, {_LABELS[place]}", found[place][name]) for name in found[WITH] for place in _LABELS]
        tables = [
            Table(
                "norm",
                "The same backbone with and without its norm",
                _NUMBERS,
                tuple(_numbers(*r) for r in rows),
                table_caption,
            ),
            Table("flags", "Flags and verdicts", _FLAGS, tuple(_flags(*row) for row in rows), table_caption),
        ]
        return make_study_report(
            "terminal-norm",
            "The terminal norm",
            "Does the terminal norm make the reference collapse when the hidden states grow?",
            scale,
            cases,
            _findings(found),
            tables=tables,
            figures=[_figure(found, caption(scale, cases, "One line for each seed and network, over the epochs."))],
        )


def slope(case: Case) -> float | None:
    """Slope of log ‖g_L‖ on log ‖h_L‖ over a run: -1 where ‖g_L‖ falls as 1/‖h_L‖; None where ‖h_L‖ hardly changes."""
    sizes, gradients = _norms_by_epoch(case)
    if len(sizes) < 3 or max(sizes) < _MIN_GROWTH * min(sizes):
        return None
    return float(np.polyfit(np.log(sizes), np.log(gradients), 1)[0])


def _norms_by_epoch(case: Case) -> tuple[list[float], list[float]]:
    """‖h_L‖ and ‖g_L‖ @128 after each epoch, where both are positive and finite."""
    rows = [(row["hidden"][-1], row["grad_top"]) for row in case.log if row.get("grad_top") is not None]
    kept = [(h, g) for h, g in rows if h and g and math.isfinite(h) and math.isfinite(g) and h > 0 and g > 0]
    return [h for h, _ in kept], [g for _, g in kept]


def _slope_cell(cases: Sequence[Case]) -> Cell:
    found = [slope(case) for case in cases]
    if None in found:
        return Cell(
            "NOT MEASURED", None, f"‖h_L‖ spans less than {_MIN_GROWTH:g}x over the epochs in at least one seed"
        )
    return mean_cell(found, "+.2f")


def _mean_slope(cases: Sequence[Case]) -> float | None:
    known = [value for case in cases if (value := slope(case)) is not None]
    return fmean(known) if len(known) == len(cases) else None


def _numbers(name: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    return (
        Cell(name),
        mean_cell([case.accuracy for case in cases], ".3f"),
        margin_cell(cases[0].report.evidence.margin("method_shell")),
        range_cell([case.report.flags["D1"].value for case in cases]),
        range_cell([case.report.quantities.top.hidden_norm.value for case in cases]),
        range_cell([case.report.flags["D2"].value for case in cases]),
        _slope_cell(cases),
    )


def _flags(name: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    modes = dict.fromkeys(mode.id for case in cases for mode in case.report.modes if mode.id.startswith("1"))
    return (
        Cell(name),
        passes_cell(cases, "D1"),
        passes_cell(cases, "D2"),
        Cell(", ".join(modes) or "none"),
        verdict_cell(cases, "three"),
        verdict_cell(cases, "four"),
    )


def _findings(found: dict[str, dict[str, list[Case]]]) -> list[Finding]:
    def growth(name: str) -> bool | None:
        """Whether D1 fails without the norm; None where it passes with the norm."""
        return check_fails(found[WITHOUT][name], "D1") if check_fails(found[WITH][name], "D1") else None

    def collapse(name: str) -> bool | None:
        """Whether D2 passes without the norm; None where it passes with the norm."""
        return not_(check_fails(found[WITHOUT][name], "D2")) if check_fails(found[WITH][name], "D2") else None

    def separate(name: str) -> bool | None:
        """Whether D2 passes where D1 fails, on the backbone without the norm."""
        if not check_fails(found[WITHOUT][name], "D1"):
            return None
        return not_(check_fails(found[WITHOUT][name], "D2"))

    rules = ("FA", "DFA")
    falls = {name: _all_below(found[WITH][name], below=STEEP) for name in rules}
    does_not_fall = {name: not_(_all_below(found[WITHOUT][name], below=FLAT)) for name in rules}
    return [
        combined_finding(
            "grows-without-norm",
            "Where D1 fails with the norm, it fails without the norm too.",
            {name: growth(name) for name in rules},
        ),
        combined_finding(
            "no-collapse-without-norm",
            "Where the reference collapses with the norm, it does not without the norm.",
            {name: collapse(name) for name in rules},
        ),
        combined_finding(
            "mode-1a-without-1b",
            "Without the norm Mode 1a occurs without Mode 1b.",
            {name: separate(name) for name in rules},
        ),
        combined_finding(
            "gradient-falls-with-norm",
            f"With the norm the reference falls as the stream grows, like 1/‖h_L‖ (slope under {STEEP:g}).",
            falls,
        ),
        combined_finding(
            "gradient-steady-without-norm",
            f"Without the norm it does not fall as the stream grows (slope not under {FLAT:g}).",
            does_not_fall,
        ),
    ]


def _all_below(cases: Sequence[Case], below: float) -> bool | None:
    found = [slope(case) for case in cases]
    return unanimous(None if value is None else value < below for value in found)


def _figure(found: dict[str, dict[str, list[Case]]], caption_text: str) -> Figure:
    def paths(place: str) -> Plot:
        series = [
            Series(name, *_norms_by_epoch(case), style=name) for name, cases in found[place].items() for case in cases
        ]
        title = f"{_LABELS[place].capitalize()} the terminal norm"
        return Plot(
            title,
            "‖h_L‖",
            "‖g_L‖ @128",
            tuple(series),
            x_log=True,
            y_log=True,
            levels={"D2 floor": DiagnosticThresholds().g_norm_floor},
        )

    with_norm, without = (_mean_slope(found[place]["DFA"]) for place in _LABELS)
    title = "The reference ‖g_L‖ against ‖h_L‖, epoch by epoch"
    if with_norm is not None and without is not None:
        numbers = f"{with_norm:+.2f} with the terminal norm, {without:+.2f} without"
        title = f"Slope of log ‖g_L‖ on log ‖h_L‖ under DFA: {numbers}"
    return Figure("paths", title, in_same_range(list(map(paths, _LABELS))), caption_text, zoom=1.3)


STUDY = TerminalNorm()

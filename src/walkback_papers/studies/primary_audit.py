"""The primary audit: do each method's accuracy and alignment show that it trains this network's depth?

Papers: P1 table 1, P2 sections 3 and 4
Claim: BP passes; DFA and the bridges are walked back, although each has an accuracy and an alignment to report
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from walkback.core.configuration import RunConfig
from walkback.judge.number import Number
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import AUDITED_METHODS, EXACT_AT_INPUT, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    caption,
    check_fails,
    claim_over_seeds,
    kebab,
    make_study_report,
    mean_cell,
    method_label,
    numbers_cell,
    range_cell,
    verdict_cell,
)

AUDIT_HEADS = (
    "method", "accuracy", "frozen baseline", "bp frozen baseline", "margin, pp", "aggregate cosine Γ", "growth (D1)",
    "‖h_L‖", "‖g_L‖ @128", "drift (c)", "three", "four", "alignment", "depth",
)  # fmt: skip
AUDIT_NOTE = (
    "Growth (D1), norms and drift (c): smallest to largest seed. Margin: over the method's own frozen baseline. "
    "Aggregate cosine Γ: A1, the mean over layers."
)
"""Caption of tables with these heads."""


class PrimaryAudit(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return scale.runs([*AUDITED_METHODS, *EXACT_AT_INPUT])

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        methods = results.by_method(self.runs(scale))
        cases = [case for method_cases in methods.values() for case in method_cases]
        table = Table(
            "audit",
            "Primary audit",
            AUDIT_HEADS,
            tuple(audit_row(method_cases) for method_cases in methods.values()),
            caption(scale, cases, AUDIT_NOTE),
        )
        return make_study_report(
            "primary-audit",
            "Primary audit",
            "Do each method's accuracy and alignment show that it trains this network's depth?",
            scale,
            cases,
            _findings(methods),
            tables=[table],
            figures=[
                _reported(methods, caption(scale, cases, "Left: a mark for each seed. Right: 95% intervals.")),
                _layers(methods, caption(scale, cases, "Lines: means over seeds.")),
            ],
        )


def audit_row(cases: Sequence[Case]) -> tuple[Cell, ...]:
    """The table row of one method, over its seeds."""
    evidence = cases[0].report.evidence
    missing = "" if evidence.frozen else "no frozen baseline was trained"
    top = [case.report.quantities.top for case in cases]
    return (
        Cell(method_label(cases[0].method)),
        mean_cell([case.accuracy for case in cases], ".3f"),
        mean_cell(evidence.frozen.get("method_shell", ()), ".3f", missing),
        mean_cell(evidence.frozen.get("bp_shell", ()), ".3f", missing),
        _margin_cell(cases[0]),
        numbers_cell(cases, lambda case: case.report.quantities.aggregates.a1, "+.3f"),
        range_cell([case.report.flags["D1"].value for case in cases]),
        range_cell([layer.hidden_norm.value for layer in top]),
        range_cell([case.report.flags["D2"].value for case in cases]),
        range_cell([case.report.flags["direction"].value for case in cases], "+.2f"),
        verdict_cell(cases, "three"),
        verdict_cell(cases, "four"),
        Cell(claim_over_seeds(cases, "alignment").shown),
        Cell(claim_over_seeds(cases, "depth").shown),
    )


def _margin_cell(case: Case) -> Cell:
    margin = case.report.margin
    if margin is None:
        return Cell("NOT MEASURED", None, case.report.flags["D3"].reason)
    ends = "" if margin.interval is None else f" [{margin.interval[0]:+.1f}, {margin.interval[1]:+.1f}]"
    return Cell(f"{margin.mean:+.1f}{ends}", margin.mean)


def _findings(methods: dict[str, list[Case]]) -> list[Finding]:
    findings = []
    for method, cases in methods.items():
        verdict = verdict_cell(cases, "three").text
        if method_label(method) == "BP":
            findings.append(Finding("bp-passes", "Backprop passes.", verdict == "trustworthy", f"Verdict: {verdict}."))
        elif method_label(method) in ("DFA", "State Bridge", "Credit Bridge"):
            name, is_walked_back = method_label(method), verdict.startswith("walked back")
            claim = f"{name} is walked back, as published."
            findings.append(Finding(f"{kebab(name)}-walked-back", claim, is_walked_back, f"Verdict: {verdict}."))
        elif method in EXACT_AT_INPUT:
            claim = (
                "Exact credit at each block's input is walked back as well: without a penalty, a failure of D1 to D3 "
                "at that site cannot be attributed to the quality of the credit."
            )
            is_walked_back = verdict.startswith("walked back")
            findings.append(Finding("exact-input-walked-back", claim, is_walked_back, f"Verdict: {verdict}."))
    return findings


_DEPTH_LABELS = {
    "stands": "✓ may claim that it trains the depth",
    "walked back": "✗ may not claim it",
    "undecided": "? not decided",
}
"""What the marks say, by the name of their style."""


def _depth_style(cases: Sequence[Case]) -> str:
    """The style of a method's marks: the outcome of its depth claim over the seeds."""
    return {"stands": "stands", "walked_back": "walked back"}.get(claim_over_seeds(cases, "depth").outcome, "undecided")


def _reported(methods: dict[str, list[Case]], caption_text: str) -> Figure:
    """Accuracy against alignment, as papers report them; next to it what trained blocks add to frozen ones."""
    styles = {method: _depth_style(cases) for method, cases in methods.items()}
    used = [style for style in _DEPTH_LABELS if style in styles.values()]
    margins = {method: cases[0].report.margin for method, cases in methods.items()}
    order = sorted(methods, key=lambda method: -margin.mean if (margin := margins[method]) else math.inf)

    def points(style: str) -> Series:
        marks = []
        for method, cases in methods.items():
            if styles[method] == style:
                marks += _named_marks(method_label(method), cases)
        x, y, names = zip(*marks, strict=True) if marks else ((), (), ())
        return Series(_DEPTH_LABELS[style], x, y, style, mark="points", names=names)

    def gains(style: str) -> Series:
        known = [
            (place, margin.mean, *(margin.interval or (None, None)), f"{margin.mean:+.1f}")
            for place, method in enumerate(order)
            if styles[method] == style and (margin := margins[method]) is not None
        ]
        x, y, low, high, names = zip(*known, strict=True) if known else ((), (), (), (), ())
        return Series(_DEPTH_LABELS[style], x, y, style, low, high, mark="points", names=names)

    report = next(iter(methods.values()))[0].report
    frozen, least = report.evidence.frozen.get("bp_shell", ()), report.thresholds.frozen_acc_margin_pp
    plots = (
        Plot(
            "What papers report",
            "alignment: aggregate cosine Γ",
            "test accuracy",
            tuple(map(points, used)),
            levels={"blocks frozen\nat random": fmean(frozen)} if frozen else {},
        ),
        Plot(
            "What trained blocks add to frozen ones",
            "",
            "percentage points of accuracy",
            tuple(map(gains, used)),
            levels={f"at least {least:g} pp": least},
            ticks=tuple(map(method_label, order)),
            horizontal=True,
        ),
    )
    refused = sum(style == "walked back" for style in styles.values())
    title = f"{refused} of {len(methods)} methods may not claim that they train this network's depth"
    return Figure("reported", title, plots, caption_text, zoom=1.45)


def _named_marks(name: str, cases: Sequence[Case]) -> list[tuple[float, float, str]]:
    """Γ and accuracy of each seed where Γ may be used; the seed in the middle has the name."""
    gammas = [case.report.quantities.aggregates.a1 for case in cases]
    known = sorted((g.known, case.accuracy) for g, case in zip(gammas, cases, strict=True) if g.ok)
    return [(x, y, name if i == len(known) // 2 else "") for i, (x, y) in enumerate(known)]


def _layers(methods: dict[str, list[Case]], caption_text: str) -> Figure:
    """Norms and cosines of every layer, a curve for each method."""

    def curve(method: str, quantity: str) -> Series:
        cases = methods[method]
        depth = cases[0].resolved.net.depth
        values: list[float | None] = []
        for layer in range(depth + 1):
            numbers = [_layer_quantity(case, layer, quantity) for case in cases]
            ok = [number.known for number in numbers if number is not None and number.ok]
            values.append(sum(ok) / len(ok) if len(ok) == len(numbers) and ok else None)
        return Series(method_label(method), range(depth + 1), values, mark="both")

    def plot(title: str, quantity: str, y_label: str, log: bool, levels: dict[str, float] | None = None) -> Plot:
        series = tuple(curve(method, quantity) for method in methods)
        return Plot(title, "hidden state l", y_label, series, y_log=log, levels=levels or {})

    plots = (
        plot("Hidden norms", "hidden_norm", "mean ‖h_l‖", log=True),
        plot(
            "Reference gradients",
            "grad_norm_128",
            "mean ‖g_l‖ @128",
            log=True,
            levels={"D2 floor": DiagnosticThresholds().g_norm_floor},
        ),
        plot("Credit cosine", "cos", "mean cos(a_l, g_l)", log=False),
    )
    collapsed = sum(check_fails(cases, "D2") is True for cases in methods.values())
    title = f"The reference gradient ‖g_L‖ is under its floor in every seed of {collapsed} of {len(methods)} methods"
    return Figure("layers", title, plots, caption_text, columns=3)


def _layer_quantity(case: Case, layer: int, quantity: str) -> Number | None:
    measured = case.report.quantities.layers[layer]
    if quantity == "cos":
        return None if measured.credit is None else measured.credit.cos
    number: Number = getattr(measured, quantity)
    return number


STUDY = PrimaryAudit()

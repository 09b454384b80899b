"""The primary audit: may each method's accuracy and alignment be read as training this network's depth?

Papers: P1 table 1, P2 sections 3 and 4
Claim: BP passes; DFA and the bridges are walked back although they learn something and report an alignment
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from walkback.core.configuration import RunConfig
from walkback.judge.number import Number
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, RAW, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    caption,
    claim_over_seeds,
    make_study_report,
    mean_cell,
    method_label,
    numbers_cell,
    range_cell,
    verdict_cell,
)

AUDIT_HEADS = (
    "method", "accuracy", "shell", "bp shell", "margin, pp", "Γ (A1)", "growth", "‖h_L‖", "‖g_L‖ @128", "(c)",
    "three", "four", "alignment", "depth",
)  # fmt: skip


class PrimaryAudit(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return scale.runs([*METHODS.values(), *RAW])

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        methods = results.by_method(self.runs(scale))
        cases = [case for found in methods.values() for case in found]
        note = "Growth, norms and (c): smallest to largest seed. Margin: over the method's own shell."
        table = Table(
            "audit",
            "Primary audit",
            AUDIT_HEADS,
            tuple(audit_row(found) for found in methods.values()),
            caption(scale, cases, note),
        )
        return make_study_report(
            "primary-audit",
            "Primary audit",
            "May each method's accuracy and alignment be read as training this network's depth?",
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
    """One method over its seeds."""
    evidence = cases[0].report.evidence
    top = [case.report.quantities.top for case in cases]
    return (
        Cell(method_label(cases[0].method)),
        mean_cell([case.accuracy for case in cases], ".3f"),
        mean_cell(evidence.frozen.get("method_shell", ()), ".3f", "" if evidence.frozen else "no shell was trained"),
        mean_cell(evidence.frozen.get("bp_shell", ()), ".3f", "" if evidence.frozen else "no shell was trained"),
        _margin(cases[0]),
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


def _margin(case: Case) -> Cell:
    margin = case.report.margin
    if margin is None:
        return Cell("NOT MEASURED", None, case.report.flags["D3"].reason)
    ends = "" if margin.interval is None else f" [{margin.interval[0]:+.1f}, {margin.interval[1]:+.1f}]"
    return Cell(f"{margin.mean:+.1f}{ends}", margin.mean)


def _findings(methods: dict[str, list[Case]]) -> list[Finding]:
    found = []
    for method, cases in methods.items():
        said = verdict_cell(cases, "three").text
        if method_label(method) == "BP":
            found.append(Finding("Backprop passes.", said == "trustworthy", f"Verdict: {said}."))
        elif method_label(method) in ("DFA", "State Bridge", "Credit Bridge"):
            is_back = said.startswith("walked back")
            found.append(Finding(f"{method_label(method)} is walked back, as published.", is_back, f"Verdict: {said}."))
    return found


def _reported(methods: dict[str, list[Case]], words: str) -> Figure:
    """The two numbers that papers report, and beside them what they do not tell."""
    points, margins = [], []
    for place, (method, cases) in enumerate(methods.items()):
        gammas = [case.report.quantities.aggregates.a1 for case in cases]
        known = [(g.known, case.accuracy) for g, case in zip(gammas, cases, strict=True) if g.ok]
        points.append(Series(method_label(method), [x for x, _ in known], [y for _, y in known], mark="points"))
        margin = cases[0].report.margin
        if margin is not None:
            low, high = margin.interval or (None, None)
            margins.append(Series(method_label(method), [place], [margin.mean], low=[low], high=[high], mark="points"))
    report = next(iter(methods.values()))[0].report
    frozen, least = report.evidence.frozen.get("bp_shell", ()), report.thresholds.frozen_acc_margin_pp
    plots = (
        Plot(
            "What is reported",
            "alignment Γ (A1)",
            "test accuracy",
            tuple(points),
            levels={"blocks frozen at random": fmean(frozen)} if frozen else {},
        ),
        Plot(
            "What the trained blocks add to random ones",
            "",
            "over own shell, pp",
            tuple(margins),
            levels={f"worth claiming: {least:g} pp": least},
            ticks=tuple(map(method_label, methods)),
        ),
    )
    return Figure("reported", "Accuracy and alignment, and what they do not tell", plots, words)


def _layers(methods: dict[str, list[Case]], words: str) -> Figure:
    """Norms and cosines of every layer, a curve for each method."""

    def curve(method: str, get: str) -> Series:
        cases = methods[method]
        depth = cases[0].resolved.net.depth
        values: list[float | None] = []
        for layer in range(depth + 1):
            each = [_layer(case, layer, get) for case in cases]
            ok = [number.known for number in each if number is not None and number.ok]
            values.append(sum(ok) / len(ok) if len(ok) == len(each) and ok else None)
        return Series(method_label(method), range(depth + 1), values, mark="both")

    def plot(title: str, get: str, y_label: str, log: bool, levels: dict[str, float] | None = None) -> Plot:
        series = tuple(curve(method, get) for method in methods)
        return Plot(title, "hidden state l", y_label, series, y_log=log, levels=levels or {})

    plots = (
        plot("Hidden norms", "hidden_norm", "mean ‖h_l‖", log=True),
        plot("Reference gradients", "grad_norm_128", "mean ‖g_l‖ @128", log=True, levels={"D2 floor": 1e-7}),
        plot("Credit cosine", "cos", "mean cos(a_l, g_l)", log=False),
    )
    return Figure("layers", "Every layer of every method", plots, words, columns=3)


def _layer(case: Case, layer: int, get: str) -> Number | None:
    found = case.report.quantities.layers[layer]
    if get == "cos":
        return None if found.credit is None else found.credit.cos
    number: Number = getattr(found, get)
    return number


STUDY = PrimaryAudit()

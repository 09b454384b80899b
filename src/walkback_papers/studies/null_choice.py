"""The choice of null: which verdicts depend on the frozen baseline that the method is compared with?

Papers: ours; P1 uses one baseline for all methods, P2 another for ViT-Mini
Claim: the frozen baseline trained by backprop is harder to beat, and verdicts flip with it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from walkback.core.configuration import RunConfig
from walkback.judge.editions import EDITIONS
from walkback.judge.evidence import BP_SHELL, METHOD_SHELL, NULL_NAMES
from walkback.judge.report import DiagnosticReport, judge
from walkback.judge.statistics import Margin, paired_margin
from walkback.report.cells import Cell
from walkback.report.study_report import CellGrid, Figure, Finding, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import AUDITED_METHODS, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    all_true,
    caption,
    is_above,
    make_study_report,
    margin_cell,
    mean_cell,
    method_label,
    verdict_cell_of_reports,
)

_NULLS = {null: NULL_NAMES[null] for null in (METHOD_SHELL, BP_SHELL)}
Judged = Mapping[str, Mapping[str, Sequence[DiagnosticReport]]]
"""Reports by the method's name and the null."""


class NullChoice(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return scale.runs(AUDITED_METHODS)

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        methods = results.by_method(self.runs(scale))
        cases = [case for found in methods.values() for case in found]
        judged = {
            method_label(method): {null: [judge_against(case.report, null) for case in found] for null in _NULLS}
            for method, found in methods.items()
        }
        note = (
            "Frozen baseline: blocks frozen at random, the rest trained by the method itself; bp frozen baseline: "
            "the rest trained by backprop."
        )
        margins = "Margins in percentage points, paired by seed, with 95% t intervals."
        return make_study_report(
            "null-choice",
            "The choice of null",
            "Which verdicts depend on the frozen baseline that the method is compared with?",
            scale,
            cases,
            _findings(judged),
            tables=[
                _margins(methods, judged, caption(scale, cases, f"{note} {margins}")),
                _verdicts(judged, caption(scale, cases, note)),
            ],
            figures=[_figure(judged, caption(scale, cases, "The worst verdict of the seeds."))],
        )


def judge_against(report: DiagnosticReport, null: str) -> DiagnosticReport:
    """The same measurements compared with another frozen baseline."""
    return judge(
        report.measurements,
        replace(report.evidence, null=null),
        report.thresholds,
        report.protocol,
        report.method_name,
        report.notes,
        report.context,
    )


def _findings(judged: Judged) -> list[Finding]:
    flips = _flips(judged)
    differences = {name: _baseline_difference(by_null) for name, by_null in judged.items() if name != "BP"}
    texts = "; ".join(f"{name} {margin_cell(margin).text}" for name, margin in differences.items())
    bp = {null: verdict_cell_of_reports(judged["BP"][null], "three").text for null in _NULLS}
    return [
        Finding(
            "baseline-changes-verdicts",
            "Which frozen baseline is used changes verdicts.",
            bool(flips),
            (f"Flips: {'; '.join(flips)}." if flips else "No verdict of either edition flips."),
        ),
        Finding(
            "bp-baseline-harder",
            "Backprop's frozen baseline is harder to beat than the own one for every method.",
            all_true(is_above(margin) for margin in differences.values()),
            f"bp frozen baseline over own, pp: {texts}.",
        ),
        Finding(
            "bp-passes-under-both",
            "Backprop passes under both.",
            all(text == "trustworthy" for text in bp.values()),
            "; ".join(f"{_NULLS[null]}: {text}" for null, text in bp.items()) + ". For backprop both are the same.",
        ),
    ]


def _flips(judged: Judged) -> list[str]:
    """Each verdict that differs between the nulls, in words."""
    found = []
    for name, by_null in judged.items():
        for edition in EDITIONS:
            own, bp = (_outcomes(by_null[null], edition) for null in _NULLS)
            if own != bp:
                seeds = sum(a != b for a, b in zip(own, bp, strict=True))
                ends = " to ".join(verdict_cell_of_reports(by_null[null], edition).text for null in _NULLS)
                found.append(f"{name} ({edition}, {seeds} of {len(own)} seeds) from {ends}")
    return found


def _outcomes(reports: Sequence[DiagnosticReport], edition: str) -> list[str]:
    return [report.verdicts[edition].outcome for report in reports]


def _baseline_difference(by_null: Mapping[str, Sequence[DiagnosticReport]]) -> Margin | None:
    """Accuracy of backprop's frozen baseline minus that of the method's own, paired by seed."""
    frozen = by_null[METHOD_SHELL][0].evidence.frozen
    if METHOD_SHELL not in frozen or BP_SHELL not in frozen:
        return None
    return paired_margin(frozen[BP_SHELL], frozen[METHOD_SHELL])


def _margins(methods: Mapping[str, list[Case]], judged: Judged, caption_text: str) -> Table:
    rows = []
    for method, cases in methods.items():
        by_null, frozen = judged[method_label(method)], cases[0].report.evidence.frozen
        rows.append(
            (
                Cell(method_label(method)),
                mean_cell([case.accuracy for case in cases], ".3f"),
                *(mean_cell(frozen.get(null, ()), ".3f", "" if null in frozen else "not trained") for null in _NULLS),
                *(margin_cell(by_null[null][0].margin, by_null[null][0].flags["D3"].reason) for null in _NULLS),
                margin_cell(_baseline_difference(by_null), "a frozen baseline is missing"),
            )
        )
    heads = (
        "method",
        "accuracy",
        *_NULLS.values(),
        "over frozen, pp",
        "over bp frozen, pp",
        "bp frozen over own, pp",
    )
    return Table("margins", "Accuracy over each frozen baseline", heads, tuple(rows), caption_text)


def _verdicts(judged: Judged, caption_text: str) -> Table:
    heads = (
        "method",
        *(f"{edition}, {name}" for edition in EDITIONS for name in _NULLS.values()),
        *(f"depth, {name}" for name in _NULLS.values()),
        "flips",
    )
    rows = tuple(
        (
            Cell(name),
            *(verdict_cell_of_reports(by_null[null], edition) for edition in EDITIONS for null in _NULLS),
            *(Cell(by_null[null][0].claims["depth"].shown) for null in _NULLS),
            Cell(_flipping(by_null)),
        )
        for name, by_null in judged.items()
    )
    return Table("verdicts", "Verdicts under each frozen baseline", heads, rows, caption_text)


def _flipping(by_null: Mapping[str, Sequence[DiagnosticReport]]) -> str:
    own, bp = (by_null[null] for null in _NULLS)
    return ", ".join(e for e in EDITIONS if _outcomes(own, e) != _outcomes(bp, e)) or "none"


def _figure(judged: Judged, caption_text: str) -> Figure:
    columns = tuple(f"{edition}, {name}" for edition in EDITIONS for name in _NULLS.values())
    order = ("walked_back", "inconclusive", "trustworthy")
    cells = tuple(
        tuple(min(_outcomes(by_null[null], edition), key=order.index) for edition in EDITIONS for null in _NULLS)
        for by_null in judged.values()
    )
    grid = CellGrid("Verdict by edition (three, four) and frozen baseline", columns, tuple(judged), cells)
    title = f"Another frozen baseline changes {len(_flips(judged))} of {len(judged) * len(EDITIONS)} verdicts"
    return Figure("nulls", title, (grid,), caption_text, columns=1)


STUDY = NullChoice()

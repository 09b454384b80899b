"""The choice of null: which verdicts hang on which frozen baseline depth is held against?

Papers: ours; P1 uses one baseline for all methods, P2 another for ViT-Mini
Claim: the shell that backprop trains is the harder null, and verdicts flip with it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from walkback.core.configuration import RunConfig
from walkback.judge.editions import EDITIONS
from walkback.judge.evidence import BP_SHELL, METHOD_SHELL
from walkback.judge.report import DiagnosticReport, judge
from walkback.judge.statistics import Margin, paired_margin
from walkback.report.cells import Cell
from walkback.report.study_report import CellGrid, Figure, Finding, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import Scale
from walkback_papers.studies.primary_audit import STUDY as AUDIT
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

_NULLS = {METHOD_SHELL: "own shell", BP_SHELL: "bp shell"}
Judged = Mapping[str, Mapping[str, Sequence[DiagnosticReport]]]
"""Reports by the method's name and the null."""


class NullChoice(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return AUDIT.runs(scale)

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        methods = results.by_method(self.runs(scale))
        cases = [case for found in methods.values() for case in found]
        judged = {
            method_label(method): {null: [under(case.report, null) for case in found] for null in _NULLS}
            for method, found in methods.items()
        }
        note = "Own shell: blocks frozen, the rest trained by the method's own credit; bp shell: the rest by backprop."
        margins = "Margins in percentage points, paired by seed, with 95% t intervals."
        return make_study_report(
            "null-choice",
            "The choice of null",
            "Which verdicts hang on which frozen baseline depth is held against?",
            scale,
            cases,
            _findings(judged),
            tables=[
                _margins(methods, judged, caption(scale, cases, f"{note} {margins}")),
                _verdicts(judged, caption(scale, cases, note)),
            ],
            figures=[_figure(judged, caption(scale, cases, "The worst verdict of the seeds."))],
        )


def under(report: DiagnosticReport, null: str) -> DiagnosticReport:
    """The same measurements held against another frozen baseline."""
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
    harder = {name: _harder(by) for name, by in judged.items() if name != "BP"}
    said = "; ".join(f"{name} {margin_cell(margin).text}" for name, margin in harder.items())
    bp = {null: verdict_cell_of_reports(judged["BP"][null], "three").text for null in _NULLS}
    return [
        Finding(
            "Which frozen baseline is used changes verdicts.",
            bool(flips),
            (f"Flips: {'; '.join(flips)}." if flips else "No verdict of either edition flips."),
        ),
        Finding(
            "The shell that backprop trains is the harder null for every method.",
            all_true(is_above(margin) for margin in harder.values()),
            f"bp shell over own shell, pp: {said}.",
        ),
        Finding(
            "Backprop passes under both.",
            all(text == "trustworthy" for text in bp.values()),
            "; ".join(f"{_NULLS[null]}: {text}" for null, text in bp.items()) + ". For backprop both are one shell.",
        ),
    ]


def _flips(judged: Judged) -> list[str]:
    """Each verdict that differs between the nulls, in words."""
    found = []
    for name, by in judged.items():
        for edition in EDITIONS:
            own, harder = (_outcomes(by[null], edition) for null in _NULLS)
            if own != harder:
                seeds = sum(a != b for a, b in zip(own, harder, strict=True))
                ends = " to ".join(verdict_cell_of_reports(by[null], edition).text for null in _NULLS)
                found.append(f"{name} ({edition}, {seeds} of {len(own)} seeds) from {ends}")
    return found


def _outcomes(reports: Sequence[DiagnosticReport], edition: str) -> list[str]:
    return [report.verdicts[edition].outcome for report in reports]


def _harder(by: Mapping[str, Sequence[DiagnosticReport]]) -> Margin | None:
    """How much more the shell reaches that backprop trains."""
    frozen = by[METHOD_SHELL][0].evidence.frozen
    if METHOD_SHELL not in frozen or BP_SHELL not in frozen:
        return None
    return paired_margin(frozen[BP_SHELL], frozen[METHOD_SHELL])


def _margins(methods: Mapping[str, list[Case]], judged: Judged, words: str) -> Table:
    rows = []
    for method, cases in methods.items():
        by, frozen = judged[method_label(method)], cases[0].report.evidence.frozen
        rows.append(
            (
                Cell(method_label(method)),
                mean_cell([case.accuracy for case in cases], ".3f"),
                *(mean_cell(frozen.get(null, ()), ".3f", "" if null in frozen else "not trained") for null in _NULLS),
                *(margin_cell(by[null][0].margin, by[null][0].flags["D3"].reason) for null in _NULLS),
                margin_cell(_harder(by), "a shell is missing"),
            )
        )
    heads = (
        "method",
        "accuracy",
        *_NULLS.values(),
        *(f"over {name}" for name in _NULLS.values()),
        "bp shell over own",
    )
    return Table("margins", "Accuracy over each frozen baseline", heads, tuple(rows), words)


def _verdicts(judged: Judged, words: str) -> Table:
    heads = (
        "method",
        *(f"{edition}, {name}" for edition in EDITIONS for name in _NULLS.values()),
        *(f"depth, {name}" for name in _NULLS.values()),
        "flips",
    )
    rows = tuple(
        (
            Cell(name),
            *(verdict_cell_of_reports(by[null], edition) for edition in EDITIONS for null in _NULLS),
            *(Cell(by[null][0].claims["depth"].shown) for null in _NULLS),
            Cell(_flipping(by)),
        )
        for name, by in judged.items()
    )
    return Table("verdicts", "Verdicts under each frozen baseline", heads, rows, words)


def _flipping(by: Mapping[str, Sequence[DiagnosticReport]]) -> str:
    own, harder = (by[null] for null in _NULLS)
    return ", ".join(e for e in EDITIONS if _outcomes(own, e) != _outcomes(harder, e)) or "none"


def _figure(judged: Judged, words: str) -> Figure:
    columns = tuple(f"{edition}, {name}" for edition in EDITIONS for name in _NULLS.values())
    order = ("walked_back", "inconclusive", "trustworthy")
    cells = tuple(
        tuple(min(_outcomes(by[null], edition), key=order.index) for edition in EDITIONS for null in _NULLS)
        for by in judged.values()
    )
    grid = CellGrid("Verdict by edition and null", columns, tuple(judged), cells)
    return Figure("nulls", "Verdicts under each frozen baseline", (grid,), words, columns=1)


STUDY = NullChoice()

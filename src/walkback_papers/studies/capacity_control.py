"""The capacity control: does the penalty take from backprop what it gives to DFA?

Papers: P1 section 5 and figure 3, P2 figure 6 (right) and appendix C.1
Claim: the penalty costs backprop some accuracy and gives DFA some; what remains between them is not capacity
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from walkback.core.configuration import RunConfig
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, Scale
from walkback_papers.studies.penalty_sweep import PENALTY_HEADS, penalty_row
from walkback_papers.study import Study
from walkback_papers.tables import (
    accuracy_gain,
    caption,
    claim_over_seeds,
    is_above,
    make_study_report,
    margin_cell,
    method_label_of,
    not_,
    penalty_of,
    unanimous,
    with_penalty,
)

CONTROL_PENALTY = 1e-2
_EXACT = 1e-6
"""How far backprop's cosine may be from 1 by rounding."""
Cells = dict[tuple[str, bool], list[Case]]
"""Cases by the method's name and whether it has the penalty."""


class CapacityControl(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        methods = [with_penalty(METHODS[name], size) for name in ("BP", "DFA") for size in (0.0, CONTROL_PENALTY)]
        return scale.runs(methods, epochs="short")

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        cases = results.cases(self.runs(scale))
        cells: Cells = {}
        for case in cases:
            cells.setdefault((method_label_of(case), penalty_of(case) > 0), []).append(case)
        rows = tuple(penalty_row(found, penalty_of(found[0])) for found in cells.values())
        paired = "Differences in percentage points, paired by seed, with 95% t intervals."
        return make_study_report(
            "capacity-control",
            "Capacity control",
            "Does the penalty take backprop's capacity as it gives DFA its depth?",
            scale,
            cases,
            _findings(cells),
            tables=[
                Table("two-by-two", "Backprop and DFA, with and without", PENALTY_HEADS, rows, caption(scale, cases)),
                Table(
                    "differences",
                    "What the penalty changes",
                    ("difference", "accuracy, pp"),
                    tuple((Cell(name), margin_cell(accuracy_gain(*pair))) for name, pair in _pairs(cells).items()),
                    caption(scale, cases, paired),
                ),
            ],
            figures=[_figure(cells, caption(scale, cases, "Bars: means over seeds; lines: smallest to largest."))],
        )


def _findings(cells: Cells) -> list[Finding]:
    cost, help_, gap, left = (accuracy_gain(*pair) for pair in _pairs(cells).values())
    stands, depth = (claim_over_seeds(cells[name, True], "depth") for name in ("BP", "DFA"))
    cosines = [
        case.report.quantities.aggregates.deep_mean_papers for with_it in (False, True) for case in cells["BP", with_it]
    ]
    share = f", {left.mean / gap.mean:.0%} of the {gap.mean:+.1f} pp without" if gap.mean > 0 else ""
    outcomes = {"stands": True, "walked_back": False}
    return [
        Finding(
            "The penalty costs backprop accuracy.",
            not_(is_above(cost)),
            f"{margin_cell(cost).text} pp.",
        ),
        Finding("It gives DFA accuracy.", is_above(help_), f"{margin_cell(help_).text} pp."),
        Finding(
            "Backprop's depth is still of use under it.",
            outcomes.get(stands.outcome),
            f"Over its shell: {stands.reason}.",
        ),
        Finding("DFA's depth is of use under it.", outcomes.get(depth.outcome), f"Over its own shell: {depth.reason}."),
        Finding(
            "Capacity is not what DFA lacks: under the same penalty backprop stays ahead.",
            is_above(left),
            f"{margin_cell(left).text} pp{share}.",
        ),
        Finding(
            "The penalty leaves backprop's cosine at 1.",
            unanimous(abs(number.known - 1) < _EXACT if number.ok else None for number in cosines),
            "It is exact by construction, so this control cannot fail and shows nothing of DFA's.",
        ),
    ]


def _pairs(cells: Cells) -> dict[str, tuple[Sequence[Case], Sequence[Case]]]:
    return {
        "penalty on BP": (cells["BP", True], cells["BP", False]),
        "penalty on DFA": (cells["DFA", True], cells["DFA", False]),
        "BP over DFA, without": (cells["BP", False], cells["DFA", False]),
        "BP over DFA, with": (cells["BP", True], cells["DFA", True]),
    }


def _figure(cells: Cells, words: str) -> Figure:
    def bars(name: str) -> Series:
        shells = cells[name, False][0].report.evidence.frozen.get("method_shell", ())
        groups = [*([case.accuracy for case in cells[name, with_it]] for with_it in (False, True)), list(shells)]
        means = [fmean(each) if each else None for each in groups]
        low, high = ([end(each, default=None) for each in groups] for end in (min, max))
        return Series(name, range(len(groups)), means, low=low, high=high, mark="bars")

    ticks = ("λ = 0", f"λ = {CONTROL_PENALTY:g}", "blocks frozen")
    plot = Plot("Accuracy with and without the penalty", "", "test accuracy", (bars("BP"), bars("DFA")), ticks=ticks)
    return Figure("accuracy", "Two by two", (plot,), words, columns=1)


STUDY = CapacityControl()

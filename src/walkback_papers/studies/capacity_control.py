"""The capacity control: does the penalty cost backprop the accuracy that it gives DFA?

Papers: P1 section 5 and figure 3, P2 figure 6 (right) and appendix C.1
Claim: the penalty costs backprop some accuracy and gives DFA some; the gap that remains is not capacity
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from walkback.core.configuration import RunConfig
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.plots import listed
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
"""Largest rounding error of backprop's cosine, which is 1."""
Cells = dict[tuple[str, bool], list[Case]]
"""Cases by the method's name and whether the penalty is on."""


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
            "Does the penalty cost backprop the accuracy that it gives DFA?",
            scale,
            cases,
            _findings(cells),
            tables=[
                Table(
                    "two-by-two",
                    "Backprop and DFA, with and without the penalty",
                    PENALTY_HEADS,
                    rows,
                    caption(scale, cases),
                ),
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
    loss, gain, gap, left = (accuracy_gain(*pair) for pair in _pairs(cells).values())
    stands, depth = (claim_over_seeds(cells[name, True], "depth") for name in ("BP", "DFA"))
    cosines = [
        case.report.quantities.aggregates.deep_mean_papers for with_it in (False, True) for case in cells["BP", with_it]
    ]
    share = f", {left.mean / gap.mean:.0%} of the {gap.mean:+.1f} pp without" if gap.mean > 0 else ""
    outcomes = {"stands": True, "walked_back": False}
    return [
        Finding(
            "penalty-costs-bp",
            "The penalty costs backprop accuracy.",
            not_(is_above(loss)),
            f"{margin_cell(loss).text} pp.",
        ),
        Finding("penalty-helps-dfa", "It gives DFA accuracy.", is_above(gain), f"{margin_cell(gain).text} pp."),
        Finding(
            "bp-depth-useful",
            "Backprop's depth is still of use under it.",
            outcomes.get(stands.outcome),
            f"Over its frozen baseline: {stands.reason}.",
        ),
        Finding(
            "dfa-depth-useful",
            "DFA's depth is of use under it.",
            outcomes.get(depth.outcome),
            f"Over its own frozen baseline: {depth.reason}.",
        ),
        Finding(
            "bp-ahead-under-penalty",
            "Capacity is not what DFA lacks: under the same penalty backprop stays ahead.",
            is_above(left),
            f"{margin_cell(left).text} pp{share}.",
        ),
        Finding(
            "bp-cosine-stays-1",
            "The penalty leaves backprop's cosine at 1.",
            unanimous(abs(number.known - 1) < _EXACT if number.ok else None for number in cosines),
            "It is exact by construction, so this control cannot fail and shows nothing about DFA's.",
        ),
    ]


def _pairs(cells: Cells) -> dict[str, tuple[Sequence[Case], Sequence[Case]]]:
    """The four differences: the cases whose accuracy is compared, and those subtracted from it."""
    return {
        "penalty on BP": (cells["BP", True], cells["BP", False]),
        "penalty on DFA": (cells["DFA", True], cells["DFA", False]),
        "BP over DFA, without": (cells["BP", False], cells["DFA", False]),
        "BP over DFA, with": (cells["BP", True], cells["DFA", True]),
    }


def _figure(cells: Cells, caption_text: str) -> Figure:
    def bars(name: str) -> Series:
        frozen = cells[name, False][0].report.evidence.frozen.get("method_shell", ())
        groups = [*([case.accuracy for case in cells[name, with_it]] for with_it in (False, True)), list(frozen)]
        means = [fmean(each) if each else None for each in groups]
        low, high = ([end(each, default=None) for each in groups] for end in (min, max))
        return Series(name, range(len(groups)), means, low=low, high=high, mark="bars")

    ticks = ("λ = 0", f"λ = {CONTROL_PENALTY:g}", "blocks frozen")
    plot = Plot("", "", "test accuracy", (bars("BP"), bars("DFA")), ticks=ticks)
    changes = {name: accuracy_gain(cells[name, True], cells[name, False]) for name in ("BP", "DFA")}
    known = [f"{name} {change.mean:+.1f} pp" for name, change in changes.items() if change is not None]
    title = f"The penalty changes accuracy: {listed(known)}" if known else "Accuracy with and without the penalty"
    return Figure("accuracy", title, (plot,), caption_text, columns=1, zoom=1.2)


STUDY = CapacityControl()

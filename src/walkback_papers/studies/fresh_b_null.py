"""The fresh-B null: does DFA's alignment depend on its own feedback matrices, or do fresh ones give the same?

Papers: P1 table 2 (last row), P2 appendix C.2
Claim: under the penalty the deep cosine depends on the matrices used in training; fresh ones give zero
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from walkback.core.configuration import RunConfig
from walkback.core.measurements import Array
from walkback.judge.layers import Fresh, fresh_of
from walkback.judge.number import Number
from walkback.judge.statistics import mean_interval
from walkback.report.cells import EMPTY_CELL, Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.plots import in_same_range
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, Scale
from walkback_papers.study import Study
from walkback_papers.tables import caption, make_study_report, not_, penalty_of, unanimous, with_penalty

NULL_PENALTIES = (1e-2, 0.0)
_HEADS = (
    "λ", "seed", "layers", "own B", "fresh B, mean", "fresh B, sd", "draws", "z against fresh", "z against rotation",
)  # fmt: skip
MIDDLE_95 = 1.96
"""95% of normally distributed draws are within this many standard deviations."""
_ABSENT = Number.missing("no fresh feedback was drawn")


class FreshBNull(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return scale.runs([with_penalty(METHODS["DFA"], size) for size in NULL_PENALTIES], epochs="short")

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        cases = results.cases(self.runs(scale))
        by = {size: [case for case in cases if penalty_of(case) == size] for size in NULL_PENALTIES}
        note = (
            "sd and z of fresh B: over draws at fixed weights (ddof = 1), with the draws' own uncertainty, not over "
            "seeds. Published: l = 1..L, which the findings are about; deep: states whose credit trains a block. "
            "Rotation: the Haar null."
        )
        rows = tuple(row for case in cases for row in _rows(case))
        return make_study_report(
            "fresh-b-null",
            "Fresh feedback",
            "Does DFA's alignment depend on its own feedback matrices, or do fresh ones give the same?",
            scale,
            cases,
            _findings(by),
            tables=[Table("fresh", "Own and fresh feedback", _HEADS, rows, caption(scale, cases, note))],
            figures=[
                _figure(
                    by, caption(scale, cases, "Published deep cosine (l = 1..L) of each draw, at the same weights.")
                )
            ],
        )


def _findings(by: dict[float, list[Case]]) -> list[Finding]:
    with_it, without = (by[size] for size in NULL_PENALTIES)
    ends = [mean_interval(_draws(case)) for case in with_it]
    covers = unanimous(None if end is None else end[0] <= 0 <= end[1] for end in ends)
    shown = ", ".join("none" if end is None else f"[{end[0]:+.3f}, {end[1]:+.3f}]" for end in ends)
    return [
        Finding(
            "depends-on-own-b",
            f"Under λ = {NULL_PENALTIES[0]:g} DFA's deep cosine depends on its own B.",
            _all_outside(with_it, _published_null),
            _scores_text(with_it, _published_null),
        ),
        Finding(
            "fresh-b-gives-zero",
            f"Under λ = {NULL_PENALTIES[0]:g} fresh matrices give zero.",
            covers,
            f"95% intervals of the draws' mean, by seed: {shown}.",
        ),
        Finding(
            "any-b-without-penalty",
            "Without a penalty its deep cosine is that of any B.",
            not_(_all_outside(without, _published_null)),
            _scores_text(without, _published_null),
        ),
        Finding(
            "first-state-depends-on-own-b",
            "Without a penalty the cosine over all states that train a block, h_0 included, depends on its own B.",
            _all_outside(without, _deep_null),
            _scores_text(without, _deep_null),
        ),
    ]


_Null = Callable[[Case], Fresh | None]


def _all_outside(cases: Sequence[Case], null: _Null) -> bool | None:
    """Whether the mean cosine with the trained B is outside those with fresh ones in every seed; False where it is
    within the middle 95% of them in every seed; None otherwise."""
    return unanimous(_is_outside(_score(null(case)), case.report.thresholds.null_z) for case in cases)


def _is_outside(z: Number, limit: float) -> bool | None:
    if not z.ok or MIDDLE_95 <= abs(z.known) < limit:
        return None
    return abs(z.known) >= limit


def _scores_text(cases: Sequence[Case], null: _Null) -> str:
    limit = cases[0].report.thresholds.null_z
    each = ", ".join(_score(null(case)).short("+.1f") for case in cases)
    return f"z by seed: {each}; outside the draws from {limit:g}, among them under {MIDDLE_95:g}."


def _score(null: Fresh | None) -> Number:
    return _ABSENT if null is None else null.z


def _deep_null(case: Case) -> Fresh | None:
    return case.report.quantities.aggregates.deep_mean_fresh


def _published_null(case: Case) -> Fresh | None:
    """The published mean, l = 1..L, against fresh feedback."""
    layers = range(1, case.measurements.depth + 1)
    return fresh_of(
        case.report.quantities.aggregates.deep_mean_papers, case.measurements.get("null_fresh"), list(layers)
    )


def _draws(case: Case) -> Array:
    """The published mean under each fresh draw; empty where none was made."""
    drawn = case.measurements.get("null_fresh")
    return np.array([]) if drawn is None else drawn[1:].mean(axis=0)


def _rows(case: Case) -> list[tuple[Cell, ...]]:
    """Two rows of one run: over the deep layers, and over the layers that the papers include."""
    a = case.report.quantities.aggregates
    parts: list[tuple[str, Number, Fresh | None, Cell]] = [
        (f"deep: {', '.join(map(str, a.deep_layers))}", a.deep_mean, a.deep_mean_fresh, _cell(a.deep_mean_z, "+.1f")),
        (f"published: 1..{case.measurements.depth}", a.deep_mean_papers, _published_null(case), Cell(EMPTY_CELL)),
    ]
    return [
        (
            Cell(f"{penalty_of(case):g}", penalty_of(case)),
            Cell(str(case.seed)),
            Cell(name),
            _cell(cosine, "+.3f"),
            Cell("NOT MEASURED", None, _ABSENT.reason) if null is None else Cell(f"{null.mean:+.3f}", null.mean),
            Cell("NOT MEASURED", None, _ABSENT.reason) if null is None else Cell(f"{null.std:.3f}", null.std),
            Cell("0" if null is None else str(null.draws)),
            _cell(_score(null), "+.1f"),
            rotation,
        )
        for name, cosine, null, rotation in parts
    ]


def _cell(number: Number, spec: str) -> Cell:
    return Cell(number.short(spec), number.value, number.reason)


def _figure(by: dict[float, list[Case]], caption_text: str) -> Figure:
    plots = []
    for size, cases in by.items():
        drawn = [(place, float(value)) for place, case in enumerate(cases) for value in _draws(case)]
        own = [case.report.quantities.aggregates.deep_mean_papers.value for case in cases]
        series = (
            Series("fresh B", [place for place, _ in drawn], [value for _, value in drawn], "null", mark="points"),
            Series("own B", range(len(cases)), own, "DFA", mark="points"),
        )
        ticks = tuple(f"seed {case.seed}" for case in cases)
        title = f"λ = {size:g}"
        plots.append(Plot(title, "", "mean deep cosine", series, levels={"": 0.0}, ticks=ticks))
    scores = [
        f"{', '.join(_score(_published_null(case)).short('+.1f') for case in cases)} at λ = {size:g}"
        for size, cases in by.items()
    ]
    title = f"DFA's own B among fresh ones, z by seed: {'; '.join(scores)}"
    return Figure("draws", title, in_same_range(plots), caption_text)


STUDY = FreshBNull()

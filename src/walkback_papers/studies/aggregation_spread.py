"""Aggregation: how much does a network's reported alignment depend on how layers and samples are aggregated?

Papers: P1 section 4 and its draft (four aggregations of one network), P2 section 3.2; the exact top layer is ours
Claim: the same network's Γ differs several-fold between aggregations, and can have another sign
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from walkback.core.configuration import RunConfig
from walkback.judge.aggregates import Aggregates
from walkback.judge.number import Number
from walkback.report.cells import EMPTY_CELL, Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import AUDITED_METHODS, Scale
from walkback_papers.studies.cross_architecture import by_name
from walkback_papers.study import Study
from walkback_papers.tables import caption, make_study_report, mean_without_exact, numbers_cell, range_cell, unanimous

AGGREGATIONS = {
    "A1": "a1",
    "A2": "a2",
    "A3": "a3",
    "A4": "a4",
    "deep mean": "deep_mean",
    "deep mean, papers": "deep_mean_papers",
}
_FOUR = ("A1", "A2", "A3", "A4")
_MEANINGS = {
    "A1": "A1: mean over layers",
    "A2": "A2: one cosine over all layers",
    "A3": "A3: cosine of group means",
    "A4": "A4: weighted by ‖g_l‖",
    "deep mean": "states that train a block, without exact ones",
    "deep mean, papers": "as published: l = 1..L with exact ones",
}
"""What each aggregation is, as the figure says it."""
_NOTES = (
    "A1: mean over layers. A2: one cosine over all layers jointly. A3: of group means. A4: weighted by ‖g_l‖. "
    "Deep mean: states whose credit trains a block, without exact ones. Deep mean, papers: l = 1..L with exact ones.",
    "Ratio: largest over smallest absolute value of A1 to A4. Both signs: seeds in which A1 to A4 differ in sign.",
)
_SEVERAL = 2.5
"""The smallest ratio that the papers report for one DFA network."""


class AggregationSpread(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return scale.runs(AUDITED_METHODS)

    def judged(self, scale: Scale) -> list[RunConfig]:
        return []

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        found = by_name(results, self.runs(scale))
        cases = [case for each in found.values() for case in each]
        table_caption = caption(scale, cases)
        heads = ("method", *AGGREGATIONS, "ratio of A1–A4", "both signs")
        table = Table(
            "ways", "Γ by aggregation", heads, tuple(_row(n, c) for n, c in found.items()), table_caption, _NOTES
        )
        return make_study_report(
            "aggregation-spread",
            "Aggregation",
            "How much does a reported alignment depend on how it is aggregated?",
            scale,
            cases,
            _findings(found),
            tables=[table],
            figures=[
                _figure(found, caption(scale, cases, "Marks: means over seeds; lines: smallest to largest seed."))
            ],
        )


def aggregate(case: Case, name: str) -> Number:
    """One network's Γ by one of `AGGREGATIONS`."""
    number: Number = getattr(_aggregates(case), AGGREGATIONS[name])
    return number


def _aggregates(case: Case) -> Aggregates:
    return case.report.quantities.aggregates


def values(case: Case, names: Sequence[str] = _FOUR) -> list[float] | None:
    """One network's Γ by each of these aggregations; None where one is not usable."""
    found = [aggregate(case, name) for name in names]
    return [number.known for number in found] if all(number.ok for number in found) else None


def ratio(case: Case) -> float | None:
    """The largest absolute value of A1 to A4 over the smallest."""
    sizes = [abs(value) for value in values(case) or []]
    return max(sizes) / min(sizes) if sizes and min(sizes) > 0 else None


def both_signs(case: Case) -> bool | None:
    """Whether A1 to A4 have both signs."""
    found = values(case)
    return None if found is None else min(found) < 0 < max(found)


def ranking(found: Mapping[str, Sequence[Case]], name: str) -> tuple[str, ...] | None:
    """Methods from the largest Γ to the smallest by one aggregation, means over seeds; None where one is missing."""
    means = {}
    for method, cases in found.items():
        each = [aggregate(case, name) for case in cases]
        if not all(number.ok for number in each):
            return None
        means[method] = fmean(number.known for number in each)
    return tuple(sorted(means, key=lambda method: -means[method]))


def _row(method: str, cases: Sequence[Case]) -> tuple[Cell, ...]:
    signs = [both_signs(case) for case in cases]
    known = [sign for sign in signs if sign is not None]
    return (
        Cell(method),
        *(numbers_cell(cases, lambda case, n=name: aggregate(case, n), "+.3f") for name in AGGREGATIONS),  # type: ignore[misc]
        range_cell([ratio(case) for case in cases], ".3g"),
        Cell(f"{sum(known)} of {len(known)} seeds" if known else EMPTY_CELL),
    )


def _findings(found: Mapping[str, Sequence[Case]]) -> list[Finding]:
    learned = {name: cases for name, cases in found.items() if name != "BP"}
    ratios = [ratio(case) for case in found["DFA"]]
    wide = unanimous(None if value is None else value >= _SEVERAL for value in ratios)
    flips = [f"{name} s{case.seed}" for name, cases in learned.items() for case in cases if both_signs(case)]
    unusable = [n for n, cases in learned.items() if any(values(case) is None for case in cases)]
    known = [value for value in ratios if value is not None]
    details = "No seed has all four."
    if known:
        ends = [value for case in found["DFA"] for value in values(case) or ()]
        details = f"{min(known):.3g} to {max(known):.3g}-fold by seed; values {min(ends):+.3f} to {max(ends):+.3f}."
    signs = f"Both signs among A1 to A4: {', '.join(flips) or 'in no network'}"
    signs += f"; not all four can be used for {', '.join(unusable)}." if unusable else "."
    # One network with both signs proves the claim; refuting it needs usable values of every network.
    flipped = True if flips else None if unusable else False
    return [
        Finding(
            "dfa-depends-on-aggregation",
            f"DFA's Γ differs by {_SEVERAL:g}-fold or more between four aggregations.",
            wide,
            details,
        ),
        Finding("sign-depends-on-aggregation", "The aggregation can change the sign of Γ.", flipped, signs),
        _order(learned),
        _exact(found),
    ]


def _order(found: Mapping[str, Sequence[Case]]) -> Finding:
    orders = {name: order for name in _FOUR if (order := ranking(found, name)) is not None}
    distinct = dict.fromkeys(orders.values())
    details = "; ".join(f"{' > '.join(o)} ({', '.join(n for n in orders if orders[n] == o)})" for o in distinct)
    holds = len(distinct) > 1 if len(orders) > 1 else None
    return Finding(
        "order-depends-on-aggregation",
        "Which method is best aligned depends on the aggregation.",
        holds,
        f"{details or 'No order is known'}.",
    )


def _exact(found: Mapping[str, Sequence[Case]]) -> Finding:
    """FA's credit at h_L equals the gradient by construction; published deep means include it."""
    pairs = [(mean_without_exact(case.report.quantities), aggregate(case, "deep mean, papers")) for case in found["FA"]]
    known = [(without.known, whole.known) for without, whole in pairs if without.ok and whole.ok]
    holds = unanimous(whole > without for without, whole in known) if len(known) == len(pairs) else None
    details = ", ".join(f"{without:+.3f} without and {whole:+.3f} with it" for without, whole in known)
    return Finding(
        "fa-mean-includes-exact-layer",
        "Part of FA's published deep mean comes from the layer that is exact by construction.",
        holds,
        f"Over l = 1..L, by seed: {details or 'not measured'}.",
    )


def _figure(found: Mapping[str, Sequence[Case]], caption_text: str) -> Figure:
    names = [name for name in found if name != "BP"]

    def series(each: str) -> Series:
        rows = [[aggregate(case, each) for case in found[name]] for name in names]
        usable = [[n.known for n in row] if all(n.ok for n in row) else None for row in rows]
        return Series(
            _MEANINGS[each],
            range(len(names)),
            [None if row is None else fmean(row) for row in usable],
            low=[None if row is None else min(row) for row in usable],
            high=[None if row is None else max(row) for row in usable],
            mark="points",
        )

    def plot(title: str, aggregations: Sequence[str]) -> Plot:
        every = tuple(map(series, aggregations))
        return Plot(title, "", "Γ", every, levels={"": 0.0}, ticks=tuple(names), horizontal=True)

    deep = [each for each in AGGREGATIONS if each not in _FOUR]
    plots = (plot("Over all layers", _FOUR), plot("Over deep layers", deep))
    known = [value for case in found["DFA"] for value in values(case) or ()]
    title = "Alignment Γ of the same networks by aggregation"
    if known:
        title = f"Γ of the same DFA networks is {min(known):.2f} to {max(known):.2f}, by how it is aggregated"
    return Figure("ways", title, plots, caption_text, zoom=1.4)


STUDY = AggregationSpread()

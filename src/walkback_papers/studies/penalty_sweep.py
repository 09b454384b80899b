"""The penalty sweep: does a residual penalty relieve Mode 1, and does it restore the credit's alignment?

Papers: P1 table 2 and figure 3, P2 section 4.2, figure 6 and appendix A
Claim: a small penalty limits the scale and leaves the deep cosine at zero; a larger one raises the cosine too
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

from walkback.core.configuration import RunConfig
from walkback.judge.finite_steps import Functional, functional_papers
from walkback.judge.number import Number
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.plots import short_power
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    all_true,
    caption,
    claim_over_seeds,
    is_above,
    is_mode_1,
    is_within,
    make_study_report,
    margin_cell,
    mean_cell,
    method_label_of,
    not_,
    numbers_cell,
    penalty_of,
    range_cell,
    seed_interval,
    side_of_line,
    unanimous,
    verdict_cell,
    with_penalty,
)

SWEPT_PENALTIES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
_SMALL, STRONG = 1e-4, 1e-2
"""The λ at which the papers see Mode 1 relieved, and the λ at which the credit recovers as well."""
PENALTY_HEADS = (
    "method", "λ", "accuracy", "over frozen, pp", "deep cosine", "counting exact", "growth (D1)", "‖h_L‖", "‖g_L‖ @128",
    "three", "alignment",
)  # fmt: skip
_Swept = dict[str, dict[float, list[Case]]]
"""Cases by the method's name and λ."""


class PenaltySweep(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        methods = [with_penalty(METHODS[name], size) for name in ("DFA", "FA", "BP") for size in SWEPT_PENALTIES]
        return scale.runs(methods, epochs="short")

    def functional(self, scale: Scale) -> list[RunConfig]:
        return scale.runs([with_penalty(METHODS["DFA"], size) for size in SWEPT_PENALTIES], epochs="short")

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        cases = results.cases(self.runs(scale))
        swept: _Swept = {}
        for case in cases:
            swept.setdefault(method_label_of(case), {}).setdefault(penalty_of(case), []).append(case)
        note = (
            "Deep cosine: over the states whose credit trains a block, without exact ones; counting exact: l = 1..L, "
            "as published. Growth (D1) and norms: smallest to largest seed. Frozen "
            "baselines have no penalty, since their blocks are not trained."
        )
        rows = tuple(penalty_row(found, size) for by_penalty in swept.values() for size, found in by_penalty.items())
        return make_study_report(
            "penalty-sweep",
            "Residual penalty",
            "Does a residual penalty relieve Mode 1, and does it restore the credit's alignment?",
            scale,
            cases,
            _findings(swept),
            tables=[
                Table("sweep", "Residual penalty", PENALTY_HEADS, rows, caption(scale, cases, note)),
                _finite_steps_table(swept["DFA"], scale),
            ],
            figures=[_figure(swept, caption(scale, cases, "Points: means over seeds; bars: smallest to largest."))],
        )


def penalty_row(cases: Sequence[Case], size: float) -> tuple[Cell, ...]:
    """One method at one λ over its seeds."""
    first = cases[0].report
    return (
        Cell(method_label_of(cases[0])),
        Cell(f"{size:g}", size),
        mean_cell([case.accuracy for case in cases], ".3f"),
        margin_cell(first.margin, first.flags["D3"].reason),
        numbers_cell(cases, lambda case: case.report.quantities.aggregates.deep_mean, "+.3f"),
        numbers_cell(cases, lambda case: case.report.quantities.aggregates.deep_mean_papers, "+.3f"),
        range_cell([case.report.flags["D1"].value for case in cases]),
        range_cell([_hidden(case) for case in cases]),
        range_cell([case.report.flags["D2"].value for case in cases]),
        verdict_cell(cases, "three"),
        Cell(claim_over_seeds(cases, "alignment").shown),
    )


def _finite_steps_table(by_penalty: dict[float, list[Case]], scale: Scale) -> Table:
    """Perturbation correlations of DFA's credit at every λ."""
    rows = tuple(
        (
            Cell(f"{size:g}", size),
            numbers_cell(cases, _published, "+.3f"),
            numbers_cell(cases, lambda case: _finite_steps(case).rho.mean, "+.3f"),
            numbers_cell(cases, lambda case: _finite_steps(case).rho_gradient.mean, "+.3f"),
        )
        for size, cases in by_penalty.items()
    )
    words = caption(
        scale,
        [case for cases in by_penalty.values() for case in cases],
        "Cosine and perturbation correlation ρ over l = 1..L, as published; true gradient: its control.",
    )
    heads = ("λ", "cosine, l = 1..L", "ρ, l = 1..L", "ρ of the true gradient")
    return Table("finite", "Finite steps along DFA's credit", heads, rows, words)


def _findings(swept: _Swept) -> list[Finding]:
    """The papers' claims about DFA and FA under the penalty."""
    dfa, fa = swept["DFA"], swept["FA"]
    at_zero, at_small = is_mode_1(dfa[0.0]), is_mode_1(dfa[_SMALL])
    words = {
        True: "fail in every seed",
        False: "do not both fail in any seed",
        None: "both fail in some seeds or unknown",
    }
    small = dfa[0.0][0].report.thresholds.small_alignment
    is_large_at_small, is_large = (_exceeds(dfa[size], small) for size in (_SMALL, STRONG))
    norms = " → ".join(range_cell([_hidden(case) for case in cases], ".1e").text for cases in dfa.values())
    fa_modes = [is_mode_1(cases) for cases in fa.values()]
    fa_text = ", ".join(f"{words[found]} at λ = {size:g}" for size, found in zip(fa, fa_modes, strict=True))
    line = dfa[0.0][0].report.thresholds.frozen_acc_margin_pp
    judged = "; ".join(
        f"λ = {size:g}: {margin_cell(cases[0].report.margin).text} pp, {verdict_cell(cases, 'three').text}"
        for size, cases in dfa.items()
        if size
    )
    return [
        Finding(
            "penalty-shrinks-stream",
            "Every penalty makes DFA's residual stream smaller than without one.",
            _always_smaller(dfa),
            f"‖h_L‖ over λ: {norms}.",
        ),
        Finding(
            "larger-penalty-smaller-stream",
            "Each larger λ leaves a smaller ‖h_L‖.",
            _decreases(dfa),
            "Decided by the means over seeds at every step of λ.",
        ),
        Finding(
            "small-penalty-relieves-mode-1",
            f"λ = {_SMALL:g} relieves DFA's Mode 1.",
            not_(at_small) if at_zero else None,
            f"D1 and D2 at λ = 0: {words[at_zero]}; at {_SMALL:g}: {words[at_small]}.",
        ),
        Finding(
            "small-penalty-cosine-small",
            f"At λ = {_SMALL:g} DFA's published deep cosine, over l = 1..L, is still under {small:g}.",
            not_(is_large_at_small),
            f"{_cosine_text(dfa[_SMALL], _published)}; without penalty {_cosine_text(dfa[0.0], _published)}.",
        ),
        Finding(
            "strong-penalty-cosine-large",
            f"At λ = {STRONG:g} it is above {small:g}.",
            is_large,
            f"{_cosine_text(dfa[STRONG], _published)}.",
        ),
        Finding(
            "finite-steps-agree",
            f"Finite steps agree: DFA's ρ over l = 1..L is under {small:g} either way at λ = {_SMALL:g}, above it at "
            f"{STRONG:g}.",
            all_true(
                [
                    unanimous(is_within(_finite_steps(case).rho.interval, small) for case in dfa[_SMALL]),
                    unanimous(side_of_line(_finite_steps(case).rho.interval, small) for case in dfa[STRONG]),
                ]
            ),
            f"ρ {_rho_text(dfa[_SMALL])} and {_rho_text(dfa[STRONG])}; decided by intervals over samples, by seed.",
        ),
        Finding(
            "fa-not-mode-1",
            "FA needs no penalty: it is not in Mode 1 at any λ.",
            all_true(not_(found) for found in fa_modes),
            "D1 and D2: do not both fail in any seed at any λ."
            if set(fa_modes) == {False}
            else f"D1 and D2: {fa_text}.",
        ),
        Finding(
            "dfa-never-trustworthy",
            f"No penalty makes DFA trustworthy: it is in Mode 1, or its margin over frozen blocks is under {line:g}.",
            all_true(_is_walked_back(cases) for size, cases in dfa.items() if size),
            f"{judged}. Decided by the margins' 95% intervals.",
        ),
        Finding(
            "first-state-aligned",
            f"Over the states whose credit trains a block, h_0 included, DFA's cosine is above {small:g} at every λ.",
            all_true(
                side_of_line(seed_interval([_deep(case).value for case in cases]), small) for cases in dfa.values()
            ),
            "; ".join(f"λ = {size:g}: {_cosine_text(cases, _deep)}" for size, cases in dfa.items()) + ".",
        ),
    ]


def _exceeds(cases: Sequence[Case], line: float) -> bool | None:
    """Whether the mean published deep cosine over seeds is above the line, as far as its interval decides."""
    return side_of_line(seed_interval([_published(case).value for case in cases]), line)


def _cosine_text(cases: Sequence[Case], get: Callable[[Case], Number]) -> str:
    """A cosine over seeds with its interval, as text."""
    ends = seed_interval([get(case).value for case in cases])
    shown = "" if ends is None else f", 95% interval [{ends[0]:+.3f}, {ends[1]:+.3f}]"
    return f"{numbers_cell(cases, get, '+.3f').text}{shown}"


def _is_walked_back(cases: Sequence[Case]) -> bool | None:
    """Whether a method is walked back, where the margin's interval decides: the verdict compares its mean alone."""
    first = cases[0].report
    if is_mode_1(cases):
        return True
    return not_(is_above(first.margin, first.thresholds.frozen_acc_margin_pp))


def _always_smaller(by_penalty: dict[float, list[Case]]) -> bool | None:
    """Whether every λ leaves a smaller ‖h_L‖ than none does, in each seed."""
    free = {case.seed: _hidden(case) for case in by_penalty[0.0]}
    pairs = [(free[case.seed], _hidden(case)) for size, cases in by_penalty.items() if size for case in cases]
    if any(before is None or after is None for before, after in pairs):
        return None
    return all(after < before for before, after in pairs)  # type: ignore[operator]


def _decreases(by_penalty: dict[float, list[Case]]) -> bool | None:
    """Whether the mean ‖h_L‖ falls at every step of λ."""
    means = []
    for size in sorted(by_penalty):
        known = [value for case in by_penalty[size] if (value := _hidden(case)) is not None]
        if len(known) < len(by_penalty[size]):
            return None
        means.append(fmean(known))
    return all(after < before for before, after in pairwise(means))


def _finite_steps(case: Case) -> Functional:
    return functional_papers(case.functional)


def _rho_text(cases: Sequence[Case]) -> str:
    return numbers_cell(cases, lambda case: _finite_steps(case).rho.mean, "+.3f").text


def _hidden(case: Case) -> float | None:
    return case.report.quantities.top.hidden_norm.value


def _deep(case: Case) -> Number:
    return case.report.quantities.aggregates.deep_mean


def _figure(swept: _Swept, words: str) -> Figure:
    """Six quantities over λ; λ = 0 is drawn apart, since the axis is logarithmic."""
    places = {0.0: 0.0} | {size: 2.0 + index for index, size in enumerate(SWEPT_PENALTIES[1:])}
    ticks = ("0", "", *map(short_power, SWEPT_PENALTIES[1:]))

    def curves(get: Callable[[Case], float | None]) -> tuple[Series, ...]:
        found = []
        for name, by_penalty in swept.items():
            for mark, sizes in (("both", SWEPT_PENALTIES[1:]), ("points", SWEPT_PENALTIES[:1])):
                values = [[get(case) for case in by_penalty[size]] for size in sizes]
                whole = [[value for value in each if value is not None] for each in values]
                known = [each if len(each) == len(given) else [] for each, given in zip(whole, values, strict=True)]
                found.append(
                    Series(
                        name,
                        [places[size] for size in sizes],
                        [fmean(each) if each else None for each in known],
                        low=[min(each, default=None) for each in known],
                        high=[max(each, default=None) for each in known],
                        mark="both" if mark == "both" else "points",
                    )
                )
        return tuple(found)

    def plot(title: str, y_label: str, get: Callable[[Case], float | None], log: bool, **levels: float) -> Plot:
        named = {name.replace("_", " "): level for name, level in levels.items()}
        return Plot(title, "λ", y_label, curves(get), y_log=log, levels=named, ticks=ticks, breaks=(1.0,))

    t = next(iter(swept["DFA"].values()))[0].report.thresholds
    plots = (
        plot("Accuracy", "test accuracy", lambda case: case.accuracy, log=False),
        plot("Growth (D1)", "largest ‖h_l+1‖ / ‖h_l‖", _flag("D1"), log=True, D1_limit=t.h_norm_explosion_ratio),
        plot("Hidden norm", "‖h_L‖", _hidden, log=True),
        plot("Reference gradient", "‖g_L‖ @128", _flag("D2"), log=True, D2_floor=t.g_norm_floor),
        plot("Deep cosine", "without exact layers", lambda case: _deep(case).value, log=False),
        plot("Deep cosine as published", "l = 1..L", lambda case: _published(case).value, log=False),
    )
    smallest = SWEPT_PENALTIES[1]
    before, after = (_mean_growth(swept["DFA"][size]) for size in (0.0, smallest))
    title = "The residual penalty at every size"
    if before is not None and after is not None:
        title = f"Growth under DFA: {before:,.3g}× without the penalty, {after:,.3g}× with λ = {short_power(smallest)}"
    return Figure("penalty", title, plots, words, columns=3)


def _mean_growth(cases: Sequence[Case]) -> float | None:
    values = [_flag("D1")(case) for case in cases]
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _flag(name: str) -> Callable[[Case], float | None]:
    return lambda case: case.report.flags[name].value


def _published(case: Case) -> Number:
    """The mean cosine over l = 1..L."""
    return case.report.quantities.aggregates.deep_mean_papers


STUDY = PenaltySweep()

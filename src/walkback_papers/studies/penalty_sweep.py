"""The penalty sweep: what does a residual penalty take away of Mode 1, and what does it give back of the credit?

Papers: P1 table 2 and figure 3, P2 section 4.2, figure 6 and appendix A
Claim: a small penalty contains the scale and leaves the deep cosine at zero; a larger one lifts the cosine too
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

from walkback.core.configuration import RunConfig
from walkback.judge.finite_steps import Functional, functional_deep
from walkback.judge.number import Number
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    all_true,
    caption,
    claim_over_seeds,
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
"""Where the papers see Mode 1 relieved alone, and the credit recovered as well."""
PENALTY_HEADS = (
    "method", "λ", "accuracy", "over its shell, pp", "deep cosine", "counting exact", "growth", "‖h_L‖", "‖g_L‖ @128",
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
            "as published. Growth and norms: smallest to largest seed. Shells have no penalty: their blocks are frozen."
        )
        rows = tuple(penalty_row(found, size) for by in swept.values() for size, found in by.items())
        return make_study_report(
            "penalty-sweep",
            "Residual penalty",
            "What does a residual penalty take away of Mode 1, and what does it give back of the credit?",
            scale,
            cases,
            _findings(swept),
            tables=[
                Table("sweep", "Residual penalty", PENALTY_HEADS, rows, caption(scale, cases, note)),
                _finite(swept["DFA"], scale),
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


def _finite(by: dict[float, list[Case]], scale: Scale) -> Table:
    """What finite steps say of DFA's credit at every λ."""
    rows = tuple(
        (
            Cell(f"{size:g}", size),
            numbers_cell(cases, _deep, "+.3f"),
            numbers_cell(cases, lambda case: _steps(case).rho.mean, "+.3f"),
            numbers_cell(cases, lambda case: _steps(case).rho_gradient.mean, "+.3f"),
        )
        for size, cases in by.items()
    )
    words = caption(
        scale,
        [case for cases in by.values() for case in cases],
        "Perturbation correlation ρ, over the states whose credit trains a block; true gradient: its control.",
    )
    heads = ("λ", "deep cosine", "deep ρ", "ρ of the true gradient")
    return Table("finite", "Finite steps along DFA's credit", heads, rows, words)


def _findings(swept: _Swept) -> list[Finding]:
    """What the papers claim of DFA and FA under the penalty."""
    dfa, fa = swept["DFA"], swept["FA"]
    at_zero, at_small = is_mode_1(dfa[0.0]), is_mode_1(dfa[_SMALL])
    words = {True: "raised in every seed", False: "raised in no seed", None: "raised in some seeds or unknown"}
    small = dfa[0.0][0].report.thresholds.small_alignment
    stays, rises = (_exceeds(dfa[size], small) for size in (_SMALL, STRONG))
    sizes = " → ".join(range_cell([_hidden(case) for case in cases], ".1e").text for cases in dfa.values())
    fa_modes = [is_mode_1(cases) for cases in fa.values()]
    said = ", ".join(f"{words[found]} at λ = {size:g}" for size, found in zip(fa, fa_modes, strict=True))
    verdicts = [_outcome(cases) for size, cases in dfa.items() if size]
    judged = "; ".join(f"λ = {size:g}: {verdict_cell(cases, 'three').text}" for size, cases in dfa.items())
    return [
        Finding("Every penalty contains DFA's residual stream.", _contains(dfa), f"‖h_L‖ over λ: {sizes}."),
        Finding(
            "It does so dose by dose: each larger λ leaves a smaller ‖h_L‖.",
            _falls(dfa),
            "Decided by the means over seeds at every step of λ.",
        ),
        Finding(
            f"λ = {_SMALL:g} relieves DFA's Mode 1.",
            not_(at_small) if at_zero else None,
            f"D1 and D2 at λ = 0: {words[at_zero]}; at {_SMALL:g}: {words[at_small]}.",
        ),
        Finding(
            f"At λ = {_SMALL:g} DFA's deep cosine is still under {small:g}.",
            not_(stays),
            f"{_cosine(dfa[_SMALL])}; without penalty {_cosine(dfa[0.0])}.",
        ),
        Finding(f"At λ = {STRONG:g} it is above {small:g}.", rises, f"{_cosine(dfa[STRONG])}."),
        Finding(
            f"Finite steps say the same: DFA's deep ρ is under {small:g} either way at λ = {_SMALL:g}, above it at "
            f"{STRONG:g}.",
            all_true(
                [
                    unanimous(is_within(_steps(case).rho.interval, small) for case in dfa[_SMALL]),
                    unanimous(side_of_line(_steps(case).rho.interval, small) for case in dfa[STRONG]),
                ]
            ),
            f"ρ {_rho(dfa[_SMALL])} and {_rho(dfa[STRONG])}; decided by intervals over samples, seed by seed.",
        ),
        Finding(
            "FA needs no penalty: it raises Mode 1 at no λ.",
            all_true(not_(found) for found in fa_modes),
            "D1 and D2: raised in no seed at any λ." if set(fa_modes) == {False} else f"D1 and D2: {said}.",
        ),
        Finding(
            "No penalty makes DFA trustworthy.",
            all_true({"walked_back": True, "trustworthy": False}.get(found) for found in verdicts),
            f"{judged}.",
        ),
    ]


def _exceeds(cases: Sequence[Case], line: float) -> bool | None:
    """Whether the mean deep cosine over seeds is above the line, as far as its interval can tell."""
    return side_of_line(seed_interval([_deep(case).value for case in cases]), line)


def _cosine(cases: Sequence[Case]) -> str:
    """The deep cosine over seeds with its interval, and how far it is from a random rotation in each."""
    ends = seed_interval([_deep(case).value for case in cases])
    shown = "" if ends is None else f", 95% interval [{ends[0]:+.3f}, {ends[1]:+.3f}]"
    scores = ", ".join(case.report.quantities.aggregates.deep_mean_z.short("+.1f") for case in cases)
    return f"{numbers_cell(cases, _deep, '+.3f').text}{shown}, z {scores}"


def _outcome(cases: Sequence[Case]) -> str:
    """What all seeds' verdicts say, or `mixed`."""
    found = {case.report.verdicts["three"].outcome for case in cases}
    return found.pop() if len(found) == 1 else "mixed"


def _contains(by: dict[float, list[Case]]) -> bool | None:
    """Whether every λ leaves a smaller ‖h_L‖ than none does, in each seed."""
    free = {case.seed: _hidden(case) for case in by[0.0]}
    pairs = [(free[case.seed], _hidden(case)) for size, cases in by.items() if size for case in cases]
    if any(before is None or after is None for before, after in pairs):
        return None
    return all(after < before for before, after in pairs)  # type: ignore[operator]


def _falls(by: dict[float, list[Case]]) -> bool | None:
    """Whether the mean ‖h_L‖ falls at every step of λ."""
    means = []
    for size in sorted(by):
        known = [value for case in by[size] if (value := _hidden(case)) is not None]
        if len(known) < len(by[size]):
            return None
        means.append(fmean(known))
    return all(after < before for before, after in pairwise(means))


def _steps(case: Case) -> Functional:
    return functional_deep(case.functional)


def _rho(cases: Sequence[Case]) -> str:
    return numbers_cell(cases, lambda case: _steps(case).rho.mean, "+.3f").text


def _hidden(case: Case) -> float | None:
    return case.report.quantities.top.hidden_norm.value


def _deep(case: Case) -> Number:
    return case.report.quantities.aggregates.deep_mean


def _figure(swept: _Swept, words: str) -> Figure:
    """Everything over λ; λ = 0 has no place on a logarithmic axis and stands apart."""
    places = {0.0: 0.0} | {size: 2.0 + index for index, size in enumerate(SWEPT_PENALTIES[1:])}
    ticks = ("0", "", *(f"{size:g}" for size in SWEPT_PENALTIES[1:]))

    def curves(get: Callable[[Case], float | None]) -> tuple[Series, ...]:
        found = []
        for name, by in swept.items():
            for mark, sizes in (("both", SWEPT_PENALTIES[1:]), ("points", SWEPT_PENALTIES[:1])):
                values = [[get(case) for case in by[size]] for size in sizes]
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
        return Plot(title, "λ", y_label, curves(get), y_log=log, levels=named, ticks=ticks)

    t = next(iter(swept["DFA"].values()))[0].report.thresholds
    plots = (
        plot("Accuracy", "test accuracy", lambda case: case.accuracy, log=False),
        plot("Growth", "largest ‖h_l+1‖ / ‖h_l‖", _flag("D1"), log=True, D1_limit=t.h_norm_explosion_ratio),
        plot("Hidden norm", "‖h_L‖", _hidden, log=True),
        plot("Reference gradient", "‖g_L‖ @128", _flag("D2"), log=True, D2_floor=t.g_norm_floor),
        plot("Deep cosine", "without exact layers", lambda case: _deep(case).value, log=False),
        plot("Deep cosine as published", "exact layers counted", _published, log=False),
    )
    return Figure("penalty", "The residual penalty at every size", plots, words, columns=3)


def _flag(name: str) -> Callable[[Case], float | None]:
    return lambda case: case.report.flags[name].value


def _published(case: Case) -> float | None:
    return case.report.quantities.aggregates.deep_mean_papers.value


STUDY = PenaltySweep()

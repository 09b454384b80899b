"""The unstated recipe: which conclusions depend on a part of it that the papers do not state?

Papers: ours; the parts are those of methods.md, section 5, which were fitted to published figures
Claim: verdicts and modes of the papers' methods stay what they are under every variant of one unstated part
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from walkback.core.configuration import RunConfig
from walkback.judge.evidence import BP_SHELL, METHOD_SHELL
from walkback.judge.report import DiagnosticReport
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.plots import series_of
from walkback_papers.results import Case, Results
from walkback_papers.scale import Scale
from walkback_papers.studies.null_choice import under
from walkback_papers.study import Study
from walkback_papers.tables import (
    all_true,
    caption,
    combined_finding,
    depth_fails,
    is_mode_1,
    make_study_report,
    margin_cell,
    mean_cell,
    not_,
    numbers_cell,
    range_cell,
    seed_interval,
    side_of_line,
    verdict_cell_of_reports,
)
from walkback_papers.variants import (
    BRIDGES,
    RECIPE,
    SIZE,
    VARIANT_PENALTY,
    VIT_VARIANT,
    Variant,
    methods_of_variant,
    variants,
)

UNTOUCHED = "–"


@dataclass(frozen=True)
class _Found:
    """One method in one row, over its seeds."""

    cases: Sequence[Case]

    @cached_property
    def reports(self) -> dict[str, list[DiagnosticReport]]:
        """By the null that decides."""
        return {null: [under(case.report, null) for case in self.cases] for null in (METHOD_SHELL, BP_SHELL)}

    def verdict(self, null: str = METHOD_SHELL) -> Cell:
        """The worst of the seeds' verdicts."""
        return verdict_cell_of_reports(self.reports[null], "three")

    def decided(self, null: str = METHOD_SHELL) -> str | None:
        """The verdict that all seeds share; None where they differ or it is open."""
        found = {report.verdicts["three"].outcome for report in self.reports[null]}
        return found.pop() if len(found) == 1 and "inconclusive" not in found else None

    def outcome_is(self, outcome: str) -> bool | None:
        found = self.decided()
        return None if found is None else found == outcome

    def cosine_is_large(self) -> bool | None:
        """Whether the deep cosine is above what counts as small, as far as its interval tells."""
        return side_of_line(seed_interval(_deeps(self.cases)), self.cases[0].report.thresholds.small_alignment)


Told = dict[str, dict[str, _Found]]
"""By the variant's name and the method's."""


class Sensitivity(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return [config for each in variants(scale) for name in each.methods for config in each.runs(scale, name)]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        rows = variants(scale)
        told: Told = {
            row.name: {name: _Found(results.cases(row.runs(scale, name))) for name in row.methods} for row in rows
        }
        cases = [case for methods in told.values() for found in methods.values() for case in found.cases]
        of_recipe = [case for found in told[RECIPE].values() for case in found.cases]
        note = f"Each row changes what it names of its base ({_bases(rows)}); {UNTOUCHED}: not touched or left out."
        if VIT_VARIANT not in told:
            note += " At scale paper crops, the ViT's tokens and more sizes of B are varied too."
        words = caption(scale, of_recipe, note)
        flips = "Flips: methods whose verdict is another than under the base, in every seed; ?: seeds differ."
        return make_study_report(
            "sensitivity",
            "The unstated recipe",
            "Which conclusions depend on a part of the recipe that the papers do not state?",
            scale,
            cases,
            _findings(rows, told),
            tables=[
                _verdicts(rows, told, f"{words} Edition three, the worst verdict of the seeds. {flips}"),
                _conclusions(rows, told, f"{words} Yes or no: in every seed, or by the 95% interval over seeds."),
                *(_numbers(name, rows, told, words) for name in methods_of_variant(rows)),
            ],
            figures=[_figure(rows, told, f"{words} Points: means over seeds; bars: smallest to largest.")],
        )


def _bases(rows: Sequence[Variant]) -> str:
    return ", ".join(row.name for row in rows if row.is_base)


@dataclass(frozen=True)
class _Conclusion:
    """Something the papers say of a method at the recipe."""

    head: str
    method: str
    claim: str
    answer: Callable[[_Found], bool | None]


CONCLUSIONS = (
    _Conclusion("BP trustworthy", "BP", "Backprop is trustworthy", lambda f: f.outcome_is("trustworthy")),
    _Conclusion("DFA walked back", "DFA", "DFA is walked back", lambda f: f.outcome_is("walked_back")),
    _Conclusion("DFA in Mode 1", "DFA", "DFA raises Mode 1 (D1 and D2)", lambda f: is_mode_1(f.cases)),
    _Conclusion(
        "DFA's depth fails",
        "DFA",
        "DFA's trained blocks do not beat their own frozen ones",
        lambda f: depth_fails(f.cases),
    ),
    _Conclusion(
        "DFA's cosine small", "DFA", "DFA's deep cosine is below {small:g}", lambda f: not_(f.cosine_is_large())
    ),
    _Conclusion("FA not in Mode 1", "FA", "FA does not raise Mode 1", lambda f: not_(is_mode_1(f.cases))),
    _Conclusion(
        "FA's depth helps",
        "FA",
        "FA's trained blocks beat their own frozen ones",
        lambda f: not_(depth_fails(f.cases)),
    ),
)
"""Of the recipe's family: under a penalty and on another network the papers conclude other things."""


def _findings(rows: Sequence[Variant], told: Told) -> list[Finding]:
    small = _thresholds(told).small_alignment
    found = [
        combined_finding(
            f"{each.claim.format(small=small)} under every variant of the recipe.", _answers(each, rows, told)
        )
        for each in CONCLUSIONS
    ]
    found += [_no_flip(name, rows, told) for name in methods_of_variant(rows)]
    sizes = [row for row in rows if row.family == RECIPE and row.name.startswith("B ")]
    hidden = {f"{row.name} ({name})": not_(_flip(name, row, told)) for row in sizes for name in row.methods}
    found.append(combined_finding("Without a penalty the size of B changes no verdict: AdamW hides it.", hidden))
    return [*found, *_of_penalty(rows, told), _of_nulls(rows, told)]


def _answers(each: _Conclusion, rows: Sequence[Variant], told: Told) -> dict[str, bool | None]:
    """By variant of the recipe, the recipe itself among them."""
    return {
        row.name: each.answer(told[row.name][each.method])
        for row in rows
        if row.family == RECIPE and each.method in row.methods
    }


def _flip(method: str, row: Variant, told: Told) -> bool | None:
    """Whether all seeds' verdict is another than under the base; None where one of the two is not decided."""
    ours, theirs = (told[name][method].decided() for name in (row.name, row.family))
    return None if ours is None or theirs is None else ours != theirs


def _no_flip(method: str, rows: Sequence[Variant], told: Told) -> Finding:
    changed = [row for row in rows if not row.is_base and method in row.methods]
    answers = {row.name: _flip(method, row, told) for row in changed}
    flips = [
        f"{row.name}: from {told[row.family][method].verdict().text} to {told[row.name][method].verdict().text}"
        for row in changed
        if answers[row.name]
    ]
    same, unsure = ([name for name, answer in answers.items() if answer is what] for what in (False, None))
    said = [f"Flips: {'; '.join(flips)}."] if flips else []
    said += [f"Open (seeds differ, or inconclusive): {', '.join(unsure)}."] if unsure else []
    said += [f"The same under: {', '.join(same)}."] if same else []
    return Finding(f"No unstated part flips {method}'s verdict.", all_true(map(not_, answers.values())), " ".join(said))


def _of_penalty(rows: Sequence[Variant], told: Told) -> list[Finding]:
    """What the penalty does to DFA hangs on how it is summed and, as it weighs f against a, on B's size."""
    of_dfa = {row.name: told[row.name]["DFA"] for row in rows if row.family == VARIANT_PENALTY and "DFA" in row.methods}
    before, line = is_mode_1(told[RECIPE]["DFA"].cases), _thresholds(told).small_alignment
    relieved = {name: not_(is_mode_1(found.cases)) if before else None for name, found in of_dfa.items()}
    lifted = {name: found.cosine_is_large() for name, found in of_dfa.items()}
    return [
        combined_finding(
            f"A penalty of {SIZE:g} relieves DFA's Mode 1 however it is summed and B is scaled.", relieved
        ),
        combined_finding(f"It lifts DFA's deep cosine above {line:g} however it is summed and B is scaled.", lifted),
    ]


def _of_nulls(rows: Sequence[Variant], told: Told) -> Finding:
    answers: dict[str, bool | None] = {}
    for row in rows:
        for name in row.methods:
            if name in ("FA", "DFA"):
                ends = [told[row.name][name].decided(null) for null in (METHOD_SHELL, BP_SHELL)]
                answers[f"{row.name} ({name})"] = None if None in ends else ends[0] == ends[1]
    return combined_finding(
        "FA's and DFA's verdicts are the same against their own shell and against backprop's.", answers
    )


def _thresholds(told: Told) -> DiagnosticThresholds:
    return told[RECIPE]["DFA"].cases[0].report.thresholds


def _verdicts(rows: Sequence[Variant], told: Told, words: str) -> Table:
    columns = {
        "BP": ("BP", METHOD_SHELL),
        "FA": ("FA", METHOD_SHELL),
        "FA, bp shell": ("FA", BP_SHELL),
        "DFA": ("DFA", METHOD_SHELL),
        "DFA, bp shell": ("DFA", BP_SHELL),
    } | {name: (name, METHOD_SHELL) for name in methods_of_variant(rows) if name in BRIDGES}
    lines = tuple(
        (
            Cell(row.name),
            *(
                told[row.name][name].verdict(null) if name in row.methods else Cell(UNTOUCHED)
                for name, null in columns.values()
            ),
            Cell(UNTOUCHED if row.is_base else _flips(row, told)),
        )
        for row in rows
    )
    return Table("verdicts", "Verdicts by variant", ("variant", *columns, "flips"), lines, words)


def _flips(row: Variant, told: Told) -> str:
    marks = {True: "", None: "?"}
    answers = {name: _flip(name, row, told) for name in row.methods}
    return ", ".join(f"{name}{marks[a]}" for name, a in answers.items() if a is not False) or "none"


def _conclusions(rows: Sequence[Variant], told: Told, words: str) -> Table:
    shown = {True: "yes", False: "no", None: "open"}
    answers = [_answers(each, rows, told) for each in CONCLUSIONS]
    lines = tuple(
        (Cell(row.name), *(Cell(shown[found[row.name]]) if row.name in found else Cell(UNTOUCHED) for found in answers))
        for row in rows
        if row.family == RECIPE
    )
    heads = ("variant", *(each.head for each in CONCLUSIONS))
    return Table("conclusions", "Conclusions by variant of the recipe", heads, lines, words)


def _numbers(name: str, rows: Sequence[Variant], told: Told, words: str) -> Table:
    heads = (
        "variant", "accuracy", "over own shell, pp", "over bp shell, pp", "growth", "‖g_L‖ @128", "deep cosine", "three"
    )  # fmt: skip
    lines = tuple(_row(row.name, told[row.name][name]) for row in rows if name in row.methods)
    said = "Margins paired by seed, with 95% t intervals. Growth and ‖g_L‖: smallest to largest seed."
    return Table(name.lower().replace(" ", "-"), f"{name} by variant", heads, lines, f"{words} {said}")


def _row(name: str, found: _Found) -> tuple[Cell, ...]:
    cases = found.cases
    evidence = cases[0].report.evidence
    return (
        Cell(name),
        mean_cell([case.accuracy for case in cases], ".3f"),
        *(margin_cell(evidence.margin(null)) for null in (METHOD_SHELL, BP_SHELL)),
        *(range_cell([case.report.flags[check].value for case in cases]) for check in ("D1", "D2")),
        numbers_cell(cases, lambda case: case.report.quantities.aggregates.deep_mean, "+.3f"),
        found.verdict(),
    )


Values = Callable[[Sequence[Case]], Sequence[float | None]]
"""A number of each seed."""


def _figure(rows: Sequence[Variant], told: Told, words: str) -> Figure:
    """A row of plots for each number: the recipe's variants on the left, the other families' on the right."""

    def dots(name: str, part: Sequence[Variant], get: Values) -> Series:
        places = [place for place, row in enumerate(part) if name in row.methods]
        values = [get(told[part[place].name][name].cases) for place in places]
        whole = [[v for v in column if v is not None] if None not in column else [] for column in values]
        return replace(series_of(name, places, whole), mark="points")

    def plot(
        part: Sequence[Variant], title: str, y_label: str, get: Values, levels: Mapping[str, float], log: bool = False
    ) -> Plot:
        series = tuple(dots(name, part, get) for name in methods_of_variant(part))
        return Plot(title, "", y_label, series, y_log=log, levels=levels, ticks=tuple(row.name for row in part))

    t = _thresholds(told)
    own = [row for row in rows if row.family == RECIPE]
    parts = (own, [row for row in rows if row not in own])
    growth, grad = "largest ‖h_l+1‖ / ‖h_l‖", "‖g_L‖ @128"
    plots = (
        *(plot(part, "Over its own shell", "pp", _margins, {"D3 margin": t.frozen_acc_margin_pp}) for part in parts),
        *(plot(part, "Growth", growth, _flag("D1"), {"D1 limit": t.h_norm_explosion_ratio}, True) for part in parts),
        *(plot(part, "Reference gradient", grad, _flag("D2"), {"D2 floor": t.g_norm_floor}, True) for part in parts),
        *(plot(part, "Deep cosine", "without exact layers", _deeps, {"small": t.small_alignment}) for part in parts),
    )
    return Figure("variants", "One unstated part at a time", plots, words)


def _margins(cases: Sequence[Case]) -> Sequence[float | None]:
    """Of each seed, in percentage points."""
    evidence = cases[0].report.evidence
    shells = evidence.frozen.get(METHOD_SHELL)
    if not shells or len(shells) != len(evidence.headline_acc):
        return [None]
    return [100 * (ours - frozen) for ours, frozen in zip(evidence.headline_acc, shells, strict=True)]


def _flag(check: str) -> Values:
    return lambda cases: [case.report.flags[check].value for case in cases]


def _deeps(cases: Sequence[Case]) -> Sequence[float | None]:
    return [case.report.quantities.aggregates.deep_mean.value for case in cases]


STUDY = Sensitivity()

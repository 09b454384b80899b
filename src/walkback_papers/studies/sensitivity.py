"""The unstated recipe: which conclusions depend on a part of the training recipe that the papers do not state?

Papers: ours; the parts are those of methods.md, section 5, which were fitted to published figures
Claim: verdicts and modes of the papers' methods are the same under every variant of one unstated part
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
from walkback_papers.studies.null_choice import judge_against
from walkback_papers.study import Study
from walkback_papers.tables import (
    all_true,
    caption,
    combined_finding,
    depth_fails,
    is_mode_1,
    kebab,
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
    PENALTY_SIZE,
    RECIPE,
    VARIANT_PENALTY,
    VIT_VARIANT,
    Variant,
    methods_of_variant,
    variants,
)

NOT_VARIED = "–"
_FIGURE_NOTE = (
    "Points: means over seeds; bars: smallest to largest. Raw error: not scaled to length 1; logits − y: without the "
    "softmax; site output: a block's credit taken behind it; B: feedback matrices; W2 default: each block's second "
    "layer initialised as PyTorch does; no crops, mean padding: augmentation; λ over mean: penalty averaged over "
    "features, not summed; cls, all tokens: the ViT's tokens that get credit."
)


@dataclass(frozen=True)
class _MethodResults:
    """One method under one variant, over its seeds."""

    cases: Sequence[Case]

    @cached_property
    def reports(self) -> dict[str, list[DiagnosticReport]]:
        """Reports by the frozen baseline that decides D3."""
        return {null: [judge_against(case.report, null) for case in self.cases] for null in (METHOD_SHELL, BP_SHELL)}

    def verdict(self, null: str = METHOD_SHELL) -> Cell:
        """The worst of the seeds' verdicts."""
        return verdict_cell_of_reports(self.reports[null], "three")

    def decided(self, null: str = METHOD_SHELL) -> str | None:
        """The verdict that all seeds share; None where they differ or it is inconclusive."""
        found = {report.verdicts["three"].outcome for report in self.reports[null]}
        return found.pop() if len(found) == 1 and "inconclusive" not in found else None

    def outcome_is(self, outcome: str) -> bool | None:
        """Whether the shared verdict is this one; None where there is none."""
        found = self.decided()
        return None if found is None else found == outcome

    def cosine_is_large(self) -> bool | None:
        """Whether the published deep cosine is above `small_alignment`, as far as its interval decides."""
        return side_of_line(
            seed_interval(_published_cosines(self.cases)), self.cases[0].report.thresholds.small_alignment
        )


ByVariant = dict[str, dict[str, _MethodResults]]
"""Results by the variant's name and the method's."""


class Sensitivity(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return [config for each in variants(scale) for name in each.methods for config in each.runs(scale, name)]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        rows = variants(scale)
        by_variant: ByVariant = {
            row.name: {name: _MethodResults(results.cases(row.runs(scale, name))) for name in row.methods}
            for row in rows
        }
        cases = [case for methods in by_variant.values() for found in methods.values() for case in found.cases]
        of_recipe = [case for found in by_variant[RECIPE].values() for case in found.cases]
        note = (
            f"Each row changes what it names of its base ({_base_names(rows)}); {NOT_VARIED}: not varied or left out."
        )
        if VIT_VARIANT not in by_variant:
            note += " At scale paper crops, the ViT's tokens and more sizes of B are varied too."
        note += (
            " The size of B repeats DFA's recipe under AdamW and is not counted for it; for DFA the site exchanges "
            "independent B and what trains the stem. Optimiser and learning rate are not varied."
        )
        caption_text = caption(scale, of_recipe, note)
        flips = "Flips: methods whose verdict differs from that under the base in every seed; ?: seeds differ."
        return make_study_report(
            "sensitivity",
            "The unstated recipe",
            "Which conclusions depend on a part of the recipe that the papers do not state?",
            scale,
            cases,
            _findings(rows, by_variant),
            tables=[
                _verdicts(rows, by_variant, f"{caption_text} Edition three, the worst verdict of the seeds. {flips}"),
                _conclusions(
                    rows, by_variant, f"{caption_text} Yes or no: in every seed, or by the 95% interval over seeds."
                ),
                *(_numbers(name, rows, by_variant, caption_text) for name in methods_of_variant(rows)),
            ],
            figures=[_figure(rows, by_variant, f"{caption_text} {_FIGURE_NOTE}")],
        )


def _base_names(rows: Sequence[Variant]) -> str:
    return ", ".join(row.name for row in rows if row.is_base)


@dataclass(frozen=True)
class _Conclusion:
    """A conclusion of the papers about one method trained by the recipe."""

    id: str
    head: str
    method: str
    claim: str
    answer: Callable[[_MethodResults], bool | None]


CONCLUSIONS = (
    _Conclusion(
        "bp-trustworthy", "BP trustworthy", "BP", "Backprop is trustworthy", lambda f: f.outcome_is("trustworthy")
    ),
    _Conclusion(
        "dfa-walked-back", "DFA walked back", "DFA", "DFA is walked back", lambda f: f.outcome_is("walked_back")
    ),
    _Conclusion(
        "dfa-mode-1", "DFA in Mode 1", "DFA", "DFA is in Mode 1 (D1 and D2 fail)", lambda f: is_mode_1(f.cases)
    ),
    _Conclusion(
        "dfa-depth-fails",
        "DFA's depth fails",
        "DFA",
        "DFA's trained blocks do not beat their own frozen ones",
        lambda f: depth_fails(f.cases),
    ),
    _Conclusion(
        "dfa-cosine-small",
        "DFA's cosine small",
        "DFA",
        "DFA's published deep cosine (l = 1..L) is below {small:g}",
        lambda f: not_(f.cosine_is_large()),
    ),
    _Conclusion("fa-not-mode-1", "FA not in Mode 1", "FA", "FA is not in Mode 1", lambda f: not_(is_mode_1(f.cases))),
    _Conclusion(
        "fa-depth-helps",
        "FA's depth helps",
        "FA",
        "FA's trained blocks beat their own frozen ones",
        lambda f: not_(depth_fails(f.cases)),
    ),
)
"""Checked for variants of the recipe; under a penalty and on another network the papers' conclusions are others."""


def _findings(rows: Sequence[Variant], by_variant: ByVariant) -> list[Finding]:
    small = _thresholds(by_variant).small_alignment
    found = [
        combined_finding(
            each.id,
            f"{each.claim.format(small=small)} under every variant of the recipe.",
            _answers(each, rows, by_variant),
        )
        for each in CONCLUSIONS
    ]
    found += [_no_flip(name, rows, by_variant) for name in methods_of_variant(rows)]
    sizes = [row for row in rows if row.family == RECIPE and _changes_size_of_b(row)]
    same_verdict = {
        f"{row.name} ({name})": not_(_is_flipped(name, row, by_variant)) for row in sizes for name in row.methods
    }
    found.append(
        combined_finding(
            "b-size-no-flip",
            "Without a penalty the size of B changes no verdict: AdamW hides it.",
            same_verdict,
        )
    )
    return [*found, *_penalty_findings(rows, by_variant), _baseline_finding(rows, by_variant)]


def _answers(each: _Conclusion, rows: Sequence[Variant], by_variant: ByVariant) -> dict[str, bool | None]:
    """The answers by variant of the recipe, including the recipe itself."""
    return {
        row.name: each.answer(by_variant[row.name][each.method])
        for row in rows
        if row.family == RECIPE and each.method in row.methods and not _repeats_recipe(row, each.method)
    }


def _repeats_recipe(row: Variant, method: str) -> bool:
    """Whether a variant trains the recipe's own network: AdamW divides by the size of DFA's credit, and with it of B.

    FA multiplies several B, so its size matters there; a penalty is compared with the credit, so it matters there too.
    """
    return method == "DFA" and row.family == RECIPE and _changes_size_of_b(row)


def _changes_size_of_b(row: Variant) -> bool:
    return row.name.startswith("B ")


def _is_flipped(method: str, row: Variant, by_variant: ByVariant) -> bool | None:
    """Whether the verdict of all seeds differs from that under the base; None where one of the two is not decided."""
    ours, theirs = (by_variant[name][method].decided() for name in (row.name, row.family))
    return None if ours is None or theirs is None else ours != theirs


def _no_flip(method: str, rows: Sequence[Variant], by_variant: ByVariant) -> Finding:
    changed = [row for row in rows if not row.is_base and method in row.methods and not _repeats_recipe(row, method)]
    answers = {row.name: _is_flipped(method, row, by_variant) for row in changed}
    flips = [
        f"{row.name}: from {by_variant[row.family][method].verdict().text} "
        f"to {by_variant[row.name][method].verdict().text}"
        for row in changed
        if answers[row.name]
    ]
    same, unsure = ([name for name, answer in answers.items() if answer is what] for what in (False, None))
    texts = [f"Flips: {'; '.join(flips)}."] if flips else []
    texts += [f"Open (seeds differ, or inconclusive): {', '.join(unsure)}."] if unsure else []
    texts += [f"The same under: {', '.join(same)}."] if same else []
    return Finding(
        f"{kebab(method)}-no-flip",
        f"No unstated part flips {method}'s verdict.",
        all_true(map(not_, answers.values())),
        " ".join(texts),
    )


def _penalty_findings(rows: Sequence[Variant], by_variant: ByVariant) -> list[Finding]:
    """Whether the penalty's effect on DFA depends on how it is summed and on B's size.

    The penalty weighs block outputs against the credit, whose size is proportional to B's.
    """
    of_dfa = {
        row.name: by_variant[row.name]["DFA"] for row in rows if row.family == VARIANT_PENALTY and "DFA" in row.methods
    }
    before, line = is_mode_1(by_variant[RECIPE]["DFA"].cases), _thresholds(by_variant).small_alignment
    relieved = {name: not_(is_mode_1(found.cases)) if before else None for name, found in of_dfa.items()}
    raised_cosine = {name: found.cosine_is_large() for name, found in of_dfa.items()}
    return [
        combined_finding(
            "penalty-relieves-dfa",
            f"A penalty of {PENALTY_SIZE:g} relieves DFA's Mode 1 however it is summed and B is scaled.",
            relieved,
        ),
        combined_finding(
            "penalty-raises-cosine",
            f"It raises DFA's published deep cosine above {line:g} however it is summed and B is scaled.",
            raised_cosine,
        ),
    ]


def _baseline_finding(rows: Sequence[Variant], by_variant: ByVariant) -> Finding:
    answers: dict[str, bool | None] = {}
    for row in rows:
        for name in row.methods:
            if name in ("FA", "DFA"):
                ends = [by_variant[row.name][name].decided(null) for null in (METHOD_SHELL, BP_SHELL)]
                answers[f"{row.name} ({name})"] = None if None in ends else ends[0] == ends[1]
    return combined_finding(
        "same-against-bp-baseline",
        "FA's and DFA's verdicts are the same against their own frozen baseline and against backprop's.",
        answers,
    )


def _thresholds(by_variant: ByVariant) -> DiagnosticThresholds:
    return by_variant[RECIPE]["DFA"].cases[0].report.thresholds


def _verdicts(rows: Sequence[Variant], by_variant: ByVariant, caption_text: str) -> Table:
    columns = {
        "BP": ("BP", METHOD_SHELL),
        "FA": ("FA", METHOD_SHELL),
        "FA, bp frozen baseline": ("FA", BP_SHELL),
        "DFA": ("DFA", METHOD_SHELL),
        "DFA, bp frozen baseline": ("DFA", BP_SHELL),
    } | {name: (name, METHOD_SHELL) for name in methods_of_variant(rows) if name in BRIDGES}
    lines = tuple(
        (
            Cell(row.name),
            *(
                by_variant[row.name][name].verdict(null) if name in row.methods else Cell(NOT_VARIED)
                for name, null in columns.values()
            ),
            Cell(NOT_VARIED if row.is_base else _flips(row, by_variant)),
        )
        for row in rows
    )
    return Table("verdicts", "Verdicts by variant", ("variant", *columns, "flips"), lines, caption_text)


def _flips(row: Variant, by_variant: ByVariant) -> str:
    marks = {True: "", None: "?"}
    answers = {name: _is_flipped(name, row, by_variant) for name in row.methods}
    return ", ".join(f"{name}{marks[a]}" for name, a in answers.items() if a is not False) or "none"


def _conclusions(rows: Sequence[Variant], by_variant: ByVariant, caption_text: str) -> Table:
    shown = {True: "yes", False: "no", None: "undecided"}
    answers = [_answers(each, rows, by_variant) for each in CONCLUSIONS]
    lines = tuple(
        (
            Cell(row.name),
            *(Cell(shown[found[row.name]]) if row.name in found else Cell(NOT_VARIED) for found in answers),
        )
        for row in rows
        if row.family == RECIPE
    )
    heads = ("variant", *(each.head for each in CONCLUSIONS))
    return Table("conclusions", "Conclusions by variant of the recipe", heads, lines, caption_text)


def _numbers(name: str, rows: Sequence[Variant], by_variant: ByVariant, caption_text: str) -> Table:
    heads = (
        "variant", "accuracy", "over frozen, pp", "over bp frozen, pp", "growth (D1)", "‖g_L‖ @128", "deep cosine",
        "l = 1..L", "three",
    )  # fmt: skip
    lines = tuple(_row(row.name, by_variant[row.name][name]) for row in rows if name in row.methods)
    note = (
        "Margins paired by seed, with 95% t intervals. Growth (D1) and ‖g_L‖: smallest to largest seed. Deep cosine: "
        "over states whose credit trains a block, without exact ones; l = 1..L: as published."
    )
    return Table(kebab(name), f"{name} by variant", heads, lines, f"{caption_text} {note}")


def _row(name: str, found: _MethodResults) -> tuple[Cell, ...]:
    cases = found.cases
    evidence = cases[0].report.evidence
    return (
        Cell(name),
        mean_cell([case.accuracy for case in cases], ".3f"),
        *(margin_cell(evidence.margin(null)) for null in (METHOD_SHELL, BP_SHELL)),
        *(range_cell([case.report.flags[check].value for case in cases]) for check in ("D1", "D2")),
        numbers_cell(cases, lambda case: case.report.quantities.aggregates.deep_mean, "+.3f"),
        numbers_cell(cases, lambda case: case.report.quantities.aggregates.deep_mean_papers, "+.3f"),
        found.verdict(),
    )


Values = Callable[[Sequence[Case]], Sequence[float | None]]
"""A function that gives one number for each seed."""


def _figure(rows: Sequence[Variant], by_variant: ByVariant, caption_text: str) -> Figure:
    """A plot for each number, side by side; a line for each variant, the recipe's before the other families'."""
    rows = sorted(rows, key=lambda row: row.family != RECIPE)

    def dots(name: str, get: Values) -> Series:
        places = [place for place, row in enumerate(rows) if name in row.methods]
        values = [get(by_variant[rows[place].name][name].cases) for place in places]
        whole = [[v for v in column if v is not None] if None not in column else [] for column in values]
        return replace(series_of(name, places, whole), mark="points")

    def plot(title: str, y_label: str, get: Values, levels: Mapping[str, float], log: bool = False) -> Plot:
        series = tuple(dots(name, get) for name in methods_of_variant(rows))
        ticks = tuple(row.name for row in rows)
        return Plot(title, "", y_label, series, y_log=log, levels=levels, ticks=ticks, horizontal=True)

    t = _thresholds(by_variant)
    growth = "largest ‖h_l+1‖ / ‖h_l‖"
    plots = (
        plot("Over its frozen baseline", "percentage points", _margins, {"D3 margin": t.frozen_acc_margin_pp}),
        plot("Growth", growth, _flag("D1"), {"D1 limit": t.h_norm_explosion_ratio}, True),
        plot("Reference gradient", "‖g_L‖ @128", _flag("D2"), {"D2 floor": t.g_norm_floor}, True),
        plot("Deep cosine", "without exact layers", _deep_cosines, {"small": t.small_alignment}),
    )
    answers = [_is_flipped(name, row, by_variant) for row in rows if not row.is_base for name in row.methods]
    title = f"Changing one unstated part flips {answers.count(True)} of {len(answers)} verdicts"
    return Figure("variants", title, plots, caption_text, columns=4)


def _margins(cases: Sequence[Case]) -> Sequence[float | None]:
    """The margin over the frozen baseline of each seed, in percentage points."""
    evidence = cases[0].report.evidence
    frozen = evidence.frozen.get(METHOD_SHELL)
    if not frozen or len(frozen) != len(evidence.headline_acc):
        return [None]
    return [100 * (ours - baseline) for ours, baseline in zip(evidence.headline_acc, frozen, strict=True)]


def _flag(check: str) -> Values:
    return lambda cases: [case.report.flags[check].value for case in cases]


def _deep_cosines(cases: Sequence[Case]) -> Sequence[float | None]:
    return [case.report.quantities.aggregates.deep_mean.value for case in cases]


def _published_cosines(cases: Sequence[Case]) -> Sequence[float | None]:
    return [case.report.quantities.aggregates.deep_mean_papers.value for case in cases]


STUDY = Sensitivity()

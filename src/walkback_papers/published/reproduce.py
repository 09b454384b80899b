"""Compare our stored results with every published figure; where they differ, try variants of the recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from walkback.core.configuration import RunConfig
from walkback.core.errors import InputError
from walkback.judge.number import Number, first_bad
from walkback.training.resolved_run import resolve
from walkback_papers.published.agree import FIGURE_KINDS, AgreementOutcome, compare_with_published
from walkback_papers.published.figure import FigureSection, PublishedFigure, sections
from walkback_papers.published.finder import Finder
from walkback_papers.published.quantities import QUANTITIES
from walkback_papers.published.run_quantities import NEVER_FIRED
from walkback_papers.results import Results
from walkback_papers.scale import Scale
from walkback_papers.variants import Variant, variants

RowOutcome = AgreementOutcome | Literal["not measured"]
OUTCOMES: tuple[RowOutcome, ...] = ("agrees", "differs", "too noisy to tell", "not measured")
SENSITIVITY = "sensitivity"


@dataclass(frozen=True)
class Reproduced:
    """Our value for one published figure, and whether it agrees."""

    outcome: RowOutcome
    ours: str = ""
    values: tuple[float | str, ...] = ()
    """One per seed."""
    off: str = ""
    """The difference or ratio as text."""
    reason: str = ""
    """Why it is not measured, or a caveat of the measured value."""


@dataclass(frozen=True)
class ReproductionRow:
    """One published figure, our value, and the variants tried where they differ."""

    figure: PublishedFigure
    found: Reproduced
    runs: tuple[str, ...]
    trials: tuple[tuple[str, Reproduced], ...] = ()
    """The same quantity under variants of the recipe, by variant name."""

    @property
    def outcome(self) -> RowOutcome:
        return self.found.outcome

    def to_json(self) -> dict[str, Any]:
        figure, found = self.figure, self.found
        return {
            "id": figure.id,
            "what": figure.what,
            "source": figure.source,
            "published": figure.text,
            "convention": figure.convention,
            "ours": found.ours,
            "values": list(found.values),
            "off": found.off,
            "outcome": found.outcome,
            "reason": found.reason,
            "calibration": figure.calibration,
            "study": figure.study,
            "runs": list(self.runs),
        }


@dataclass(frozen=True)
class Part:
    """A section of the page."""

    section: FigureSection
    rows: tuple[ReproductionRow, ...]


@dataclass(frozen=True)
class Reproduction:
    """The comparison of every published figure with ours."""

    parts: tuple[Part, ...]
    scale: Scale
    finished: int
    """Number of runs behind the rows that are finished."""
    training: Mapping[str, tuple[int, float]]
    """By device, over all finished runs: their number and the seconds of training."""

    @property
    def rows(self) -> list[ReproductionRow]:
        return [row for part in self.parts for row in part.rows]

    @property
    def runs(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row.runs))


class VariantFinder(Finder):
    """A finder that returns a method's runs under one variant of the recipe in place of the figure's own."""

    def __init__(self, results: Results, scale: Scale, variant: Variant):
        super().__init__(results, scale, SENSITIVITY)
        self._variant = variant

    def runs(self, name: str, place: str, epochs: str, penalty: float = 0.0) -> list[RunConfig]:
        method = name.removesuffix(" shell")
        if method not in self._variant.methods or place != self._variant.place:
            raise InputError(f"the variant has no {name} there")
        resolved_runs = [resolve(config) for config in self._variant.runs(self.scale, method)]
        if method != name:
            shell = "bp_shell" if method == "BP" else "method_shell"
            return [resolved.baselines[shell].config for resolved in resolved_runs]
        if any(resolved.shared_options.penalty != penalty for resolved in resolved_runs):
            raise InputError(f"the variant has no {name} with a penalty of {penalty:g}")
        return [resolved.config for resolved in resolved_runs]


def reproduce_figures(results: Results, scale: Scale) -> Reproduction:
    """Compare every published figure with stored results; figures whose runs are missing are not measured."""
    finders: dict[str, Finder] = {}
    known = {variant.name: variant for variant in variants(scale)}
    variant_finders: dict[str, VariantFinder] = {}
    parts = []
    for section in sections():
        rows = []
        for figure in section.figures:
            if figure.study not in finders:
                finders[figure.study] = Finder(results, scale, figure.study)
            finder = finders[figure.study]
            finder.used = {}
            found = reproduce_figure(figure, finder)
            trials = []
            for name in _variants_to_try(figure, known) if found.outcome == "differs" else ():
                if name not in variant_finders:
                    variant_finders[name] = VariantFinder(results, scale, known[name])
                trials.append((name, reproduce_figure(figure, variant_finders[name])))
            rows.append(ReproductionRow(figure, found, tuple(finder.used), tuple(trials)))
        parts.append(Part(section, tuple(rows)))
    used = {name for part in parts for row in part.rows for name in row.runs}
    resolved_runs = {
        name: resolved for finder in finders.values() for name, resolved in finder.resolved_runs.items() if name in used
    }
    finished = sum(results.run_index.finished(resolved) is not None for resolved in resolved_runs.values())
    return Reproduction(tuple(parts), scale, finished, results.run_index.training())


def _variants_to_try(figure: PublishedFigure, known: Mapping[str, Variant]) -> list[str]:
    """The figure's variants, preceded by their base if it trains for another length than the figure's runs."""
    named = [known[name] for name in figure.variants if name in known]
    bases = [known[variant.family].name for variant in named if variant.epochs != figure.query.epochs]
    return list(dict.fromkeys([*bases, *(variant.name for variant in named)]))


def reproduce_figure(figure: PublishedFigure, finder: Finder) -> Reproduced:
    """Compute our value for one figure, and whether it agrees."""
    if figure.missing:
        return Reproduced("not measured", reason=figure.missing)
    try:
        values = QUANTITIES[figure.query.quantity](figure.query, finder)
    except InputError as error:
        reason = str(error).replace(f"{finder.results.folder}/", "").rstrip(".")
        return Reproduced("not measured", reason=reason)
    numbers = [value for value in values if isinstance(value, Number)]
    bad = first_bad(numbers)
    if bad is not None:
        word = "INVALID: " if bad.status == "invalid" else ""
        return Reproduced("not measured", reason=f"{word}{bad.reason}")
    plain = tuple(value.known if isinstance(value, Number) else value for value in values)
    return _compare(figure, plain, "; ".join(dict.fromkeys(number.reason for number in numbers if number.reason)))


def _compare(figure: PublishedFigure, values: tuple[float | str, ...], caveat: str) -> Reproduced:
    printed = figure.printed
    known = [value for value in values if not isinstance(value, str)]
    if printed is None:
        outcome: RowOutcome = "agrees" if all(value == figure.word for value in values) else "differs"
        return Reproduced(outcome, _values_text(figure, values), values, "", caveat)
    if len(known) < len(values):
        return Reproduced(
            "differs",
            _values_text(figure, values),
            values,
            f"{NEVER_FIRED} in {len(values) - len(known)} of {len(values)}",
        )
    comparison = compare_with_published(figure.kind, printed, known, figure.draws)
    ours = (
        _values_text(figure, values)
        if figure.each or FIGURE_KINDS[figure.kind].by in ("epoch", "count")
        else _mean_text(figure, known)
    )
    return Reproduced(comparison.outcome, ours, values, comparison.shown, caveat)


def _mean_text(figure: PublishedFigure, values: Sequence[float]) -> str:
    """Mean ± standard deviation over seeds, ddof = 1."""
    spec = FIGURE_KINDS[figure.kind].spec
    if len(values) == 1:
        return format(values[0], spec)
    return f"{fmean(values):{spec}} ± {stdev(values):{spec.replace('+', '')}}"


def _values_text(figure: PublishedFigure, values: Sequence[float | str]) -> str:
    """Values seed by seed; once if all are the same."""
    spec = FIGURE_KINDS[figure.kind].spec
    shown = [value if isinstance(value, str) else format(value, spec) for value in values]
    return shown[0] if len(set(shown)) == 1 else ", ".join(shown)

"""Sets ours beside every published figure: whether the two agree, and what may explain it where they do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

from walkback.core.configuration import RunConfig
from walkback.core.errors import InputError
from walkback.judge.number import Number, first_bad
from walkback.runs.baselines import baselines
from walkback.training.resolved_run import resolve
from walkback_papers.published.agree import KINDS, compare
from walkback_papers.published.figure import Figure, Section, sections
from walkback_papers.published.finder import Finder
from walkback_papers.published.quantities import QUANTITIES
from walkback_papers.published.run_quantities import NEVER
from walkback_papers.results import Results
from walkback_papers.scale import Scale
from walkback_papers.variants import Variant, variants

Outcome = Literal["agrees", "differs", "not measured"]
OUTCOMES: tuple[Outcome, ...] = ("agrees", "differs", "not measured")
SENSITIVITY = "sensitivity"


@dataclass(frozen=True)
class Found:
    """Ours beside one figure."""

    outcome: Outcome
    ours: str = ""
    values: tuple[float | str, ...] = ()
    """One for each seed."""
    off: str = ""
    """The difference or ratio, in words."""
    reason: str = ""
    """Why it is not measured; or a caveat of what is."""


@dataclass(frozen=True)
class Row:
    """One published figure, ours, and what was tried where they differ."""

    figure: Figure
    found: Found
    runs: tuple[str, ...]
    trials: tuple[tuple[str, Found], ...] = ()
    """The same quantity under variants of the recipe, by the variant's name."""

    @property
    def outcome(self) -> Outcome:
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

    section: Section
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Reproduction:
    """Every published figure with ours beside it."""

    parts: tuple[Part, ...]
    scale: Scale
    finished: int
    """How many of the runs behind the rows are there."""
    training: Mapping[str, tuple[int, float]]
    """Of all runs that are there, by device: their number, and the seconds of training them."""

    @property
    def rows(self) -> list[Row]:
        return [row for part in self.parts for row in part.rows]

    @property
    def runs(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row.runs))


class VariantFinder(Finder):
    """Finds a method's runs under one variant of the recipe, wherever the figure's own are asked for."""

    def __init__(self, results: Results, scale: Scale, variant: Variant):
        super().__init__(results, scale, SENSITIVITY)
        self._variant = variant

    def runs(self, name: str, place: str, epochs: str, penalty: float = 0.0) -> list[RunConfig]:
        method = name.removesuffix(" shell")
        if method not in self._variant.methods or place != self._variant.place:
            raise InputError(f"the variant has no {name} there")
        recipes = [resolve(config) for config in self._variant.runs(self.scale, method)]
        if method != name:
            shell = "bp_shell" if method == "BP" else "method_shell"
            return [baselines(recipe)[shell].config for recipe in recipes]
        if any(recipe.treatment.penalty != penalty for recipe in recipes):
            raise InputError(f"the variant has no {name} with a penalty of {penalty:g}")
        return [recipe.config for recipe in recipes]


def reproduce(results: Results, scale: Scale) -> Reproduction:
    """Every published figure beside what is stored; figures whose runs are not there are not measured."""
    finders: dict[str, Finder] = {}
    known = {variant.name: variant for variant in variants(scale)}
    tried: dict[str, VariantFinder] = {}
    parts = []
    for section in sections():
        rows = []
        for figure in section.figures:
            if figure.study not in finders:
                finders[figure.study] = Finder(results, scale, figure.study)
            find = finders[figure.study]
            find.used = {}
            found = locate(figure, find)
            trials = []
            for name in _to_try(figure, known) if found.outcome == "differs" else ():
                if name not in tried:
                    tried[name] = VariantFinder(results, scale, known[name])
                trials.append((name, locate(figure, tried[name])))
            rows.append(Row(figure, found, tuple(find.used), tuple(trials)))
        parts.append(Part(section, tuple(rows)))
    used = {name for part in parts for row in part.rows for name in row.runs}
    recipes = {name: recipe for find in finders.values() for name, recipe in find.recipes.items() if name in used}
    finished = sum(results.shelf.finished(recipe) is not None for recipe in recipes.values())
    return Reproduction(tuple(parts), scale, finished, results.shelf.training())


def _to_try(figure: Figure, known: Mapping[str, Variant]) -> list[str]:
    """The figure's variants, behind the recipe they change where that is not the figure's own training."""
    named = [known[name] for name in figure.variants if name in known]
    bases = [known[variant.family].name for variant in named if variant.epochs != figure.ask.epochs]
    return list(dict.fromkeys([*bases, *(variant.name for variant in named)]))


def locate(figure: Figure, find: Finder) -> Found:
    """Ours of one figure, and whether it agrees."""
    if figure.missing:
        return Found("not measured", reason=figure.missing)
    try:
        values = QUANTITIES[figure.ask.quantity](figure.ask, find)
    except InputError as error:
        said = str(error).replace(f"{find.results.folder}/", "").rstrip(".")
        return Found("not measured", reason=said)
    numbers = [value for value in values if isinstance(value, Number)]
    bad = first_bad(numbers)
    if bad is not None:
        word = "INVALID: " if bad.status == "invalid" else ""
        return Found("not measured", reason=f"{word}{bad.reason}")
    plain = tuple(value.known if isinstance(value, Number) else value for value in values)
    return _beside(figure, plain, "; ".join(dict.fromkeys(number.reason for number in numbers if number.reason)))


def _beside(figure: Figure, values: tuple[float | str, ...], caveat: str) -> Found:
    printed = figure.printed
    known = [value for value in values if not isinstance(value, str)]
    if printed is None:
        outcome: Outcome = "agrees" if all(value == figure.word for value in values) else "differs"
        return Found(outcome, _words(figure, values), values, "", caveat)
    if len(known) < len(values):
        return Found(
            "differs", _words(figure, values), values, f"{NEVER} in {len(values) - len(known)} of {len(values)}"
        )
    seen = compare(figure.kind, printed, known, figure.draws)
    ours = (
        _words(figure, values) if figure.each or KINDS[figure.kind].by in ("epoch", "count") else _mean(figure, known)
    )
    return Found(seen.outcome, ours, values, seen.shown, caveat)


def _mean(figure: Figure, values: Sequence[float]) -> str:
    """Mean ± standard deviation over seeds, ddof = 1."""
    spec = KINDS[figure.kind].spec
    if len(values) == 1:
        return format(values[0], spec)
    return f"{fmean(values):{spec}} ± {stdev(values):{spec.replace('+', '')}}"


def _words(figure: Figure, values: Sequence[float | str]) -> str:
    """Seed by seed; once where all say the same."""
    spec = KINDS[figure.kind].spec
    shown = [value if isinstance(value, str) else format(value, spec) for value in values]
    return shown[0] if len(set(shown)) == 1 else ", ".join(shown)

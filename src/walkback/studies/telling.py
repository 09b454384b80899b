"""What studies share in telling their results: cells over seeds, captions, detectors' first epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, stdev

from walkback.judge.claims import Claim, alignment_of_seeds
from walkback.judge.number import Number
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.render.cells import Cell
from walkback.render.story import Finding, Story
from walkback.studies.results import Case
from walkback.studies.scale import METHODS, RAW, Scale

PAPERS_FLOOR = 8e-7
"""The papers' floor of 1e-7 where they measured with batches of 1024, @128."""


def label(method: str) -> str:
    """The name that tables and figures show for a method as its run writes it."""
    names = {text: name for name, text in METHODS.items()}
    return names.get(method, RAW.get(method, method))


def over_seeds(values: Sequence[float | None], spec: str, reason: str = "") -> Cell:
    """Mean ± standard deviation (ddof = 1); one value alone; a word where one is missing."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Cell("NOT MEASURED", None, reason or f"{len(values) - len(known)} of {len(values)} seeds have no value")
    if len(known) == 1:
        return Cell(format(known[0], spec), known[0], reason)
    return Cell(f"{fmean(known):{spec}} ± {stdev(known):{spec.replace('+', '')}}", fmean(known), reason)


def spread(values: Sequence[float | None], spec: str = ".2g") -> Cell:
    """From the smallest to the largest: for numbers that differ by factors, where a standard deviation says little."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return Cell("NOT MEASURED", None, f"{len(values) - len(known)} of {len(values)} seeds have no value")
    ends = list(dict.fromkeys(format(value, spec) for value in (min(known), max(known))))
    return Cell(" to ".join(ends), fmean(known))


def numbers(cases: Iterable[Case], get: Callable[[Case], Number], spec: str) -> Cell:
    """A judged number over seeds; INVALID or NOT MEASURED with its reason where it is so in one of them."""
    found = [get(case) for case in cases]
    bad = [number for number in found if not number.ok]
    if bad:
        return Cell(bad[0].word, None, bad[0].reason)
    return over_seeds([number.known for number in found], spec, found[0].reason)


def verdict(cases: Sequence[Case], edition: str) -> Cell:
    """The worst of the seeds' verdicts, by which flags, and in how many."""
    order = ("walked_back", "inconclusive", "trustworthy")
    outcomes = [case.report.verdicts[edition] for case in cases]
    worst = min((found.outcome for found in outcomes), key=order.index)
    alike = [found for found in outcomes if found.outcome == worst]
    flags = dict.fromkeys(flag for found in alike for flag in found.decided_by)
    by = f" ({', '.join(flags)})" if flags else ""
    share = "" if len(alike) == len(cases) else f" in {len(alike)} of {len(cases)}"
    return Cell(f"{worst.replace('_', ' ')}{by}{share}")


def claim(cases: Sequence[Case], name: str) -> Claim:
    """A claim over the seeds: alignment must stand in each; depth is over all of them on every card."""
    found = [case.report.claims[name] for case in cases]
    return alignment_of_seeds(found) if name == "alignment" else found[0]


def first_epoch(case: Case, is_raised: Callable[[Mapping[str, float]], bool]) -> int | None:
    """The first epoch whose row of the log raises a detector; None where none does."""
    for row in case.log:
        if row.get("growth") is not None and is_raised(row):
            return int(row["epoch"])
    return None


def fires(check: str, t: DiagnosticThresholds, floor: float | None = None) -> Callable[[Mapping[str, float]], bool]:
    """Whether a row of the log raises D1 or D2 (at another floor, where one is given)."""
    if check == "D1":
        return lambda row: row["growth"] > t.h_norm_explosion_ratio
    return lambda row: row["grad_top"] < (floor or t.g_norm_floor)


def caption(scale: Scale, cases: Sequence[Case], extra: str = "") -> str:
    """n, ddof, data and recipe: what every caption states."""
    configs = [case.recipe.config for case in cases]
    seeds = sorted({config.seed for config in configs})
    places = list(dict.fromkeys(f"{config.arch} on {config.data}" for config in configs))
    epochs = " or ".join(dict.fromkeys(str(config.epochs) for config in configs))
    first = configs[0]
    recipe = f"{epochs} epochs, batch {first.batch}, AdamW lr {first.lr:g}, decay {first.weight_decay:g}, cosine"
    augment = f", {first.augment}" if first.augment != "none" else ""
    where = "; ".join(places) if len(places) <= 2 else f"{len(places)} networks"
    n = f"n = {len(seeds)} seeds ({', '.join(map(str, seeds))}); ± is the standard deviation over seeds, ddof = 1"
    return " ".join(filter(None, (f"{where}, {recipe}{augment}; {n}. Scale: {scale.name}.", extra)))


def story(
    name: str,
    title: str,
    question: str,
    scale: Scale,
    cases: Sequence[Case],
    findings: Sequence[Finding],
    **parts: Sequence[object],
) -> Story:
    """A story with its facts, runs and command filled in; `parts` are tables and figures."""
    runs = tuple(dict.fromkeys(case.run.name for case in cases))
    facts = (f"Scale {scale.name}: {scale.words}.", f"{len(runs)} runs.")
    commands = (f"walkback study {name} --scale {scale.name}",)
    tables, figures = (tuple(parts.get(kind, ())) for kind in ("tables", "figures"))
    return Story(name, title, question, tuple(findings), tables, figures, facts, runs, commands)  # type: ignore[arg-type]

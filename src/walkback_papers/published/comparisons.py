"""Quantities between several sets of runs: differences, ratios, orders, gaps; and what verdicts say in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from walkback.judge.number import Number, first_bad
from walkback.judge.threshold_sweep import strategies
from walkback_papers.published.figure import Ask
from walkback_papers.published.finder import Finder
from walkback_papers.published.run_quantities import NO, YES, Quantity, Value, cases_of, flag_value, of_all
from walkback_papers.results import Case


def difference(ask: Ask, find: Finder) -> list[Value]:
    """Accuracy over that of other runs of the same seeds, in percentage points."""
    other = find.cases(ask.over, ask.over_place or ask.place, ask.epochs, ask.over_penalty)
    pairs = zip(cases_of(ask, find), other, strict=True)
    return [Number.of(100 * (mine.accuracy - theirs.accuracy)) for mine, theirs in pairs]


def lead(get: Callable[[Case], Number]) -> Quantity:
    """How many times another method's value this one's is, seed by seed."""

    def each(ask: Ask, find: Finder) -> list[Value]:
        pairs = zip(cases_of(ask, find), cases_of(ask, find, ask.over), strict=True)
        return [quotient(get(mine), get(other)) for mine, other in pairs]

    return each


def quotient(above: Number, below: Number) -> Number:
    if below.ok and below.known == 0:
        return Number.invalid("what it is divided by is zero")
    return of_all([above, below], lambda known: known[0] / known[1])


def ranked(get: Callable[[Case], Number]) -> Quantity:
    """The methods from most to least, seed by seed."""

    def each(ask: Ask, find: Finder) -> list[Value]:
        columns = [[get(case) for case in cases_of(ask, find, name)] for name in ask.methods]
        return [_order(dict(zip(ask.methods, row, strict=True))) for row in zip(*columns, strict=True)]

    return each


def leader(get: Callable[[Case], Number]) -> Quantity:
    """The method that has most, seed by seed."""

    def each(ask: Ask, find: Finder) -> list[Value]:
        orders = ranked(get)(ask, find)
        return [order.partition(" > ")[0] if isinstance(order, str) else order for order in orders]

    return each


def _order(values: dict[str, Number]) -> Value:
    bad = first_bad(values.values())
    return bad if bad is not None else " > ".join(sorted(values, key=lambda name: -values[name].known))


def gap(check: Literal["D1", "D2"], side: Literal["healthy", "degenerate", "gap"]) -> Quantity:
    """The worst of the healthy, the mildest of the degenerate, or how far apart they are; in each seed."""
    worst, mildest = (max, min) if check == "D1" else (min, max)

    def each(ask: Ask, find: Finder) -> list[Value]:
        found: list[Value] = []
        for good, bad in zip(
            _by_seed(ask.methods, check, ask, find), _by_seed(ask.others, check, ask, find), strict=True
        ):
            inner, outer = of_all(good, worst), of_all(bad, mildest)
            ratio = quotient(outer, inner) if check == "D1" else quotient(inner, outer)
            found.append({"healthy": inner, "degenerate": outer, "gap": ratio}[side])
        return found

    return each


def _by_seed(names: Sequence[str], check: str, ask: Ask, find: Finder) -> list[list[Number]]:
    columns = [[flag_value(case, check) for case in cases_of(ask, find, name)] for name in names]
    return [list(row) for row in zip(*columns, strict=True)]


def verdict_quantity(case: Case, ask: Ask) -> Value:
    return case.report.verdicts[ask.edition].outcome.replace("_", " ")


def verdict_by(case: Case, ask: Ask) -> Value:
    by = case.report.verdicts[ask.edition].decided_by
    return f"{verdict_quantity(case, ask)} by {' and '.join(by)}" if by else verdict_quantity(case, ask)


def passes(case: Case, ask: Ask) -> Value:
    flag = case.report.flags[ask.check]
    return Number.missing(f"{flag.id}: {flag.reason}") if flag.truth is None else NO if flag.truth else YES


def mode_1_quantity(case: Case, ask: Ask) -> Value:
    truths = [case.report.flags[check].truth for check in ("D1", "D2")]
    if False in truths:
        return NO
    return Number.missing("D1 or D2 is not known") if None in truths else YES


def caught_quantity(case: Case, ask: Ask) -> Value:
    outcome = strategies(case.report)[ask.strategy]
    if outcome == "inconclusive":
        return Number.missing(f"{ask.strategy} is inconclusive")
    return YES if outcome == "walked_back" else NO


def how_many(ask: Ask, find: Finder) -> list[Value]:
    """How many of the methods a strategy walks back, seed by seed."""
    columns = [[caught_quantity(case, ask) for case in cases_of(ask, find, name)] for name in ask.methods]
    found: list[Value] = []
    for row in zip(*columns, strict=True):
        bad = first_bad(value for value in row if isinstance(value, Number))
        found.append(bad if bad is not None else Number.of(sum(value == YES for value in row)))
    return found


def setting(ask: Ask, find: Finder) -> list[Value]:
    """A setting of the finished runs, over all their seeds."""
    resolved_runs = [case.resolved for case in cases_of(ask, find)]
    first = resolved_runs[0]
    known: dict[str, Any] = {
        "seeds": ", ".join(str(resolved.config.seed) for resolved in resolved_runs),
        "data": first.config.data.name,
        "arch": first.config.arch.name,
        "mean": getattr(first.source, "mean", None),
        "std": getattr(first.source, "std", None),
    }
    value = known[ask.field] if ask.field in known else getattr(first.config, ask.field)
    if isinstance(value, tuple):
        return [", ".join(f"{part:.4f}" for part in value)]
    return (
        [Number.missing("it has none")] if value is None else [f"{value:g}" if isinstance(value, float) else str(value)]
    )

"""Quantities of several sets of runs (differences, ratios, rankings, gaps), and verdicts as words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from walkback.judge.number import Number, first_bad
from walkback.judge.threshold_sweep import strategies
from walkback_papers.published.figure import FigureQuery
from walkback_papers.published.finder import Finder
from walkback_papers.published.run_quantities import NO, YES, Quantity, Value, cases_of, combined_number, flag_value
from walkback_papers.results import Case


def accuracy_difference(query: FigureQuery, finder: Finder) -> list[Value]:
    """Accuracy minus that of other runs with the same seeds, in percentage points."""
    other = finder.cases(query.over, query.over_place or query.place, query.epochs, query.over_penalty)
    pairs = zip(cases_of(query, finder), other, strict=True)
    return [Number.of(100 * (mine.accuracy - theirs.accuracy)) for mine, theirs in pairs]


def ratio_to_other(get: Callable[[Case], Number]) -> Quantity:
    """The ratio of this method's value to another's, seed by seed."""

    def each(query: FigureQuery, finder: Finder) -> list[Value]:
        pairs = zip(cases_of(query, finder), cases_of(query, finder, query.over), strict=True)
        return [quotient(get(mine), get(other)) for mine, other in pairs]

    return each


def quotient(above: Number, below: Number) -> Number:
    """`above` / `below`; INVALID if `below` is zero."""
    if below.ok and below.known == 0:
        return Number.invalid("the divisor is zero")
    return combined_number([above, below], lambda known: known[0] / known[1])


def method_ranking(get: Callable[[Case], Number]) -> Quantity:
    """The methods in descending order of a value, seed by seed."""

    def each(query: FigureQuery, finder: Finder) -> list[Value]:
        columns = [[get(case) for case in cases_of(query, finder, name)] for name in query.methods]
        return [_order(dict(zip(query.methods, row, strict=True))) for row in zip(*columns, strict=True)]

    return each


def largest_method(get: Callable[[Case], Number]) -> Quantity:
    """The method with the largest value, seed by seed."""

    def each(query: FigureQuery, finder: Finder) -> list[Value]:
        orders = method_ranking(get)(query, finder)
        return [order.partition(" > ")[0] if isinstance(order, str) else order for order in orders]

    return each


def _order(values: dict[str, Number]) -> Value:
    """Method names in descending order, such as `DFA > FA`."""
    bad = first_bad(values.values())
    return bad if bad is not None else " > ".join(sorted(values, key=lambda name: -values[name].known))


def healthy_gap(check: Literal["D1", "D2"], side: Literal["healthy", "degenerate", "gap"]) -> Quantity:
    """The worst value of the healthy methods, the mildest of the degenerate ones, or their ratio; in each seed."""
    worst, mildest = (max, min) if check == "D1" else (min, max)

    def each(query: FigureQuery, finder: Finder) -> list[Value]:
        found: list[Value] = []
        for good, bad in zip(
            _by_seed(query.methods, check, query, finder), _by_seed(query.others, check, query, finder), strict=True
        ):
            healthy, degenerate = combined_number(good, worst), combined_number(bad, mildest)
            ratio = quotient(degenerate, healthy) if check == "D1" else quotient(healthy, degenerate)
            found.append({"healthy": healthy, "degenerate": degenerate, "gap": ratio}[side])
        return found

    return each


def _by_seed(names: Sequence[str], check: str, query: FigureQuery, finder: Finder) -> list[list[Number]]:
    columns = [[flag_value(case, check) for case in cases_of(query, finder, name)] for name in names]
    return [list(row) for row in zip(*columns, strict=True)]


def verdict_quantity(case: Case, query: FigureQuery) -> Value:
    """The verdict of an edition."""
    return case.report.verdicts[query.edition].outcome.replace("_", " ")


def verdict_by(case: Case, query: FigureQuery) -> Value:
    """The verdict of an edition, with the checks that decided it."""
    by = case.report.verdicts[query.edition].decided_by
    return f"{verdict_quantity(case, query)} by {' and '.join(by)}" if by else verdict_quantity(case, query)


def check_passes(case: Case, query: FigureQuery) -> Value:
    """Whether a check passes: yes or no."""
    flag = case.report.flags[query.check]
    return Number.missing(f"{flag.id}: {flag.reason}") if flag.truth is None else NO if flag.truth else YES


def mode_1_quantity(case: Case, query: FigureQuery) -> Value:
    """Whether D1 and D2 both fail (Mode 1): yes or no."""
    truths = [case.report.flags[check].truth for check in ("D1", "D2")]
    if False in truths:
        return NO
    return Number.missing("D1 or D2 is not known") if None in truths else YES


def caught_quantity(case: Case, query: FigureQuery) -> Value:
    """Whether a strategy walks the run back: yes or no."""
    outcome = strategies(case.report)[query.strategy]
    if outcome == "inconclusive":
        return Number.missing(f"{query.strategy} is inconclusive")
    return YES if outcome == "walked_back" else NO


def count_caught(query: FigureQuery, finder: Finder) -> list[Value]:
    """The number of methods that a strategy walks back, seed by seed."""
    columns = [[caught_quantity(case, query) for case in cases_of(query, finder, name)] for name in query.methods]
    found: list[Value] = []
    for row in zip(*columns, strict=True):
        bad = first_bad(value for value in row if isinstance(value, Number))
        found.append(bad if bad is not None else Number.of(sum(value == YES for value in row)))
    return found


def run_setting(query: FigureQuery, finder: Finder) -> list[Value]:
    """A setting of the finished runs; one value for all seeds."""
    resolved_runs = [case.resolved for case in cases_of(query, finder)]
    first = resolved_runs[0]
    known: dict[str, Any] = {
        "seeds": ", ".join(str(resolved.config.seed) for resolved in resolved_runs),
        "data": first.config.data.name,
        "arch": first.config.arch.name,
        "mean": getattr(first.source, "mean", None),
        "std": getattr(first.source, "std", None),
    }
    value = known[query.field] if query.field in known else getattr(first.config, query.field)
    if isinstance(value, tuple):
        return [", ".join(f"{part:.4f}" for part in value)]
    if value is None:
        return [Number.missing("the runs have no such setting")]
    return [f"{value:g}" if isinstance(value, float) else str(value)]

"""Quantities of runs by themselves: networks as they were measured, logs, finite steps and fresh feedback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from walkback.core.errors import InputError
from walkback.core.measurements import Array, Measurements
from walkback.judge.finite_steps import functional_layers, train_loss_change
from walkback.judge.inflation import branch_growth
from walkback.judge.number import Number, first_bad
from walkback.judge.quantities import Quantities
from walkback.judge.quantities import quantities as judged
from walkback_papers.published.figure import Ask
from walkback_papers.published.finder import Finder
from walkback_papers.results import Case
from walkback_papers.tables import PAPERS_FLOOR, alarm, first_alarm

Value = Number | str
Quantity = Callable[[Ask, Finder], list[Value]]
"""One value for each seed."""
NEVER_FIRED, YES, NO = "never", "yes", "no"


def cases_of(ask: Ask, find: Finder, name: str = "") -> list[Case]:
    return find.cases(name or ask.ours, ask.place, ask.epochs, ask.penalty)


def per_case(get: Callable[[Case, Ask], Value]) -> Quantity:
    """A quantity of each run by itself."""
    return lambda ask, find: [get(case, ask) for case in cases_of(ask, find)]


def of_network(get: Callable[[Quantities, Ask], Value]) -> Quantity:
    """A quantity of the network as it was measured: at the end, or after an epoch."""

    def each(case: Case, ask: Ask) -> Value:
        return get(case.report.quantities if ask.epoch is None else _after(case, ask.epoch), ask)

    return per_case(each)


def _after(case: Case, epoch: int) -> Quantities:
    return judged(case.close(epoch), case.report.thresholds)


def of_all(numbers: Sequence[Number], pick: Callable[[list[float]], float]) -> Number:
    """One number of several; the first that may not be used instead, where there is one."""
    bad = first_bad(numbers)
    return bad if bad is not None else Number.of(pick([number.known for number in numbers]))


def cosine_quantity(q: Quantities) -> list[Number]:
    missing = Number.missing("no credit was measured")
    return [missing if layer.credit is None else layer.credit.cos for layer in q.layers]


def of_weights(get: Callable[[Measurements], Number]) -> Quantity:
    """A quantity of the run's weights at the end."""
    return per_case(lambda case, ask: get(case.measurements))


def block_outputs(case: Case, ask: Ask) -> Value:
    """How many times as large as before the first step the blocks' outputs are at the end."""
    return branch_growth(case.close(0), case.measurements)


def deep_early(case: Case, ask: Ask) -> Value:
    """The deep cosine over the first two epochs."""
    return of_all([_after(case, epoch).aggregates.deep_mean_papers for epoch in (1, 2)], fmean)


def ways(q: Quantities) -> list[Number]:
    """Γ by four aggregations."""
    return [q.aggregates.a1, q.aggregates.a2, q.aggregates.a3, q.aggregates.a4]


def ways_ratio(q: Quantities, ask: Ask) -> Number:
    """The largest over the smallest in absolute value."""
    sizes = of_all(ways(q), lambda known: min(map(abs, known)))
    if sizes.ok and sizes.known == 0:
        return Number.invalid("one of the four is zero")
    return of_all(ways(q), lambda known: max(map(abs, known)) / min(map(abs, known)))


def ways_flip(q: Quantities, ask: Ask) -> Value:
    bad = first_bad(ways(q))
    known = [number.value or 0.0 for number in ways(q)]
    return bad if bad is not None else YES if min(known) < 0 < max(known) else NO


def flag_value(case: Case, check: str) -> Number:
    flag = case.report.flags[check]
    return Number.missing(flag.reason) if flag.value is None else Number.of(flag.value)


def logged(get: Callable[[dict[str, Any], Ask], float | None]) -> Quantity:
    """A quantity of the log's row of an epoch."""

    def each(case: Case, ask: Ask) -> Value:
        rows = [row for row in case.log if row["epoch"] == ask.epoch]
        value = get(rows[0], ask) if rows else None
        return Number.missing(f"the log has no value after epoch {ask.epoch}") if value is None else Number.of(value)

    return per_case(each)


def alarm_quantity(case: Case, ask: Ask) -> Value:
    epoch = first_alarm(case, alarm(ask.check, case.report.thresholds, ask.floor))
    return NEVER_FIRED if epoch is None else Number.of(epoch)


def saved_quantity(case: Case, ask: Ask) -> Value:
    """The share of epochs left after the first detector fires, at the papers' own thresholds."""
    t = case.report.thresholds
    looks = (alarm("D1", t), alarm("D2", t, PAPERS_FLOOR))
    known = [epoch for look in looks if (epoch := first_alarm(case, look)) is not None]
    return Number.of(1 - min(known) / case.resolved.config.epochs) if known else Number.missing("no detector fires")


def is_silent(ask: Ask, find: Finder) -> list[Value]:
    """Whether no detector fires, of any run at any of the places, even at the papers' floor."""
    answers: list[Value] = []
    for place in ask.places:
        for case in find.cases(ask.ours, place, "vit" if place == "vit" else "full"):
            t = case.report.thresholds
            looks = (alarm("D1", t), alarm("D2", t), alarm("D2", t, PAPERS_FLOOR))
            answers.append(YES if all(first_alarm(case, look) is None for look in looks) else NO)
    return answers


def steps(name: str) -> Callable[[Case], Number]:
    """A finite-step metric over l = 1..L, as the papers average."""

    def get(case: Case) -> Number:
        return of_all([getattr(layer, name).mean for layer in functional_layers(case.functional)[1:]], fmean)

    return get


def loss_change(case: Case) -> Number:
    return train_loss_change(case.log)


def fall(get: Callable[[Case], Number]) -> Callable[[Case], Number]:
    """How much something falls."""
    return lambda case: of_all([get(case)], lambda known: -known[0])


def fresh_quantity(case: Case, first: int) -> Array:
    """The mean cosine over l = first..L under each fresh draw of the feedback."""
    drawn = case.measurements.get("null_fresh")
    if drawn is None:
        raise InputError(f"no fresh feedback was drawn for {case.run.name}")
    means: Array = drawn[first:].mean(axis=0)
    return means


def fresh_score(case: Case, ask: Ask) -> Value:
    """How many standard deviations of the draws the trained feedback lies above them."""
    own, drawn = case.report.quantities.aggregates.deep_mean_papers, fresh_quantity(case, 1)
    width = float(drawn.std(ddof=1))
    if width == 0:
        return Number.invalid("the draws have no width")
    return of_all([own], lambda known: (known[0] - float(drawn.mean())) / width)

"""Quantities of single runs: from measurements, logs, finite steps and fresh feedback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any

from walkback.core.errors import InputError
from walkback.core.measurements import Array, Measurements
from walkback.judge.finite_steps import functional_layers, train_loss_change
from walkback.judge.number import Number, first_bad
from walkback.judge.quantities import Quantities
from walkback.judge.quantities import quantities as judged
from walkback.judge.weight_growth import branch_growth
from walkback_papers.published.figure import FigureQuery
from walkback_papers.published.finder import Finder
from walkback_papers.results import Case
from walkback_papers.tables import PAPERS_FLOOR, alarm, first_alarm

Value = Number | str
Quantity = Callable[[FigureQuery, Finder], list[Value]]
"""Returns one value per seed."""
NEVER_FIRED, YES, NO = "never", "yes", "no"


def cases_of(query: FigureQuery, finder: Finder, name: str = "") -> list[Case]:
    """The runs of a query, or the same runs of another method."""
    return finder.cases(name or query.ours, query.place, query.epochs, query.penalty)


def per_case(get: Callable[[Case, FigureQuery], Value]) -> Quantity:
    """A quantity computed for each run separately."""
    return lambda query, finder: [get(case, query) for case in cases_of(query, finder)]


def network_quantity(get: Callable[[Quantities, FigureQuery], Value]) -> Quantity:
    """A quantity of the network as measured at the end of training or after an epoch."""

    def each(case: Case, query: FigureQuery) -> Value:
        return get(case.report.quantities if query.epoch is None else _quantities_after(case, query.epoch), query)

    return per_case(each)


def _quantities_after(case: Case, epoch: int) -> Quantities:
    return judged(case.measurements_after(epoch), case.report.thresholds)


def combined_number(numbers: Sequence[Number], pick: Callable[[list[float]], float]) -> Number:
    """`pick` applied to several numbers; if one may not be used, that one instead."""
    bad = first_bad(numbers)
    return bad if bad is not None else Number.of(pick([number.known for number in numbers]))


def layer_cosines(q: Quantities) -> list[Number]:
    """The cosine of credit and gradient at each layer."""
    missing = Number.missing("no credit was measured")
    return [missing if layer.credit is None else layer.credit.cos for layer in q.layers]


def weights_quantity(get: Callable[[Measurements], Number]) -> Quantity:
    """A quantity of the final weights."""
    return per_case(lambda case, query: get(case.measurements))


def block_outputs(case: Case, query: FigureQuery) -> Value:
    """Growth of the blocks' outputs from before the first step to the end, as a factor."""
    return branch_growth(case.measurements_after(0), case.measurements)


def deep_early(case: Case, query: FigureQuery) -> Value:
    """The mean of the deep cosine after the first and the second epoch."""
    return combined_number([_quantities_after(case, epoch).aggregates.deep_mean_papers for epoch in (1, 2)], fmean)


def four_aggregates(q: Quantities) -> list[Number]:
    """The aggregate cosine Γ by each of the four aggregations."""
    return [q.aggregates.a1, q.aggregates.a2, q.aggregates.a3, q.aggregates.a4]


def aggregates_ratio(q: Quantities, query: FigureQuery) -> Number:
    """The largest of the four aggregates divided by the smallest, in absolute value."""
    sizes = combined_number(four_aggregates(q), lambda known: min(map(abs, known)))
    if sizes.ok and sizes.known == 0:
        return Number.invalid("one of the four aggregates is zero")
    return combined_number(four_aggregates(q), lambda known: max(map(abs, known)) / min(map(abs, known)))


def aggregates_differ_in_sign(q: Quantities, query: FigureQuery) -> Value:
    """Whether the four aggregates have both signs: yes or no."""
    bad = first_bad(four_aggregates(q))
    known = [number.value or 0.0 for number in four_aggregates(q)]
    return bad if bad is not None else YES if min(known) < 0 < max(known) else NO


def flag_value(case: Case, check: str) -> Number:
    """The number that a check compares with its threshold."""
    flag = case.report.flags[check]
    return Number.missing(flag.reason) if flag.value is None else Number.of(flag.value)


def log_quantity(get: Callable[[dict[str, Any], FigureQuery], float | None]) -> Quantity:
    """A quantity read from the log row of an epoch."""

    def each(case: Case, query: FigureQuery) -> Value:
        rows = [row for row in case.log if row["epoch"] == query.epoch]
        value = get(rows[0], query) if rows else None
        return Number.missing(f"the log has no value after epoch {query.epoch}") if value is None else Number.of(value)

    return per_case(each)


def alarm_quantity(case: Case, query: FigureQuery) -> Value:
    """The first epoch at which a detector fires, or `never`."""
    epoch = first_alarm(case, alarm(query.check, case.report.thresholds, query.floor))
    return NEVER_FIRED if epoch is None else Number.of(epoch)


def saved_quantity(case: Case, query: FigureQuery) -> Value:
    """The share of epochs that remain when the first detector fires, at the papers' own thresholds."""
    t = case.report.thresholds
    alarms = (alarm("D1", t), alarm("D2", t, PAPERS_FLOOR))
    known = [epoch for fires in alarms if (epoch := first_alarm(case, fires)) is not None]
    return Number.of(1 - min(known) / case.resolved.config.epochs) if known else Number.missing("no detector fires")


def no_detector_fires(query: FigureQuery, finder: Finder) -> list[Value]:
    """For each run at each of the places, whether no detector fires, even at the papers' floor: yes or no."""
    answers: list[Value] = []
    for place in query.places:
        for case in finder.cases(query.ours, place, "vit" if place == "vit" else "full"):
            t = case.report.thresholds
            alarms = (alarm("D1", t), alarm("D2", t), alarm("D2", t, PAPERS_FLOOR))
            answers.append(YES if all(first_alarm(case, fires) is None for fires in alarms) else NO)
    return answers


def finite_step_mean(name: str) -> Callable[[Case], Number]:
    """The mean of a finite-step metric over l = 1..L, as in the papers."""

    def get(case: Case) -> Number:
        return combined_number([getattr(layer, name).mean for layer in functional_layers(case.functional)[1:]], fmean)

    return get


def loss_change(case: Case) -> Number:
    """Change of the training loss over the run."""
    return train_loss_change(case.log)


def decrease(get: Callable[[Case], Number]) -> Callable[[Case], Number]:
    """The negative of a number: how much it decreases."""
    return lambda case: combined_number([get(case)], lambda known: -known[0])


def fresh_feedback_means(case: Case, first: int) -> Array:
    """The mean cosine over l = first..L for each fresh draw of the feedback."""
    drawn = case.measurements.get("null_fresh")
    if drawn is None:
        raise InputError(f"no fresh feedback was drawn for {case.run.name}")
    means: Array = drawn[first:].mean(axis=0)
    return means


def fresh_feedback_score(case: Case, query: FigureQuery) -> Value:
    """By how many standard deviations of the fresh draws the run's own feedback exceeds their mean."""
    own, drawn = case.report.quantities.aggregates.deep_mean_papers, fresh_feedback_means(case, 1)
    width = float(drawn.std(ddof=1))
    if width == 0:
        return Number.invalid("the draws have no spread")
    return combined_number([own], lambda known: (known[0] - float(drawn.mean())) / width)

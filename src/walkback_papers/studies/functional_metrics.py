"""Functional metrics: does the cosine rank methods as functional metrics of their credit do?

Papers: P2 section 4.3 and table 3
Claim: under a matched penalty the deep cosine ranks methods in another order than every functional metric does
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import fmean

from walkback.core.configuration import RunConfig
from walkback.judge.finite_steps import functional_deep, kendall_tau, train_loss_change
from walkback.judge.number import Number, first_bad
from walkback.report.cells import Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    all_true,
    caption,
    make_study_report,
    mean_cell,
    method_label_of,
    not_,
    numbers_cell,
    with_penalty,
)

FUNCTIONAL_PENALTY = 1e-2
RANKED = ("State Bridge", "FA", "Credit Bridge", "DFA")
Metric = Callable[[Case], Number]
Methods = Mapping[str, Sequence[Case]]


def _deep(name: str) -> Metric:
    def get(case: Case) -> Number:
        found: Number = getattr(functional_deep(case.functional), name).mean
        return found

    return get


def _negated(get: Metric) -> Metric:
    """The metric with the opposite sign: how much a loss falls, so that more is better for every metric."""

    def negative(case: Case) -> Number:
        number = get(case)
        return Number.of(-number.known, number.reason) if number.ok else number

    return negative


COSINES: dict[str, Metric] = {
    "cosine, exact layers counted": lambda case: case.report.quantities.aggregates.deep_mean_papers,
    "deep cosine": lambda case: case.report.quantities.aggregates.deep_mean,
}
PROBES: dict[str, Metric] = {
    "perturbation correlation": _deep("rho"),
    "fall by nudging": _negated(_deep("nudge_credit")),
    "efficiency": _deep("efficiency"),
}
"""Metrics of the credit at the trained weights."""
TRAINED: dict[str, Metric] = {
    "fall of the training loss": _negated(lambda case: train_loss_change(case.log)),
    "accuracy": lambda case: Number.of(case.accuracy),
}
"""Metrics of the whole training."""
FUNCTION = PROBES | TRAINED


class FunctionalMetrics(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return scale.runs([with_penalty(METHODS[name], FUNCTIONAL_PENALTY) for name in RANKED], epochs="short")

    def functional(self, scale: Scale) -> list[RunConfig]:
        return self.runs(scale)

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        cases = results.cases(self.runs(scale))
        methods = {name: [case for case in cases if method_label_of(case) == name] for name in RANKED}
        steps = (
            "Means over the deep layers (those whose credit trains a block, without exact ones). Nudging: change of "
            "the loss by a step of 1% of ‖h‖ against the credit; efficiency: its share of what the gradient gains."
        )
        ranks = (
            f"Kendall's τ-b over {len(methods)} methods: by the means over seeds, and in each seed alone. With four "
            "methods only τ = ±1 is unlikely by chance (1 in 24 orders each)."
        )
        return make_study_report(
            "functional-metrics",
            "Functional metrics",
            "Does the cosine rank methods as functional metrics of their credit do?",
            scale,
            cases,
            _findings(methods),
            tables=[
                _metrics(methods, caption(scale, cases, steps)),
                _ranks(methods, caption(scale, cases, ranks)),
            ],
            figures=[_figure(methods, caption(scale, cases, "Means over seeds."))],
        )


def _metrics(methods: Methods, caption_text: str) -> Table:
    heads = (
        "method", "accuracy", "cosine, exact counted", "deep cosine", "perturbation ρ", "nudging", "efficiency",
        "Δ train loss",
    )  # fmt: skip
    shown: tuple[tuple[Metric, str], ...] = (
        (COSINES["cosine, exact layers counted"], "+.3f"),
        (COSINES["deep cosine"], "+.3f"),
        (PROBES["perturbation correlation"], "+.3f"),
        (_deep("nudge_credit"), "+.1e"),
        (PROBES["efficiency"], "+.3f"),
        (lambda case: train_loss_change(case.log), "+.3f"),
    )
    rows = tuple(
        (
            Cell(name),
            mean_cell([case.accuracy for case in cases], ".3f"),
            *(numbers_cell(cases, get, spec) for get, spec in shown),
        )
        for name, cases in methods.items()
    )
    return Table("metrics", f"Four methods under λ = {FUNCTIONAL_PENALTY:g}", heads, rows, caption_text)


def _ranks(methods: Methods, caption_text: str) -> Table:
    rows = []
    for left, cosine in COSINES.items():
        for right, other in FUNCTION.items():
            whole = tau(methods, cosine, other)
            each = [tau(methods, cosine, other, seed) for seed in _seeds(methods)]
            texts = ", ".join(number.short("+.2f") for number in each)
            rows.append((Cell(left), Cell(right), Cell(whole.short("+.2f"), whole.value, whole.reason), Cell(texts)))
    heads = ("ranked by", "against", "τ", "τ in each seed")
    return Table("ranks", "Agreement of rankings", heads, tuple(rows), caption_text)


def tau(methods: Methods, left: Metric, right: Metric, seed: int | None = None) -> Number:
    """Kendall's τ of two metrics over methods: by their means over seeds, or in one seed."""
    sides = []
    for get in (left, right):
        values = [[get(case) for case in cases if seed in (None, case.seed)] for cases in methods.values()]
        bad = first_bad(number for each in values for number in each)
        if bad is not None:
            return bad
        sides.append([fmean(number.known for number in each) for each in values])
    return kendall_tau(*sides)


def ranking_text(methods: Methods, get: Metric) -> str:
    """The methods from largest to smallest, by their means over seeds."""
    values = {name: [get(case) for case in cases] for name, cases in methods.items()}
    bad = first_bad(number for each in values.values() for number in each)
    if bad is not None:
        return bad.word
    means = {name: fmean(number.known for number in each) for name, each in values.items()}
    return " > ".join(sorted(means, key=lambda name: -means[name]))


def _findings(methods: Methods) -> list[Finding]:
    papers, ours = COSINES.values()
    nudging, efficiency, accuracy = PROBES["fall by nudging"], PROBES["efficiency"], TRAINED["accuracy"]
    published = {"nudging": nudging, "training loss": TRAINED["fall of the training loss"], "accuracy": accuracy}
    leads = {name: _leads(methods, "State Bridge", get) for name, get in published.items()}
    answers = {True: "yes", False: "no", None: "not in every seed"}
    differences = [differently_ordered(methods, a, b) for a, b in combinations(published.values(), 2)]
    return [
        Finding(
            "cosine-and-nudging-differ",
            "Counted as published, the cosine and nudging order at least one pair of methods in opposite ways.",
            differently_ordered(methods, papers, nudging),
            _rankings_text(methods, papers, nudging),
        ),
        Finding(
            "differ-without-exact-layers",
            "So they do when exact layers are not counted and steps are compared by efficiency.",
            differently_ordered(methods, ours, efficiency),
            _rankings_text(methods, ours, efficiency),
        ),
        Finding(
            "cosine-and-accuracy-differ",
            "The deep cosine and the accuracy order at least one pair in opposite ways.",
            differently_ordered(methods, ours, accuracy),
            _rankings_text(methods, ours, accuracy),
        ),
        Finding(
            "state-bridge-leads",
            "State Bridge leads by every functional metric of the papers.",
            all_true(leads.values()),
            "; ".join(f"{name}: {answers[found]}" for name, found in leads.items()) + ".",
        ),
        Finding(
            "metrics-rank-alike",
            "These metrics rank methods alike.",
            all_true(not_(found) for found in differences),
            "; ".join(f"{name}: {ranking_text(methods, get)}" for name, get in published.items()) + ".",
        ),
    ]


def differently_ordered(methods: Methods, left: Metric, right: Metric) -> bool | None:
    """Whether two metrics order some pair of methods in opposite ways in every seed; False where they order all pairs
    alike in every seed; None otherwise: near ties change places by chance."""
    signs = [(_sign(a, b, left), _sign(a, b, right)) for a, b in combinations(methods.values(), 2)]
    if any(one and other and one == -other for one, other in signs):
        return True
    return False if all(one and one == other for one, other in signs) else None


def _sign(a: Sequence[Case], b: Sequence[Case], get: Metric) -> int | None:
    """1 if the first method is larger in every seed, -1 if the second is; None if seeds differ or one has no value."""
    found = set()
    for mine, other in zip(a, b, strict=True):
        x, y = get(mine), get(other)
        if not x.ok or not y.ok:
            return None
        found.add((x.known > y.known) - (x.known < y.known))
    return (found.pop() or None) if len(found) == 1 else None


def _leads(methods: Methods, name: str, get: Metric) -> bool | None:
    """Whether a method is the largest in every seed; False where another is larger in every seed; None otherwise."""
    signs = [_sign(methods[name], cases, get) for other, cases in methods.items() if other != name]
    return all_true({1: True, -1: False}.get(sign or 0) for sign in signs)


def _rankings_text(methods: Methods, left: Metric, right: Metric) -> str:
    each = ", ".join(tau(methods, left, right, seed).short("+.2f") for seed in _seeds(methods))
    whole = tau(methods, left, right)
    pairs = list(combinations(methods.values(), 2))
    signs = [(_sign(a, b, left), _sign(a, b, right)) for a, b in pairs]
    opposite = sum(bool(one and other and one == -other) for one, other in signs)
    return (
        f"{ranking_text(methods, left)} against {ranking_text(methods, right)}: τ = {whole:+.2f}; by seed {each}. "
        f"{opposite} of {len(pairs)} pairs of methods are in opposite order in every seed."
    )


def _seeds(methods: Methods) -> list[int]:
    return [case.seed for case in next(iter(methods.values()))]


def _figure(methods: Methods, caption_text: str) -> Figure:
    """Ranks by each metric, connected; next to them the values of the metrics that are 1 for the gradient."""
    metrics = COSINES | FUNCTION
    compared = [name for name in (*COSINES, *PROBES) if name != "fall by nudging"]

    def lines(names: Sequence[str], get: Callable[[str], Mapping[str, float]]) -> tuple[Series, ...]:
        by_metric = [get(name) for name in names]
        return tuple(
            Series(method, range(len(names)), [values.get(method) for values in by_metric], mark="both")
            for method in methods
        )

    ranks = Plot(
        "Rank of each method by each metric (1: best)",
        "",
        "rank",
        lines(list(metrics), lambda name: _ranks_by(methods, metrics[name])),
        ticks=tuple(map(_broken, metrics)),
        y_range=(len(methods) + 0.5, 0.5),
    )
    values = Plot(
        "Values of four of them",
        "",
        "mean over seeds",
        lines(compared, lambda name: _means(methods, metrics[name])),
        ticks=tuple(map(_broken, compared)),
    )
    orders = [ranking_text(methods, metrics[name]) for name in ("deep cosine", "accuracy")]
    title = f"Best by deep cosine: {_first(orders[0])}; best by accuracy: {_first(orders[1])}"
    return Figure("cosine-and-function", title, (ranks, values), caption_text, columns=1)


def _means(methods: Methods, get: Metric) -> dict[str, float]:
    """The mean over seeds of each method; without those that have no usable value."""
    values = {name: [get(case) for case in cases] for name, cases in methods.items()}
    return {name: fmean(n.known for n in each) for name, each in values.items() if all(n.ok for n in each)}


def _ranks_by(methods: Methods, get: Metric) -> dict[str, float]:
    """The rank of each method by its mean over seeds, 1 for the largest; empty where a method has no value."""
    means = _means(methods, get)
    order = sorted(means, key=lambda name: -means[name])
    return {name: place + 1.0 for place, name in enumerate(order)} if len(means) == len(methods) else {}


def _broken(name: str) -> str:
    return name.replace(" of the ", " of\nthe ").replace(", ", ",\n") if len(name) > 20 else name


def _first(order: str) -> str:
    return order.partition(" > ")[0]


STUDY = FunctionalMetrics()

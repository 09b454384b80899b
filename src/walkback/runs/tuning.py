"""Tune learning rates: train every method with every rate on a part of the training samples, choose on the rest.

The tuning runs are ordinary runs in the subfolder `tuning` of the folder of the judged ones, with the data's setting
`held_out`; so they resume, and share fleets. The table of all results is stored as `tuning.json` beside the judged
runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from walkback.core.errors import InputError
from walkback.core.settings import Spec
from walkback.core.tuning import TunedMethod, TuneOptions, TuningTable, rates_to_add, setting_digest
from walkback.data.held_out import HELD_OUT, HeldOut
from walkback.runs import store
from walkback.runs.deadline import Deadline
from walkback.runs.train_runs import (
    EpochObserver,
    ProgressListener,
    Result,
    TrainOptions,
    plan_unfinished,
    refuse_duplicates,
    train_resolved,
)
from walkback.runs.tuning_tables import TUNING, read_tables, store_tables
from walkback.training.planning.fleet_plan import FleetGroup
from walkback.training.resolved_run import ResolvedRun, resolve

TUNING_FOLDER = "tuning"


@dataclass(frozen=True)
class Tuning:
    """The outcome of tuning."""

    results: tuple[Result, ...]
    """Those of the tuning runs."""
    table: TuningTable | None
    """None while a tuning run is unfinished."""


def train_tuned(
    resolved_runs: Sequence[ResolvedRun],
    tune: TuneOptions | None,
    options: TrainOptions,
    listener: ProgressListener,
    observer: EpochObserver | None = None,
) -> tuple[list[Result], TuningTable | None]:
    """Train the runs, with `tune` each method with its own learning rate; with the table of the tuning.

    If the time is up while tuning, the results are those of the tuning runs: the others are not known yet.
    """
    if tune is None:
        return train_resolved(resolved_runs, options, listener, observer), None
    deadline = Deadline(options.max_seconds)
    tuning = tune_learning_rates(resolved_runs, tune, options, listener)
    if tuning.table is None:
        return list(tuning.results), None
    tuned = [resolved.tuned(tuning.table) for resolved in resolved_runs]
    return train_resolved(tuned, until(deadline, options), listener, observer), tuning.table


def tune_learning_rates(
    resolved_runs: Sequence[ResolvedRun], tune: TuneOptions, options: TrainOptions, listener: ProgressListener
) -> Tuning:
    """Choose the learning rate of every method among the runs, and store the table.

    All methods are tried with the same rates: where the best rate of one is at an edge, the grid is extended for all.
    """
    refuse_duplicates(resolved_runs)
    tune = replace(tune, seeds=tune.seeds_beside(resolved.config.seed for resolved in resolved_runs))
    methods = _by_method(resolved_runs)
    _refuse_existing(resolved_runs, tune, options)
    stored = read_tables(options.out)
    setting = setting_digest(resolved_runs[0].config.to_json())
    _refuse_other_grid(stored.get(setting), tune, options.out)
    deadline = Deadline(options.max_seconds)
    scores: dict[str, dict[float, list[float]]] = {method: {} for method in methods}
    units: dict[str, Literal["accuracy", "nats"]] = {}
    results: list[Result] = []
    rates = list(tune.lr)
    while rates:
        runs = tuning_runs(methods, rates, tune)
        place = replace(until(deadline, options), out=options.out / TUNING_FOLDER, stop_on_objection=False)
        found = train_resolved([run for _, _, run in runs], place, listener)
        results += found
        if any(result.status != "done" for result in found):
            return Tuning(tuple(results), None)
        for (method, rate, _), result in zip(runs, found, strict=True):
            units[method], score = _score(Path(result.path))
            scores[method].setdefault(rate, []).append(score)
        rows = [
            TunedMethod(method, {rate: tuple(each) for rate, each in scores[method].items()}, units[method])
            for method in methods
        ]
        rates = rates_to_add(tune.lr, rows)
        if rates:
            at_edge = ", ".join(row.method for row in rows if row.edge)
            shown = ", ".join(f"{rate:g}" for rate in rates)
            listener.noted(
                f"the best learning rate is at an edge of the grid ({at_edge}): trying {shown} for all methods"
            )
    kept = [row for row in (stored[setting].rows if setting in stored else ()) if row.method not in methods]
    table = TuningTable(setting, tune, (*rows, *kept))
    store_tables(options.out, {**stored, setting: table})
    return Tuning(tuple(results), table)


def planned_tuning(resolved_runs: Sequence[ResolvedRun], tune: TuneOptions, options: TrainOptions) -> list[FleetGroup]:
    """The fleets of the unfinished tuning runs of the grid as asked."""
    tune = replace(tune, seeds=tune.seeds_beside(resolved.config.seed for resolved in resolved_runs))
    runs = [run for _, _, run in tuning_runs(_by_method(resolved_runs), tune.lr, tune)]
    return plan_unfinished(runs, replace(options, out=options.out / TUNING_FOLDER))


def _by_method(resolved_runs: Sequence[ResolvedRun]) -> dict[str, ResolvedRun]:
    """One run of each method, in their order."""
    found: dict[str, ResolvedRun] = {}
    for resolved in resolved_runs:
        found.setdefault(resolved.method, resolved)
    return found


def tuning_runs(
    methods: Mapping[str, ResolvedRun], rates: Sequence[float], tune: TuneOptions
) -> list[tuple[str, float, ResolvedRun]]:
    """The runs that a choice among these rates is made from, each with its method and rate."""
    return [
        (method, rate, _tuning_run(resolved, rate, seed, tune.held_out))
        for method, resolved in methods.items()
        for rate in rates
        for seed in tune.seeds
    ]


def _tuning_run(resolved: ResolvedRun, rate: float, seed: int, held_out: float) -> ResolvedRun:
    config = resolved.config
    data = Spec(config.data.name, {**config.data.settings, HELD_OUT: held_out})
    return resolve(replace(config, lr=rate, seed=seed, data=data), HeldOut(resolved.source, held_out))


def with_stored_rates(resolved: ResolvedRun, folder: Path) -> ResolvedRun:
    """The run with the table that it was tuned by, if `folder` has one in which its learning rate is the chosen one:
    then its baselines are those with their own chosen learning rates."""
    table = read_tables(folder).get(setting_digest(resolved.config.to_json()))
    if table is None or table.rates.get(resolved.method) != resolved.config.lr:
        return resolved
    return resolved.tuned(table)


def until(deadline: Deadline, options: TrainOptions) -> TrainOptions:
    """The options with the time that is left."""
    return options if options.max_seconds is None else replace(options, max_seconds=deadline.left)


def _score(path: Path) -> tuple[Literal["accuracy", "nats"], float]:
    """What a finished run is chosen by."""
    result = store.open_run(path, without=(store.MODEL, store.RULE)).record["result"]
    return ("nats", float(result["test_loss"])) if "test_loss" in result else ("accuracy", float(result["test_acc"]))


def _refuse_existing(resolved_runs: Sequence[ResolvedRun], tune: TuneOptions, options: TrainOptions) -> None:
    """Refuse before hours of tuning what would be refused after them."""
    if options.resume:
        return
    for resolved in resolved_runs:
        for rate in tune.lr:
            path = options.out / resolved.with_lr(rate).name
            if path.exists():
                raise InputError(f"{path} exists already. Add --resume to go on with it, or choose another --out.")


def _refuse_other_grid(stored: TuningTable | None, tune: TuneOptions, out: Path) -> None:
    if stored is not None and stored.asked != tune:
        raise InputError(
            f"{out / TUNING} has learning rates tuned by another request ({_words(stored.asked)}; now {_words(tune)}). "
            "Ask for the same, or choose another --out."
        )


def _words(tune: TuneOptions) -> str:
    rates, seeds = ",".join(f"{rate:g}" for rate in tune.lr), ",".join(map(str, tune.seeds))
    return f"lr={rates}, seeds {seeds}, held out {tune.held_out:g}"

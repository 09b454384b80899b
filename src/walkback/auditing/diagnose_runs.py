"""Measure and judge stored runs, each compared with the baselines in the same folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from walkback.auditing.diagnose_model import ONE_PASS
from walkback.auditing.measure_run import RunMeasurer
from walkback.core.errors import InputError
from walkback.core.measurements import Array, Measurements
from walkback.core.tuning import TuningTable
from walkback.core.version import __version__
from walkback.judge.card import read_card
from walkback.judge.evidence import Evidence, OracleAccuracies
from walkback.judge.options import JudgeOptions
from walkback.judge.report import DiagnosticReport, judge
from walkback.report.save import CARD, MEASUREMENTS, save_card
from walkback.runs import store
from walkback.runs.run_index import RunIndex
from walkback.runs.train_runs import ProgressListener
from walkback.training.resolved_run import ResolvedRun

Correct = Callable[[store.Run, ResolvedRun], Array]
"""Gives 1 for each test sample a run gets right, 0 for the others."""


def diagnose_runs(
    paths: Sequence[Path],
    judge_options: JudgeOptions,
    measurer: RunMeasurer,
    listener: ProgressListener,
    forms: Sequence[str] = ("html",),
    *,
    again: bool = True,
) -> Iterator[DiagnosticReport]:
    """Measure finished runs one by one and judge each against the runs in its folder.

    Measurements, card and pages are written into the run's folder. Unless `again`, runs that were measured before in
    the same way are judged by their stored measurements.
    """
    indexes: dict[Path, RunIndex] = {}
    for done, path in enumerate(paths):
        listener.measuring(path.name, done, len(paths))
        folder = path.resolve().parent
        if folder not in indexes:
            indexes[folder] = RunIndex(folder)
        run = store.open_run(path, without=(store.RULE,))
        resolved = measurer.resolved(run)
        taken = None if again else stored_measurements(run, measurer)
        yield _diagnose_and_save(run, resolved, judge_options, measurer, indexes[folder], forms, taken)


def diagnose_resolved(
    resolved_runs: Sequence[ResolvedRun],
    folder: Path,
    judge_options: JudgeOptions,
    measurer: RunMeasurer,
    listener: ProgressListener,
    forms: Sequence[str] = ("html",),
    *,
    again: bool = True,
) -> Iterator[DiagnosticReport]:
    """The same for finished runs of one folder that are resolved already."""
    run_index = RunIndex(folder)
    for done, resolved in enumerate(resolved_runs):
        listener.measuring(resolved.name, done, len(resolved_runs))
        run = store.open_run(folder / resolved.name, without=(store.RULE,))
        measurer.check(run, resolved)
        taken = None if again else stored_measurements(run, measurer)
        yield _diagnose_and_save(run, resolved, judge_options, measurer, run_index, forms, taken)


def _diagnose_and_save(
    run: store.Run,
    resolved: ResolvedRun,
    judge_options: JudgeOptions,
    measurer: RunMeasurer,
    run_index: RunIndex,
    forms: Sequence[str],
    taken: Measurements | None = None,
) -> DiagnosticReport:
    """`taken` are the run's stored measurements, if it is not to be measured."""
    measured = measurer.measure(run, resolved) if taken is None else taken
    report = judge_run(run, resolved, measured, judge_options, run_index, measurer.correct, measurer.losses)
    if taken is None:
        report.measurements.save(run.path / MEASUREMENTS)
    save_card(report, run.path, forms)
    return report


def stored_measurements(run: store.Run, measurer: RunMeasurer) -> Measurements | None:
    """The run's stored measurements, if this version took them from these weights on such a device; else None."""
    if run.lacks_rule_state or not ((run.path / MEASUREMENTS).is_file() and (run.path / CARD).is_file()):
        return None
    # Files that are not those that were measured are refused, as when they are measured.
    run.model()
    if run.record["rule_has_state"]:
        run.rule_state()
    try:
        taken, version = Measurements.load(run.path / MEASUREMENTS), read_card(run.path / CARD)["walkback"]
    except InputError:  # Damaged files, or those of another version: measured anew and replaced.
        return None
    alike = all(taken.facts.get(name) == value for name, value in measurer.origin(run).items())
    return taken if alike and version == __version__ else None


def diagnose_run(
    run: store.Run, resolved: ResolvedRun, judge_options: JudgeOptions, measurer: RunMeasurer, run_index: RunIndex
) -> DiagnosticReport:
    """Measure one finished run and judge it; nothing is written."""
    taken = measurer.measure(run, resolved)
    return judge_run(run, resolved, taken, judge_options, run_index, measurer.correct, measurer.losses)


def judge_run(
    run: store.Run,
    resolved: ResolvedRun,
    measurements: Measurements,
    judge_options: JudgeOptions,
    run_index: RunIndex,
    correct: Correct,
    losses: Correct | None = None,
) -> DiagnosticReport:
    """Judge a run's measurements against the baselines in `run_index`."""
    evidence = evidence_of(resolved, judge_options.null, run_index, correct, test_size(measurements), losses)
    context = context_of(run, resolved, measurements, judge_options, run_index)
    return judge(
        measurements,
        evidence,
        judge_options.thresholds,
        judge_options.protocol,
        resolved.method,
        "",
        context,
        claimed=judge_options.claims,
    )


def test_size(measurements: Measurements) -> int | None:
    """The number of test samples of a measured run; None in measurements that do not have them."""
    stored = measurements.get("test_correct")
    return None if stored is None else len(stored)


def context_of(
    run: store.Run, resolved: ResolvedRun, measurements: Measurements, judge_options: JudgeOptions, run_index: RunIndex
) -> dict[str, Any]:
    """What the card says about the run: configuration, origin, what was and was not measured."""
    config = resolved.config
    feedback = f"yes, from {store.RULE}" if run.record["rule_has_state"] else "the rule keeps none"
    missing = ""
    if measurements.facts["labels"] is None:
        feedback = f"NO: {store.RULE} is missing"
        missing = f"{store.RULE} is missing, so the credit cannot be measured"
    return {
        "arch": str(config.arch),
        "data": config.data.name,
        "digest": run.record["data"]["digest"],
        "seed": config.seed,
        "shell": resolved.shared_options.shell,
        "provenance": {
            "run": run.name,
            "config": config.to_json(),
            "config_digest": run.record["digest"],
            "files": run.record["files"],
            "null": judge_options.null,
            **({} if resolved.tuning is None else {"tuning": _tuning_facts(resolved.tuning)}),
            "trained": run.record["versions"],
            "measured_on": measurements.facts["measured_on"],
        },
        "one_pass": ONE_PASS,
        "rule_state": feedback,
        "weights": f"yes, those after epoch {run.record['result']['epochs']} of {config.epochs}",
        "missing": missing,
        "notes": run_index.notes,
        "rerun": f"walkback diagnose {run.path} --protocol {judge_options.protocol} --null {judge_options.null}",
    }


def _tuning_facts(table: TuningTable) -> dict[str, Any]:
    return {
        "learning_rates_tried": table.grid,
        "seeds": table.asked.seeds,
        "held_out": table.asked.held_out,
        "chosen": table.rates,
        "at_edge": [row.method for row in table.rows if row.edge],
    }


def evidence_of(
    resolved: ResolvedRun,
    null: str,
    run_index: RunIndex,
    correct: Correct,
    test_samples: int | None = None,
    losses: Correct | None = None,
) -> Evidence:
    """The accuracies of the method, its frozen baselines, backprop and its oracles, over all seeds with finished runs.

    For a single seed also which test samples each run gets right, for an interval over samples. `test_samples` is the
    size of their test set. Networks that predict at every token are compared by their losses; `losses` gives those of
    a run's test windows.
    """
    found: dict[int, dict[str, tuple[store.Run, ResolvedRun]]] = {}
    for seed in run_index.seeds():
        runs = {"headline": resolved, **resolved.baselines}
        runs = {name: each.with_seed(seed) for name, each in runs.items()}
        found[seed] = {name: (run, made) for name, made in runs.items() if (run := run_index.finished(made))}
    tested = {seed: parts for seed, parts in found.items() if "headline" in parts}
    shells = [name for name in ("method_shell", "bp_shell") if any(name in parts for parts in tested.values())]
    # Only seeds that every part has can be paired.
    common = {seed: parts for seed, parts in tested.items() if all(name in parts for name in shells)}

    def results(name: str, key: str) -> list[float]:
        return [float(parts[name][0].record["result"][key]) for parts in common.values()]

    def accuracies(name: str) -> list[float]:
        return results(name, "test_acc")

    with_bp = bool(common) and all("bp" in parts for parts in common.values())
    single = next(iter(common.values())) if len(common) == 1 and shells else {}
    if resolved.net.per_token:
        known = {**single, **({} if with_bp else {"bp": None})}
        windows = {name: losses(*part) for name, part in known.items() if part} if losses else {}
        return Evidence.of(
            headline_acc=accuracies("headline"),
            frozen_baseline_acc={name: accuracies(name) for name in shells},
            bp_acc=accuracies("bp") if with_bp else None,
            null=null,
            seeds=common,
            test_samples=test_samples,
            oracles=_oracles(resolved, tuple(common), run_index, None),
            headline_loss=results("headline", "test_loss"),
            frozen_baseline_loss={name: results(name, "test_loss") for name in shells},
            bp_loss=results("bp", "test_loss") if with_bp else None,
            window_losses=windows,
        )
    return Evidence.of(
        headline_acc=accuracies("headline"),
        frozen_baseline_acc={name: accuracies(name) for name in shells},
        bp_acc=accuracies("bp") if with_bp else None,
        null=null,
        correct=correct(*single["headline"]) if single else None,
        bp_correct=correct(*single["bp"]) if single and with_bp else None,
        frozen_correct={name: correct(*single[name]) for name in shells} if single else None,
        seeds=common,
        test_samples=test_samples,
        oracles=_oracles(resolved, tuple(common), run_index, correct),
    )


def _oracles(
    resolved: ResolvedRun, seeds: Sequence[int], run_index: RunIndex, correct: Correct | None
) -> dict[str, OracleAccuracies]:
    """The accuracies of the oracle controls that are finished for all these seeds, each with its frozen baseline."""

    def finished(of: ResolvedRun) -> list[tuple[store.Run, ResolvedRun]]:
        made = [of.with_seed(seed) for seed in seeds]
        return [(run, each) for each in made if (run := run_index.finished(each))]

    def results(runs: Sequence[tuple[store.Run, ResolvedRun]], key: str) -> tuple[float, ...]:
        return tuple(float(run.record["result"][key]) for run, _ in runs if key in run.record["result"])

    def answers(runs: Sequence[tuple[store.Run, ResolvedRun]]) -> tuple[bool, ...]:
        """Which test samples a single run gets right, for an interval over samples."""
        return tuple(bool(value) for value in correct(*runs[0])) if correct and len(seeds) == 1 else ()

    found = {}
    for kind, oracle in resolved.oracles.items():
        runs, frozen = finished(oracle), finished(oracle.frozen_baseline)
        if seeds and len(runs) == len(frozen) == len(seeds):
            found[kind] = OracleAccuracies(
                oracle.method,
                results(runs, "test_acc"),
                results(frozen, "test_acc"),
                answers(runs),
                answers(frozen),
                results(runs, "test_loss"),
                results(frozen, "test_loss"),
            )
    return found

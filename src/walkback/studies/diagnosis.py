"""Measure and judge: a foreign model as it is handed over, or a stored run with the baselines that lie beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from walkback.core.errors import InputError
from walkback.core.measurements import Array, Measurements
from walkback.judge.evidence import Accuracies, Evidence
from walkback.judge.report import DiagnosticReport, judge
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.measure.discover import Blocks, subject_of
from walkback.measure.foreign import StepFn
from walkback.measure.inputs import regroup
from walkback.measure.restore import left_as_found
from walkback.measure.snapshot import Pool, measure
from walkback.measure.subject import Credit
from walkback.render.save import MEASUREMENTS, save_card
from walkback.studies import store
from walkback.studies.laboratory import Laboratory
from walkback.studies.provenance import provenance
from walkback.studies.run import Listener
from walkback.studies.shelf import Shelf, baselines, with_seed
from walkback.training.recipe import Recipe

Correct = Callable[[store.Run, Recipe], Array]
"""Gives 1 for each test sample a run gets right, 0 for the others."""
ONE_PASS = "yes: one frozen pass for each group of samples, in evaluation mode"


@dataclass(frozen=True)
class Judging:
    """How measurements are judged."""

    thresholds: DiagnosticThresholds | None = None
    protocol: str = "three"
    null: Literal["method_shell", "bp_shell"] = "method_shell"


def diagnose_model(
    model: nn.Module,
    eval_batches: Iterable[Any],
    accuracies: Mapping[str, Accuracies | Mapping[str, Accuracies]],
    judging: Judging,
    *,
    method_name: str,
    notes: str,
    credit: Credit | None,
    blocks: Blocks,
    pool: Pool,
    step_fn: StepFn | None,
) -> DiagnosticReport:
    """Measure a model someone else made, leaving it as it was, and judge it."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model is a {type(model).__name__}; expected a torch.nn.Module.")
    evidence = Evidence.of(**accuracies, null=judging.null)  # type: ignore[arg-type]
    groups = regroup(eval_batches)
    with left_as_found(model):
        subject = subject_of(model, blocks, *groups[0], step_fn)
        taken = measure(subject, groups, credit=credit, pool=pool)
    context = {"arch": type(model).__name__, "provenance": provenance(subject.device, ()), "one_pass": ONE_PASS}
    return judge(taken, evidence, judging.thresholds, judging.protocol, method_name, notes, context)


def diagnose_runs(
    paths: Sequence[Path],
    judging: Judging,
    laboratory: Laboratory,
    listener: Listener,
    forms: Sequence[str] = ("html",),
) -> Iterator[DiagnosticReport]:
    """Measure finished runs one by one and judge each beside the runs that lie with it.

    Numbers, card and pages are kept in the run's folder.
    """
    shelves: dict[Path, Shelf] = {}
    for done, path in enumerate(paths):
        listener.measuring(path.name, done, len(paths))
        folder = path.resolve().parent
        if folder not in shelves:
            shelves[folder] = Shelf(folder)
        report = diagnose_run(store.open_run(path, without=(store.RULE,)), judging, laboratory, shelves[folder])
        report.measurements.save(path / MEASUREMENTS)
        save_card(report, path, forms)
        yield report


def diagnose_run(run: store.Run, judging: Judging, laboratory: Laboratory, shelf: Shelf) -> DiagnosticReport:
    """Measure one finished run and judge it; nothing is written."""
    recipe = laboratory.recipe(run)
    return judge_run(run, recipe, laboratory.measure(run, recipe), judging, shelf, laboratory.correct)


def judge_run(
    run: store.Run, recipe: Recipe, taken: Measurements, judging: Judging, shelf: Shelf, correct: Correct
) -> DiagnosticReport:
    """Judge what was measured of a run, beside the runs that lie with it."""
    evidence = evidence_of(recipe, judging.null, shelf, correct)
    context = context_of(run, recipe, taken, judging, shelf)
    return judge(taken, evidence, judging.thresholds, judging.protocol, recipe.method, "", context)


def context_of(run: store.Run, recipe: Recipe, taken: Measurements, judging: Judging, shelf: Shelf) -> dict[str, Any]:
    """Where a stored run comes from, as its card says it."""
    config = recipe.config
    feedback = f"yes, from {store.RULE}" if run.record["rule_has_state"] else "the rule keeps none"
    feedback = f"NO: {store.RULE} is missing" if taken.facts["labels"] is None else feedback
    gone = f"{store.RULE} is missing, so the credit cannot be measured" if taken.facts["labels"] is None else ""
    return {
        "arch": str(config.arch),
        "data": config.data.name,
        "digest": run.record["data"]["digest"],
        "seed": config.seed,
        "shell": recipe.treatment.shell,
        "provenance": {
            "run": run.name,
            "config": config.to_json(),
            "config_digest": run.record["digest"],
            "files": run.record["files"],
            "null": judging.null,
            "trained": run.record["versions"],
            "measured_on": taken.facts["measured_on"],
        },
        "one_pass": ONE_PASS,
        "rule_state": feedback,
        "weights": f"yes, those after epoch {run.record['result']['epochs']} of {config.epochs}",
        "missing": gone,
        "notes": shelf.notes,
        "rerun": f"walkback diagnose {run.path} --protocol {judging.protocol} --null {judging.null}",
    }


def evidence_of(recipe: Recipe, null: str, shelf: Shelf, correct: Correct) -> Evidence:
    """The accuracies of the method, its shells and backprop, over all seeds that lie finished on the shelf.

    Of a single seed also which test samples each gets right, for an interval over samples.
    """
    found: dict[int, dict[str, tuple[store.Run, Recipe]]] = {}
    for seed in shelf.seeds():
        own = with_seed(recipe, seed)
        runs = {"headline": own, **baselines(own)}
        found[seed] = {name: (run, made) for name, made in runs.items() if (run := shelf.finished(made))}
    tested = {seed: parts for seed, parts in found.items() if "headline" in parts}
    shells = [name for name in ("method_shell", "bp_shell") if any(name in parts for parts in tested.values())]
    # Only seeds that every part has can be paired.
    common = {seed: parts for seed, parts in tested.items() if all(name in parts for name in shells)}

    def accuracies(name: str) -> list[float]:
        return [float(parts[name][0].record["result"]["test_acc"]) for parts in common.values()]

    with_bp = bool(common) and all("bp" in parts for parts in common.values())
    single = next(iter(common.values())) if len(common) == 1 and shells else {}
    return Evidence.of(
        headline_acc=accuracies("headline"),
        frozen_baseline_acc={name: accuracies(name) for name in shells},
        bp_acc=accuracies("bp") if with_bp else None,
        null=null,
        correct=correct(*single["headline"]) if single else None,
        frozen_correct={name: correct(*single[name]) for name in shells} if single else None,
        seeds=common,
    )

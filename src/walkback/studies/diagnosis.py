"""Measure and judge: a foreign model as it is handed over, or a stored run with the baselines that lie beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from walkback.core.config import RunConfig
from walkback.core.errors import InputError
from walkback.core.measurements import GROUP, Measurements
from walkback.core.settings import Choice
from walkback.data.dataset import Dataset, DataSource
from walkback.data.feed import TestSet
from walkback.judge.evidence import Accuracies, Evidence
from walkback.judge.report import DiagnosticReport, judge
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.measure.discover import Blocks, subject_of
from walkback.measure.foreign import StepFn
from walkback.measure.restore import left_as_found
from walkback.measure.snapshot import Pool, measure, regroup
from walkback.measure.subject import Credit, OwnSubject
from walkback.nets.network import Leaves
from walkback.render.save import MEASUREMENTS, save_card
from walkback.studies import store
from walkback.studies.provenance import describe, provenance
from walkback.training.driver import prepare
from walkback.training.recipe import Recipe, resolve

SAMPLES = 8 * GROUP
"""Evaluation samples of a stored run: the first of its test set."""


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
    context = {"arch": type(model).__name__, "provenance": provenance(subject.device, ())}
    return judge(taken, evidence, judging.thresholds, judging.protocol, method_name, notes, context)


def diagnose_runs(
    paths: Iterable[Path], judging: Judging, *, data_root: Path | None, device: torch.device
) -> Iterator[DiagnosticReport]:
    """Measure finished runs one by one and judge each beside the runs that lie with it.

    Numbers, card and page are kept in the run's folder. Data sets are read once, however many runs use them.
    """
    known: dict[DataSource, Dataset] = {}
    for path in paths:
        run = store.open_run(path)
        recipe = recipe_of(run)
        if recipe.source not in known:
            known[recipe.source] = recipe.source.load(data_root)
        report = _diagnosed(run, recipe, known[recipe.source], judging, device)
        save_card(report, run.path, ("html",))
        yield report


def _diagnosed(
    run: store.Run, recipe: Recipe, data: Dataset, judging: Judging, device: torch.device
) -> DiagnosticReport:
    _refuse_other_data(run, recipe, data)
    taken = measure_run(run, recipe, data, device)
    taken.save(run.path / MEASUREMENTS)
    config = recipe.config
    context = {
        "arch": str(config.arch),
        "data": config.data.name,
        "digest": data.digest,
        "shell": recipe.treatment.shell,
        "provenance": {"run": run.name, "config": config.to_json(), "trained": run.record["versions"]}
        | {"measured_on": describe(device)},
        "rerun": f"walkback diagnose {run.path} --protocol {judging.protocol}",
    }
    evidence = evidence_of(recipe, run.path.parent, judging.null)
    return judge(taken, evidence, judging.thresholds, judging.protocol, recipe.method, "", context)


def recipe_of(run: store.Run) -> Recipe:
    """What a stored run was made of, checked against its hash."""
    recipe = resolve(RunConfig.from_json(run.record["config"]))
    if recipe.config.digest() != run.record["digest"]:
        raise store.damaged(run.path, "its configuration does not have the hash that was recorded")
    return recipe


def _refuse_other_data(run: store.Run, recipe: Recipe, data: Dataset) -> None:
    if data.digest != run.record["data"]["digest"]:
        raise InputError(
            f"{run.path} was trained on data with sha256 {run.record['data']['digest'][:12]}…, but "
            f"'{recipe.config.data.name}' here has {data.digest[:12]}…. Measure it where its data are."
        )


def measure_run(run: store.Run, recipe: Recipe, data: Dataset, device: torch.device) -> Measurements:
    """One frozen pass and its float64 replay over the first test samples, credit included."""
    prepare(device)
    params = _leaves(run, "model", run.model(), recipe.params(), device)
    state = _leaves(run, "rule", run.rule_state(), recipe.state(), device)
    subject = OwnSubject(recipe.net, params, recipe.rule, state)
    samples = _first(TestSet(data, recipe.dtype, device).batches(), SAMPLES)
    labels = recipe.rule.labels(recipe.net.depth)
    return measure(subject, samples, labels=labels, site=recipe.treatment.site)


def _leaves(run: store.Run, what: str, arrays: store.Arrays, expected: Leaves, device: torch.device) -> Leaves:
    """Stored arrays as tensors, refused where they are not those of this network or rule."""
    got = {name: tuple(array.shape) for name, array in arrays.items()}
    wanted = {name: tuple(leaf.shape) for name, leaf in expected.items()}
    if got != wanted:
        name = sorted(set(got.items()) ^ set(wanted.items()))[0][0]
        raise store.damaged(
            run.path, f"{what}.safetensors does not hold this {what}: '{name}' differs in name or shape"
        )
    return {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}


def _first(batches: Sequence[tuple[Tensor, Tensor]], count: int) -> list[tuple[Tensor, Tensor]]:
    x, y = (torch.cat(parts)[:count] for parts in zip(*batches, strict=True))
    return [(x, y)]


def evidence_of(recipe: Recipe, folder: Path, null: str) -> Evidence:
    """The accuracies of the method, its shells and backprop, over all seeds that lie finished in the same folder."""
    candidates = {recipe.config.seed} | {store.open_run(path).record["seed"] for path in store.find_runs(folder)}
    accuracies = {seed: _accuracy(recipe, folder, seed, {}) for seed in sorted(candidates)}
    headline = {seed: accuracy for seed, accuracy in accuracies.items() if accuracy is not None}
    found: dict[str, dict[int, float]] = {}
    own_shell = "bp" if recipe.config.method.name == "bp" else "method"
    # Frozen blocks are not moved by a penalty, so the shell without one is the same network.
    variants: dict[str, tuple[str, dict[str, Any]]] = {
        "method_shell": (recipe.config.method.name, {"shell": own_shell, "penalty": 0.0, "penalty_reduction": "sum"}),
        "bp_shell": ("bp", {"shell": "bp"}),
        "bp": ("bp", {}),
    }
    if recipe.treatment.shell == "none":
        for name, (rule, changes) in variants.items():
            values = {seed: _accuracy(recipe, folder, seed, changes, rule) for seed in headline}
            found[name] = {seed: value for seed, value in values.items() if value is not None}
    # Only seeds that every part has can be paired.
    shells = {name: values for name, values in found.items() if name != "bp" and values}
    common = [seed for seed in headline if all(seed in values for values in shells.values())]
    bp = [found["bp"][seed] for seed in common if seed in found.get("bp", {})]
    return Evidence.of(
        headline_acc=[headline[seed] for seed in common],
        frozen_baseline_acc={name: [values[seed] for seed in common] for name, values in shells.items()},
        bp_acc=bp if len(bp) == len(common) else None,
        null=null,
    )


def _accuracy(
    recipe: Recipe, folder: Path, seed: int, changes: Mapping[str, Any], rule: str | None = None
) -> float | None:
    """Test accuracy of the same configuration with another seed, shell or rule; None where it was not trained here."""
    method = recipe.config.method
    # Another rule has other settings, so nothing of this one's is carried over.
    own = {**changes} if rule not in (None, method.name) else {**method.settings, **changes}
    variant = resolve(replace(recipe.config, method=Choice(rule or method.name, own), seed=seed))
    path = folder / variant.name
    if not path.is_dir():
        return None
    run = store.open_run(path)
    return float(run.record["result"]["test_acc"]) if run.is_done else None

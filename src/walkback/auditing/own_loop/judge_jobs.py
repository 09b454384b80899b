"""Judge the models of finished jobs: accuracies of the jobs beside them, measurements, cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from walkback.auditing.diagnose_model import ONE_PASS
from walkback.auditing.own_loop.function_reference import changed_sources
from walkback.auditing.own_loop.jobs import BACKPROP, LoopJob
from walkback.auditing.own_loop.measure_plan import MeasurePlan, load_weights, uses_feedback
from walkback.auditing.own_loop.random_states import seed_all
from walkback.auditing.own_loop.state_arrays import checked_state
from walkback.auditing.own_loop.train_job import CORRECT, INITIAL
from walkback.core.errors import InputError
from walkback.core.measurements import Measurements
from walkback.core.reading.schema import Schema, check_schema
from walkback.judge.evidence import Evidence, OracleAccuracies
from walkback.judge.options import JudgeOptions
from walkback.judge.report import DiagnosticReport, judge
from walkback.measure.restore import random_state_restored
from walkback.measure.snapshot import BACKWARD
from walkback.runs import store
from walkback.runs.provenance import describe_device

FindRun = Callable[[LoopJob], store.Run | None]
"""The finished run of a job, or None."""


class JobFolder:
    """The finished jobs in one folder, each opened once."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._known: dict[str, store.Run | None] = {}

    def finished(self, spec: LoopJob) -> store.Run | None:
        if spec.name not in self._known:
            path = self.folder / spec.name
            run = store.open_run(path) if path.is_dir() else None
            self._known[spec.name] = run if run is not None and run.is_done else None
        return self._known[spec.name]


def spec_of(run: store.Run) -> LoopJob:
    """The job that a stored run is."""
    config, fault = run.record["config"], store.fault_of_run(run.path, store.RECORD)
    check_schema(config, _CONFIG, fault, "config")
    check_schema(run.record, _OWN_LOOP if run.is_done else {"required": [store.OWN_LOOP]}, fault)
    return LoopJob(config["method"], config["seed"], config["frozen"], config["credit"])


def measure_job(run: store.Run, plan: MeasurePlan, device: torch.device) -> Measurements:
    """Build the job's model, load its weights, and measure it."""
    spec, skeletons = spec_of(run), run.record[store.OWN_LOOP]["skeletons"]
    model = load_weights(
        plan.build_for(spec.method), _state(run, store.MODEL, skeletons, run.params()), device, run.name
    )
    feedback = initial = None
    if store.RULE in skeletons:
        feedback = _state(run, store.RULE, skeletons, run.rule_state(), device)
    if INITIAL in skeletons:
        initial = _state(run, INITIAL, skeletons, run.other(INITIAL), device)
    with random_state_restored():
        seed_all(spec.seed)  # A backward pass that draws random numbers draws the same ones when it is verified.
        taken = plan.measure(spec.method, model, feedback, initial)
    facts = {**taken.facts, "measured_on": describe_device(device), "files": run.record["files"]}
    return Measurements(taken.arrays, facts)


def _state(
    run: store.Run, name: str, skeletons: Mapping[str, Any], arrays: store.Arrays, device: torch.device | None = None
) -> Any:
    return checked_state(skeletons[name], arrays, store.fault_of_run(run.path, name), device)


_CONFIG: Schema = {
    "required": ["method", "seed", "frozen", "credit"],
    "properties": {
        "method": {"type": "string"},
        "seed": {"type": "integer", "minimum": 0},
        "frozen": {"type": "boolean"},
        "credit": {"enum": ["own", "exact"]},
    },
}
_OWN_LOOP: Schema = {
    "required": [store.OWN_LOOP],
    "properties": {
        store.OWN_LOOP: {
            "type": "object",
            "required": ["functions", "sources", "skeletons", "model", "trained_on", "epochs", "epochs_asked"],
            "properties": {
                "sources": {"type": "object", "additionalProperties": {"type": "string"}},
                "skeletons": {"type": "object", "required": [store.MODEL]},
            },
        }
    },
}


def judge_job(
    run: store.Run,
    measurements: Measurements,
    evidence: Evidence,
    plan: MeasurePlan,
    described: Mapping[str, str],
    judge_options: JudgeOptions,
    jobs: Sequence[store.Run],
    claimed: Sequence[str] | None = None,
) -> DiagnosticReport:
    """Judge a measured job. `jobs` are all jobs of the audit, whose source files are compared."""
    return judge(
        measurements,
        evidence,
        judge_options.thresholds,
        judge_options.protocol,
        spec_of(run).shown,
        described.get("recipe", ""),
        _context(run, measurements, plan, described, judge_options, jobs),
        claimed=judge_options.claims if claimed is None else claimed,
    )


def evidence_of_jobs(spec: LoopJob, seeds: Sequence[int], null: str, jobs: JobFolder) -> Evidence:
    """The accuracies or losses of a method, its frozen baselines, backprop and its oracle, over these seeds."""
    parts = {
        "headline": spec,
        "method_shell": spec.baseline,
        "bp_shell": spec.backprop.baseline,
        "bp": spec.backprop,
        "oracle": spec.oracle,
        "oracle_shell": spec.oracle.baseline,
    }
    if spec.method == BACKPROP:
        parts = {name: part for name, part in parts.items() if not name.startswith("oracle")}
    runs = {name: [jobs.finished(part.with_seed(seed)) for seed in seeds] for name, part in parts.items()}
    known = {name: [run for run in found if run is not None] for name, found in runs.items() if all(found)}
    accuracies, losses = _results(known, "test_acc"), _results(known, "test_loss")
    shells = [name for name in _SHELLS if name in accuracies]
    correct = {name: _correct(found[0]) for name, found in known.items() if len(seeds) == 1}
    sizes = {len(each) for each in (_correct(run) for found in known.values() for run in found) if each is not None}
    if len(sizes) > 1:
        raise InputError(
            f"The jobs returned correct= for {' and '.join(map(str, sorted(sizes)))} test samples; expected one test "
            "set."
        )
    oracles = {}
    if {"oracle", "oracle_shell"} <= accuracies.keys():
        oracles["exact"] = OracleAccuracies(
            spec.oracle.shown,
            tuple(accuracies["oracle"]),
            tuple(accuracies["oracle_shell"]),
            _booleans(correct.get("oracle")),
            _booleans(correct.get("oracle_shell")),
        )
    return Evidence.of(
        headline_acc=accuracies.get("headline"),
        frozen_baseline_acc={name: accuracies[name] for name in shells},
        bp_acc=accuracies.get("bp"),
        null=null,
        correct=correct.get("headline"),
        bp_correct=correct.get("bp"),
        frozen_correct={name: each for name in shells if (each := correct.get(name)) is not None},
        seeds=seeds if "headline" in accuracies or "headline" in losses else (),
        test_samples=next(iter(sizes), None),
        oracles=oracles,
        **_losses_given(losses),
    )


_SHELLS = ("method_shell", "bp_shell")


def _results(known: Mapping[str, Sequence[store.Run]], key: str) -> dict[str, list[float]]:
    """This result of each training over its seeds, where every seed has it."""
    return {
        name: [float(run.record["result"][key]) for run in found]
        for name, found in known.items()
        if all(key in run.record["result"] for run in found)
    }


def _losses_given(losses: Mapping[str, list[float]]) -> dict[str, Any]:
    """Test losses as `Evidence.of` takes them; they decide where the method has one."""
    if "headline" not in losses:
        return {}
    return {
        "headline_loss": losses["headline"],
        "frozen_baseline_loss": {name: losses[name] for name in _SHELLS if name in losses},
        "bp_loss": losses.get("bp"),
    }


def _correct(run: store.Run) -> np.ndarray | None:
    return run.other(CORRECT).get("correct")


def _booleans(correct: np.ndarray | None) -> tuple[bool, ...]:
    return () if correct is None else tuple(bool(value) for value in correct)


def _context(
    run: store.Run,
    measurements: Measurements,
    plan: MeasurePlan,
    described: Mapping[str, str],
    judge_options: JudgeOptions,
    jobs: Sequence[store.Run],
) -> dict[str, Any]:
    """What the card says of the training: who trained it, from which sources, and what was stored."""
    spec, own = spec_of(run), run.record[store.OWN_LOOP]
    feedback = ""
    if measurements.facts["credit"] == BACKWARD:
        feedback = f"yes: the backward pass of the model in {store.MODEL} was measured"
    elif spec.method == BACKPROP:
        feedback = "backprop has none"
    elif run.record["rule_has_state"]:
        read = (
            "read by the measured credit"
            if uses_feedback(plan.options, spec.method)
            else "not read by the measured credit"
        )
        feedback = f"stored in {store.RULE}, {read}"
    epochs, asked = own["epochs"], own["epochs_asked"]
    weights = "yes, those the training function returned"
    weights += "" if asked is None else f", after epoch {epochs} of {asked}"
    return {
        "arch": described.get("arch") or own["model"],
        "data": described.get("data", ""),
        "digest": f"evaluation samples {measurements.facts['sample_hash']}",
        "seed": spec.seed,
        "shell": "method" if spec.frozen else "none",
        "provenance": {
            "run": run.name,
            store.OWN_LOOP: {"functions": own["functions"], "sources": own["sources"], "credit": spec.credit},
            "config_digest": run.record["digest"],
            "files": run.record["files"],
            "null": judge_options.null,
            "trained": run.record["versions"],
            "trained_on": own["trained_on"],
            "measured_on": measurements.facts["measured_on"],
            "described": dict(described),
        },
        "one_pass": ONE_PASS,
        "rule_state": feedback,
        "weights": weights,
        "notes": mixed_sources(run, jobs, plan.sources),
        "rerun": f"walkback verify {run.path} {run.path}",
    }


def mixed_sources(run: store.Run, jobs: Sequence[store.Run], measured_with: Mapping[str, str]) -> list[str]:
    """A note for each source file that changed while the job was trained, until it was measured, or between jobs."""
    record = run.record[store.OWN_LOOP]
    own = record["sources"]
    notes = [
        f"Source file {file} changed after epoch {change['epoch']} of {run.name}."
        for change in record.get("changed", [])
        for file in change["files"]
    ]
    notes += [
        f"Source file {file} changed after {run.name} was trained and before it was measured."
        for file in changed_sources(own, measured_with)
    ]
    others = [(other.name, changed_sources(own, other.record[store.OWN_LOOP]["sources"])) for other in jobs]
    changed = {file: name for name, files in others for file in files}
    return notes + [
        f"Source file {file} differs between {run.name} and {name}." for file, name in sorted(changed.items())
    ]

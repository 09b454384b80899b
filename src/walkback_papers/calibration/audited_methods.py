"""Methods of the catalog, trained and measured as `walkback audit` does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from walkback.auditing.audit import with_baselines
from walkback.auditing.measure_run import RunMeasurer
from walkback.core.configuration import RunConfig
from walkback.core.errors import WalkbackError
from walkback.judge.quantities import quantities
from walkback.runs import store
from walkback.runs.train_runs import ProgressListener, TrainOptions, choose_device, train_resolved
from walkback.training.resolved_run import ResolvedRun, resolve
from walkback_papers.calibration.seed_results import THRESHOLDS, Answers, SeedResult

AUDITED = {
    "BP": "bp",
    "KP": "kp",
    "FA": "fa",
    "DFA": "dfa",
    "DFA, normalised error at the input": "dfa:scale=unit_error,site=input",
}
"""The methods by the name that tables show."""


def audited_results(configs: Sequence[RunConfig], options: TrainOptions) -> dict[str, Any]:
    """The results of these runs by the name of their method. Runs and baselines are trained below `options.out`."""
    resolved_runs = [resolve(config) for config in configs]
    results = train_resolved(with_baselines(resolved_runs), options, ProgressListener())
    if any(result.status != "done" for result in results):
        raise WalkbackError(f"The runs in {options.out} were not finished.")
    return _measured(resolved_runs, options)


def _measured(resolved_runs: Sequence[ResolvedRun], options: TrainOptions) -> dict[str, Any]:
    measurer = RunMeasurer(options.data_root, choose_device(options.device))
    names = {text: name for name, text in AUDITED.items()}

    def opened(resolved: ResolvedRun) -> store.Run:
        return store.open_run(options.out / resolved.name)

    methods: dict[str, list[dict[str, Any]]] = {}
    share = 0.0
    for resolved in resolved_runs:
        measured = measurer.measure(opened(resolved), resolved)
        share = float(measured.facts["majority_share"])
        baselines = {name: measurer.correct(opened(each), each) for name, each in resolved.baselines.items()}
        own = Answers.of(measured.arrays["test_correct"], baselines["method_shell"])
        bp = Answers.of(baselines["bp"], baselines["bp_shell"])
        result = SeedResult.of(resolved.config.seed, own, bp, quantities(measured, THRESHOLDS))
        methods.setdefault(names[resolved.method], []).append(result.to_json())
    return {"majority_share": share, "methods": methods}

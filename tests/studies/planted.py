"""Runs with made-up results in the stored format, to test a study's arithmetic on known numbers without training.

    runs = PlantedRuns(tmp_path)
    runs.plant(SMOKE.runs(["bp"]), accuracy=0.9, shell=0.5, measured={"cosines": 1.0})
    runs.plant(SMOKE.runs([METHODS["DFA"]]), accuracy=[0.3, 0.4], shell=0.5, measured={"growth": 200, "grad": 1e-9,
               "cosines": [0.4, 0, 0, 0, 0]}, log=[log_row(1), log_row(2, growth=60)])
    report = STUDY.report_results(runs.results(), SMOKE)

The folders have the format of real runs and are read and judged by the real code; only the numbers are made up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from fake_measurements import fake

from walkback.core.configuration import RunConfig
from walkback.core.measurements import Measurements
from walkback.report.save import MEASUREMENTS
from walkback.report.study_report import StudyReport, Table
from walkback.runs import store
from walkback.runs.measurement_files import EPOCHS_FOLDER, FUNCTIONAL
from walkback.training.resolved_run import ResolvedRun, resolve
from walkback_papers.results import Results
from walkback_papers.tables import method_label

PerSeed = float | Sequence[float]
"""One value for all configurations, or one for each in the order given."""
Measured = Mapping[str, Any] | Measurements
"""Arguments of `fake`, or the measurements themselves. `blocks`, `labels` and `site` are filled in from the run. A
single number for `cosines` is used at every layer, and 1 where the credit is exact by construction."""


class PlantedRuns:
    """A folder of finished runs with given results."""

    def __init__(self, folder: Path):
        self.folder = folder / "runs"
        self.folder.mkdir(parents=True, exist_ok=True)

    def plant(
        self,
        configs: Sequence[RunConfig],
        *,
        accuracy: PerSeed = 0.6,
        shell: PerSeed | None = None,
        bp_shell: PerSeed | None = None,
        bp: PerSeed | None = None,
        measured: Measured | None = None,
        log: Sequence[Mapping[str, Any]] = (),
        measured_after: Mapping[int, Measured] | None = None,
        functional: Mapping[str, Any] | None = None,
        weights: tuple[float, float] | None = None,
    ) -> None:
        """Write finished runs with these results, replacing earlier ones of the same configurations.

        `shell`, `bp_shell` and `bp` are the accuracies of the frozen baseline, of backprop's frozen baseline and of
        backprop; `bp_shell` defaults to `shell`; without `bp` no run of backprop is written. `measured_after` gives
        measurements by epoch. `functional` gives arrays: one number for every layer or one for all, spread over
        samples. `weights` are the norms of every parameter's change and final value, relative to its initial norm.
        """
        accuracies = {"method_shell": shell, "bp_shell": shell if bp_shell is None else bp_shell, "bp": bp}
        given = {name: values for name, values in accuracies.items() if values is not None}
        # These files need not survive a power failure.
        with patch("os.fsync"):
            for place, config in enumerate(configs):
                resolved = resolve(config)
                self._write_run(
                    resolved, _value_of(accuracy, place), measured, log, measured_after, functional, weights
                )
                baselines = resolved.baselines if given else {}
                for name, values in given.items():
                    if name in baselines and baselines[name].name != resolved.name:
                        self._write_run(baselines[name], _value_of(values, place), None, (), None, None)

    def results(self) -> Results:
        """The planted runs as a study reads them."""
        return Results(self.folder)

    def _write_run(
        self,
        resolved: ResolvedRun,
        accuracy: float,
        measured: Measured | None,
        log: Sequence[Mapping[str, Any]],
        measured_after: Mapping[int, Measured] | None,
        functional: Mapping[str, Any] | None,
        weights: tuple[float, float] | None = None,
    ) -> None:
        path = self.folder / resolved.name
        if not path.exists():
            store.create_run(path, _record(resolved))
        run = store.open_run(path, without=(store.MODEL, store.RULE))
        run.truncate_log(0)
        for row in log:
            run.append_log(row)
        run.finish({}, {}, {"test_acc": float(accuracy), "epochs": resolved.config.epochs}, {"seconds": 1.0})
        _with_weight_norms(resolved, _final_measurements(resolved, measured or {}), weights).save(path / MEASUREMENTS)
        if measured_after:
            (path / EPOCHS_FOLDER).mkdir(exist_ok=True)
        for epoch, measured_then in (measured_after or {}).items():
            _final_measurements(resolved, measured_then).save(path / EPOCHS_FOLDER / f"{epoch:04d}.npz")
        if functional is not None:
            _finite_step_measurements(resolved, functional).save(path / FUNCTIONAL)


def log_row(epoch: int, growth: float = 1.3, grad: float = 4e-4, accuracy: float = 0.5, **more: Any) -> dict[str, Any]:
    """A row of the log of a run with four blocks; D1 reads `growth`, D2 reads `grad`."""
    row = {
        "epoch": epoch,
        "loss": 1.0,
        "train_acc": accuracy,
        "test_acc": accuracy,
        "growth": growth,
        "grad_top": grad,
        "direction": 0.1,
        "hidden": [10.0] * 4 + [10.0 * growth],
        "grad": [grad] * 5,
        "cosine": [0.0] * 5,
    }
    return row | more


def holds(study_report: StudyReport, finding_id: str) -> bool | None:
    """Whether the finding with this id holds."""
    return study_report.finding(finding_id).holds


def cells(study_report: StudyReport, table: str, column: str) -> dict[str, str]:
    """One column of a table: its texts by the text of the first column."""
    found = _table(study_report, table)
    place = found.heads.index(column)
    return {row[0].text: row[place].text for row in found.rows}


def shifted(configs: Sequence[RunConfig], **changes: Any) -> list[RunConfig]:
    """The same configurations with other fields."""
    return [replace(config, **changes) for config in configs]


def _table(study_report: StudyReport, name: str) -> Table:
    (found,) = [table for table in study_report.tables if table.name == name]
    return found


def _value_of(values: PerSeed, place: int) -> float:
    return float(values[place]) if isinstance(values, Sequence) else float(values)


def _record(resolved: ResolvedRun) -> dict[str, Any]:
    return {
        "device": "cpu: planted",
        "run": resolved.name,
        "method": resolved.method,
        "seed": resolved.config.seed,
        "config": resolved.config.to_json(),
        "digest": resolved.config.digest(),
        "rule_has_state": False,
        "data": {"digest": "planted"},
        "versions": {},
    }


def _final_measurements(resolved: ResolvedRun, measured: Measured) -> Measurements:
    labels = [label or "none" for label in resolved.rule.labels(resolved.net.depth)]
    measurements = (
        measured if isinstance(measured, Measurements) else _fake_measurements(resolved, dict(measured), labels)
    )
    facts = {"measured_on": "nothing", "files": {}, "labels": labels, "site": resolved.credit_site}
    # Half of all test samples are right: intervals over samples of one seed need this array.
    arrays = {"test_correct": np.tile([0.0, 1.0], 512), **measurements.arrays}
    return Measurements(arrays, {**measurements.facts, **facts})


def _with_weight_norms(
    resolved: ResolvedRun, measurements: Measurements, weights: tuple[float, float] | None
) -> Measurements:
    """The measurements with norms of the parameters: their real names and initial norms, scaled by `weights`."""
    if weights is None:
        return measurements
    first = np.array([float(leaf.double().norm()) for leaf in resolved.params().values()])
    sizes = {"weight_first": first, "weight_moved": weights[0] * first, "weight_last": weights[1] * first}
    return Measurements({**measurements.arrays, **sizes}, {**measurements.facts, "leaves": list(resolved.params())})


def _fake_measurements(resolved: ResolvedRun, measured: dict[str, Any], labels: list[str]) -> Measurements:
    depth = resolved.net.depth
    cosines = measured.pop("cosines", 0.0)
    if not isinstance(cosines, Sequence):
        cosines = [1.0 if label == "exact" else cosines for label in labels]
    return fake(blocks=depth, cosines=list(cosines), **measured)


def _finite_step_measurements(resolved: ResolvedRun, given: Mapping[str, Any]) -> Measurements:
    """Finite-step measurements: the given value for every sample of a layer, plus noise that averages out."""
    layers, samples = resolved.net.depth + 1, 128
    noise = np.tile([-1e-3, 1e-3], samples // 2)
    correlations = {"rho": 0.0, "rho_one_sided": 0.0, "rho_gradient": 0.997, "rho_random": 0.0}
    steps = {"nudge_credit": 0.0, "nudge_gradient": -1.0}
    arrays = {}
    for name, value in (correlations | steps | dict(given)).items():
        by_layer = np.broadcast_to(np.asarray(value, dtype=np.float64), (layers,))
        arrays[name] = by_layer[:, None] * (1 + noise) + (noise if name.startswith("rho") else 0.0)
    arrays["rho_pooled"] = arrays["rho"].mean(axis=1)
    labels = [label or "none" for label in resolved.rule.labels(resolved.net.depth)]
    facts = {"layers": layers, "samples": samples, "groups": 1, "pool": "all", "directions": 64, "features": 32}
    return Measurements(arrays, {**facts, "labels": labels, "site": resolved.shared_options.site, "files": {}})


def plant_all(planted_runs: PlantedRuns, configs: Sequence[RunConfig], given: Mapping[str, Mapping[str, Any]]) -> None:
    """Plant each configuration with the results given for its method's name, or else with those for `other`."""
    methods: dict[str, list[RunConfig]] = {}
    for config in configs:
        methods.setdefault(method_label(resolve(config).method), []).append(config)
    for name, found in methods.items():
        planted_runs.plant(found, **(given[name] if name in given else given["other"]))

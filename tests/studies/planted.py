"""Stored results that were never trained: a study's arithmetic is tested on numbers known beforehand.

    bed = Bed(tmp_path)
    bed.plant(SMOKE.runs(["bp"]), accuracy=0.9, shell=0.5, look={"cosines": 1.0})
    bed.plant(SMOKE.runs([METHODS["DFA"]]), accuracy=[0.3, 0.4], shell=0.5, look={"growth": 200, "grad": 1e-9,
              "cosines": [0.4, 0, 0, 0, 0]}, log=[sight(1), sight(2, growth=60)])
    story = STUDY.tell(bed.results(), SMOKE)

Real folders of runs in the real format, read and judged by the real code; only the numbers are planted.
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
from walkback.report.study_report import Finding, StudyReport, Table
from walkback.runs import store
from walkback.runs.baselines import baselines_of
from walkback.runs.measurement_files import EPOCHS_FOLDER, FUNCTIONAL
from walkback.training.resolved_run import ResolvedRun, resolve
from walkback_papers.results import Results
from walkback_papers.tables import method_label

PerSeed = float | Sequence[float]
"""One value for all configurations, or one for each in the order given."""
Look = Mapping[str, Any] | Measurements
"""What is measured: arguments of `fake`, or the measurements themselves. `blocks`, `labels` and `site` are filled in
from the run. A single number for `cosines` is put at every layer, 1 where the credit is exact by construction."""


class Bed:
    """A folder of planted runs."""

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
        look: Look | None = None,
        log: Sequence[Mapping[str, Any]] = (),
        close: Mapping[int, Look] | None = None,
        functional: Mapping[str, Any] | None = None,
        weights: tuple[float, float] | None = None,
    ) -> None:
        """Finished runs with these results, replacing what was planted before.

        `shell`, `bp_shell` and `bp` are the accuracies of the baselines; without `bp_shell` it is the shell's, without
        `bp` none is planted here (plant backprop's runs by themselves). `functional` gives arrays: numbers for every
        layer or one for all, spread over samples. `weights` are how many times their first size every parameter has
        moved, and has now.
        """
        wanted = {"method_shell": shell, "bp_shell": shell if bp_shell is None else bp_shell, "bp": bp}
        given = {name: values for name, values in wanted.items() if values is not None}
        # Nothing here must survive a power cut.
        with patch("os.fsync"):
            for place, config in enumerate(configs):
                resolved = resolve(config)
                self._grow(resolved, _of(accuracy, place), look, log, close, functional, weights)
                beside = baselines_of(resolved) if given else {}
                for name, values in given.items():
                    if name in beside and beside[name].name != resolved.name:
                        self._grow(beside[name], _of(values, place), None, (), None, None)

    def results(self) -> Results:
        """The planted runs as a study reads them."""
        return Results(self.folder)

    def _grow(
        self,
        resolved: ResolvedRun,
        accuracy: float,
        look: Look | None,
        log: Sequence[Mapping[str, Any]],
        close: Mapping[int, Look] | None,
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
        _moved(resolved, _measured(resolved, look or {}), weights).save(path / MEASUREMENTS)
        if close:
            (path / EPOCHS_FOLDER).mkdir(exist_ok=True)
        for epoch, seen in (close or {}).items():
            _measured(resolved, seen).save(path / EPOCHS_FOLDER / f"{epoch:04d}.npz")
        if functional is not None:
            _finite(resolved, functional).save(path / FUNCTIONAL)


def reading(epoch: int, growth: float = 1.3, grad: float = 4e-4, accuracy: float = 0.5, **more: Any) -> dict[str, Any]:
    """A row of a run's log; `growth` and `grad` are what D1 and D2 look at. Layers are those of four blocks."""
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


def holds(study_report: StudyReport, words: str) -> bool | None:
    """Whether the one finding whose claim contains these words holds."""
    return finding(study_report, words).holds


def finding(study_report: StudyReport, words: str) -> Finding:
    (found,) = [each for each in study_report.findings if words in each.claim]
    return found


def cells(study_report: StudyReport, table: str, column: str) -> dict[str, str]:
    """One column of a table, by what stands in its first."""
    found = _table(study_report, table)
    place = found.heads.index(column)
    return {row[0].text: row[place].text for row in found.rows}


def shifted(configs: Sequence[RunConfig], **changes: Any) -> list[RunConfig]:
    """The same configurations with other fields."""
    return [replace(config, **changes) for config in configs]


def _table(study_report: StudyReport, name: str) -> Table:
    (found,) = [table for table in study_report.tables if table.name == name]
    return found


def _of(values: PerSeed, place: int) -> float:
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


def _measured(resolved: ResolvedRun, look: Look) -> Measurements:
    labels = [label or "none" for label in resolved.rule.labels(resolved.net.depth)]
    taken = look if isinstance(look, Measurements) else _fake(resolved, dict(look), labels)
    facts = {"measured_on": "nothing", "files": {}, "labels": labels, "site": resolved.shared_options.site}
    # Half of all test samples are right: what an interval over samples needs, for one seed alone.
    arrays = {"test_correct": np.tile([0.0, 1.0], 512), **taken.arrays}
    return Measurements(arrays, {**taken.facts, **facts})


def _moved(resolved: ResolvedRun, taken: Measurements, weights: tuple[float, float] | None) -> Measurements:
    """The same with the sizes of the parameters: their real names, and their real sizes at the start."""
    if weights is None:
        return taken
    first = np.array([float(leaf.double().norm()) for leaf in resolved.params().values()])
    sizes = {"weight_first": first, "weight_moved": weights[0] * first, "weight_last": weights[1] * first}
    return Measurements({**taken.arrays, **sizes}, {**taken.facts, "leaves": list(resolved.params())})


def _fake(resolved: ResolvedRun, look: dict[str, Any], labels: list[str]) -> Measurements:
    depth = resolved.net.depth
    cosines = look.pop("cosines", 0.0)
    if not isinstance(cosines, Sequence):
        cosines = [1.0 if label == "exact" else cosines for label in labels]
    return fake(blocks=depth, cosines=list(cosines), **look)


def _finite(resolved: ResolvedRun, given: Mapping[str, Any]) -> Measurements:
    """Finite steps: every sample of a layer has its value, give or take a little that averages out."""
    layers, samples = resolved.net.depth + 1, 128
    wiggle = np.tile([-1e-3, 1e-3], samples // 2)
    plain = {"rho": 0.0, "rho_one_sided": 0.0, "rho_gradient": 0.997, "rho_random": 0.0}
    steps = {"nudge_credit": 0.0, "nudge_gradient": -1.0}
    arrays = {}
    for name, value in (plain | steps | dict(given)).items():
        by_layer = np.broadcast_to(np.asarray(value, dtype=np.float64), (layers,))
        arrays[name] = by_layer[:, None] * (1 + wiggle) + (wiggle if name.startswith("rho") else 0.0)
    arrays["rho_pooled"] = arrays["rho"].mean(axis=1)
    labels = [label or "none" for label in resolved.rule.labels(resolved.net.depth)]
    facts = {"layers": layers, "samples": samples, "groups": 1, "pool": "all", "directions": 64, "features": 32}
    return Measurements(arrays, {**facts, "labels": labels, "site": resolved.shared_options.site, "files": {}})


def plant_all(bed: Bed, configs: Sequence[RunConfig], given: Mapping[str, Mapping[str, Any]]) -> None:
    """Plant each configuration with what is given for its method's name; `other` serves the methods not named."""
    methods: dict[str, list[RunConfig]] = {}
    for config in configs:
        methods.setdefault(method_label(resolve(config).method), []).append(config)
    for name, found in methods.items():
        bed.plant(found, **(given[name] if name in given else given["other"]))

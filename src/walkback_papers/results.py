"""Stored results of the runs in a folder: logs and measurements. No model is read and nothing is measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from walkback.auditing.diagnose_runs import judge_run
from walkback.core.configuration import RunConfig
from walkback.core.errors import InputError
from walkback.core.measurements import Array, Measurements
from walkback.judge.options import JudgeOptions
from walkback.judge.report import DiagnosticReport
from walkback.report.save import MEASUREMENTS
from walkback.runs import store
from walkback.runs.measurement_files import ANSWERS, FUNCTIONAL, epoch_file
from walkback.runs.run_index import RunIndex
from walkback.training.resolved_run import ResolvedRun, resolve
from walkback_papers.experiments import Experiment

TRAIN_AGAIN = "Move that folder away and run the study again: it trains the run anew and measures it."


@dataclass(frozen=True)
class Case:
    """One run's stored results."""

    resolved: ResolvedRun
    run: store.Run
    results: Results

    @property
    def method(self) -> str:
        return self.resolved.method

    @property
    def seed(self) -> int:
        return self.resolved.config.seed

    @property
    def accuracy(self) -> float:
        return float(self.run.record["result"]["test_acc"])

    @cached_property
    def log(self) -> list[dict[str, Any]]:
        """One row per epoch: loss, accuracies, the rule's own entries and the detectors' readings."""
        return self.run.log()

    @cached_property
    def measurements(self) -> Measurements:
        return self._load(MEASUREMENTS)

    @property
    def answers(self) -> Measurements:
        """Which test samples the run classifies correctly; a full measurement contains this as well."""
        if (self.run.path / ANSWERS).is_file():
            answers = self._load(ANSWERS)
            if answers.facts.get("files") == self.run.record["files"]:
                return answers
        return self.measurements

    @cached_property
    def functional(self) -> Measurements:
        return self._load(FUNCTIONAL)

    def measurements_after(self, epoch: int) -> Measurements:
        """The full measurement taken after an epoch during training; 0 is before the first step."""
        name = epoch_file(epoch)
        if not (self.run.path / name).is_file():
            raise InputError(f"{self.run.path} was trained without being measured after epoch {epoch}. {TRAIN_AGAIN}")
        return self._load(name)

    @cached_property
    def report(self) -> DiagnosticReport:
        """The diagnostic report on the final measurements, compared with the stored baselines."""
        results = self.results
        return judge_run(
            self.run, self.resolved, self.measurements, results.judge_options, results.run_index, results.correct
        )

    def _load(self, name: str) -> Measurements:
        path = self.run.path / name
        if not path.is_file():
            raise InputError(f"{path} is missing. Run the study again: what is stored already is kept.")
        return Measurements.load(path)


class Results:
    """The stored results in one folder of runs, and those of a study's experiments in the study's folder."""

    def __init__(
        self,
        folder: Path,
        judge_options: JudgeOptions | None = None,
        run_index: RunIndex | None = None,
        study_folder: Path | None = None,
    ):
        self.folder = folder
        self.study_folder = study_folder or folder
        self.judge_options = judge_options or JudgeOptions()
        self.run_index = run_index or RunIndex(folder, without=(store.MODEL, store.RULE))
        self._cases: dict[str, Case] = {}

    def limited_to(self, names: Collection[str], study_folder: Path | None = None) -> Results:
        """A view restricted to these runs, and to the experiments stored in the study's folder: a study's report must
        not depend on other runs."""
        return Results(self.folder, self.judge_options, self.run_index.limited_to(names), study_folder)

    def of_experiment(self, experiment: Experiment) -> Mapping[str, Any]:
        """The stored result of an experiment of the study."""
        return experiment.load(self.study_folder)

    def case(self, config: RunConfig) -> Case:
        """The finished run of this configuration."""
        resolved = resolve(config)
        if resolved.name not in self._cases:
            run = self.run_index.finished(resolved)
            if run is None:
                raise InputError(f"There is no finished run {resolved.name} in {self.folder}. Run the study first.")
            self._cases[resolved.name] = Case(resolved, run, self)
        return self._cases[resolved.name]

    def cases(self, configs: Sequence[RunConfig]) -> list[Case]:
        return [self.case(config) for config in configs]

    def by_method(self, configs: Sequence[RunConfig]) -> dict[str, list[Case]]:
        """Cases by method as written in the run configuration; seeds in the order given."""
        found: dict[str, list[Case]] = {}
        for case in self.cases(configs):
            found.setdefault(case.method, []).append(case)
        return found

    def correct(self, run: store.Run, resolved: ResolvedRun) -> Array:
        """Which test samples a run classifies correctly, from its stored measurements."""
        correct = self.case(resolved.config).answers.get("test_correct")
        if correct is None:
            raise InputError(f"{run.path} was measured without its test samples. Measure it again.")
        return correct

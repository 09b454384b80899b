"""Run studies: train and measure the runs that are missing, then write each study's report from the stored results.

All studies share one folder of runs, so a run that several studies need is trained and measured once. A call may be
interrupted at any point; the next call resumes from what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

from walkback.auditing.epoch_monitor import EpochMonitor
from walkback.auditing.measure_run import RunMeasurer
from walkback.core.errors import InputError, WalkbackError, unknown
from walkback.core.files import drop_leftovers
from walkback.core.measurements import Measurements
from walkback.data.dataset import Dataset
from walkback.report.save import MEASUREMENTS
from walkback.report.study_pages import save_study_report
from walkback.report.study_report import StudyReport
from walkback.runs import store
from walkback.runs.deadline import NO_DEADLINE, Deadline
from walkback.runs.measurement_files import ANSWERS, FUNCTIONAL, epoch_file
from walkback.runs.train_runs import (
    ProgressListener,
    Result,
    TrainOptions,
    choose_device,
    plan_unfinished,
    result_of,
    train_resolved,
)
from walkback.training.planning.fleet_plan import FleetGroup
from walkback.training.resolved_run import ResolvedRun, resolve
from walkback_papers import STUDIES
from walkback_papers.perform_experiments import perform_experiments
from walkback_papers.results import TRAIN_AGAIN, Results
from walkback_papers.scale import Scale, scale_of
from walkback_papers.study import Study

RUNS_FOLDER = "runs"
"""Name of the folder that holds all runs, inside the studies' output folder."""


@dataclass(frozen=True)
class StudiesResult:
    """The result of `run_studies`."""

    results: tuple[Result, ...]
    study_reports: tuple[StudyReport, ...]
    """Empty while a run is unfinished."""
    unmeasured: int = 0
    """Number of measurements and experiments that the time limit left undone."""

    @property
    def unfinished(self) -> int:
        return self.unmeasured + sum(result.status != "done" for result in self.results)


@dataclass(frozen=True)
class MeasurementJob:
    """One measurement of one run: the file name it is saved under and the function that takes it."""

    resolved: ResolvedRun
    file_name: str
    measure: Callable[[store.Run, ResolvedRun], Measurements]


@dataclass(frozen=True)
class CompletionStatus:
    """How many of the runs are trained and measured."""

    results: tuple[Result, ...]
    unmeasured: int = 0
    """Number of measurements that the time limit left undone."""

    @property
    def is_done(self) -> bool:
        return not self.unmeasured and all(result.status == "done" for result in self.results)


class RunCompleter(Protocol):
    """Trains and measures the missing runs: in this process (`complete_runs`) or in several (`StudyProcesses`)."""

    def __call__(
        self, studies: Mapping[str, Study], scale: Scale, options: TrainOptions, listener: ProgressListener
    ) -> CompletionStatus: ...


def complete_runs(
    studies: Mapping[str, Study],
    scale: Scale,
    options: TrainOptions,
    listener: ProgressListener,
    names: Collection[str] | None = None,
) -> CompletionStatus:
    """Train and measure what is missing below `options.out`: of the runs called `names`, or of all."""
    deadline = Deadline(options.max_seconds)
    resolved_runs = [
        resolved for resolved in runs_of_studies(studies.values(), scale) if names is None or resolved.name in names
    ]
    folder = options.out / RUNS_FOLDER
    measurer = _run_measurer(options)
    jobs = _measurement_jobs(resolved_runs, studies, scale, measurer)
    incomplete = _runs_to_complete(jobs, folder)
    incomplete_names = {resolved.name for resolved in incomplete}
    complete = [resolved.name for resolved in resolved_runs if resolved.name not in incomplete_names]
    if complete:
        listener.skipped(complete)

    def measure_finished(runs: Sequence[store.Run], data: Dataset) -> None:
        jobs_of_runs = _jobs_for({run.name for run in runs}, jobs)
        measurer.keep(jobs_of_runs[0].resolved.source, data)
        _measure_missing(jobs_of_runs, folder, ProgressListener(), NO_DEADLINE)

    # A run is trained once, whichever study asks for it first, so every epoch that any study of the catalog needs is
    # measured during that training. The final measurement follows at once: if the rest is interrupted, the weights of
    # this run are no longer needed.
    epochs_to_measure = _epochs_to_measure([*all_studies().values(), *studies.values()], scale)
    monitor = EpochMonitor(epochs_to_measure=epochs_to_measure, finished=measure_finished)
    max_seconds = None if options.max_seconds is None else deadline.left
    training = replace(options, out=folder, resume=True, max_seconds=max_seconds)
    train_resolved(incomplete, training, listener, observer=monitor)
    results = tuple(result_of(resolved, folder) for resolved in resolved_runs)
    done = {result.run for result in results if result.status == "done"}
    finished = [resolved for resolved in resolved_runs if resolved.name in done]
    _refuse_unmonitored(finished, _epochs_to_measure(studies.values(), scale), folder)
    # Runs that an earlier call trained and did not measure.
    return CompletionStatus(results, _measure_missing(_jobs_for(done, jobs), folder, listener, deadline))


def _jobs_for(run_names: Collection[str], jobs: Sequence[MeasurementJob]) -> list[MeasurementJob]:
    """The jobs that measure the runs of these names."""
    return [job for job in jobs if job.resolved.name in run_names]


def run_studies(
    studies: Mapping[str, Study],
    scale: Scale,
    options: TrainOptions,
    listener: ProgressListener,
    run_completer: RunCompleter = complete_runs,
    processes: int = 1,
) -> StudiesResult:
    """Run studies below `options.out`: train, measure and, once everything is complete, write the reports.

    Experiments are performed in up to `processes` processes, runs as `run_completer` does.
    """
    deadline = Deadline(options.max_seconds)
    status = run_completer(studies, scale, options, listener)
    left = options if options.max_seconds is None else replace(options, max_seconds=deadline.left)
    missing = perform_experiments(studies, scale, left, listener, processes)
    study_reports = write_reports(studies, scale, options.out) if status.is_done and not missing else ()
    return StudiesResult(status.results, study_reports, status.unmeasured + missing)


def run_named_studies(
    names: Sequence[str],
    scale: str,
    options: TrainOptions,
    listener: ProgressListener | None,
    *,
    render: bool,
) -> tuple[StudyReport, ...]:
    """Implements `walkback.study`: run the named studies, or with `render` only write their pages again."""
    studies, chosen = studies_of(names), scale_of(scale)
    if render:
        return write_reports(studies, chosen, options.out)
    return run_studies(studies, chosen, options, listener or ProgressListener()).study_reports


def incomplete_runs(studies: Mapping[str, Study], scale: Scale, options: TrainOptions) -> list[ResolvedRun]:
    """The runs that still need training or a measurement."""
    return _incomplete_of(runs_of_studies(studies.values(), scale), studies, scale, options)


def _incomplete_of(
    resolved_runs: Sequence[ResolvedRun], studies: Mapping[str, Study], scale: Scale, options: TrainOptions
) -> list[ResolvedRun]:
    jobs = _measurement_jobs(resolved_runs, studies, scale, _run_measurer(options))
    return _runs_to_complete(jobs, options.out / RUNS_FOLDER)


def _run_measurer(options: TrainOptions) -> RunMeasurer:
    return RunMeasurer(options.data_root, choose_device(options.device))


def _measurement_jobs(
    resolved_runs: Sequence[ResolvedRun], studies: Mapping[str, Study], scale: Scale, measurer: RunMeasurer
) -> list[MeasurementJob]:
    """Every measurement these runs need. Runs that only serve as baselines need their test answers alone."""
    fully_measured = {resolved.name for resolved in _runs_without_baselines(studies.values(), scale)}
    jobs = [
        MeasurementJob(resolved, MEASUREMENTS, measurer.measure)
        if resolved.name in fully_measured
        else MeasurementJob(resolved, ANSWERS, measurer.measure_answers)
        for resolved in resolved_runs
    ]
    measure_functional = partial(measurer.measure_functional, samples=scale.functional_samples)
    functional = {resolved.name for resolved in _functional_runs(studies.values(), scale)}
    return jobs + [
        MeasurementJob(resolved, FUNCTIONAL, measure_functional)
        for resolved in resolved_runs
        if resolved.name in functional
    ]


def _runs_to_complete(jobs: Sequence[MeasurementJob], folder: Path) -> list[ResolvedRun]:
    """The runs with a job that is not done. The other runs are read as numbers only: their weights may be missing."""
    found = {
        job.resolved.name: job.resolved for job in jobs if not _is_complete(folder / job.resolved.name, job.file_name)
    }
    return list(found.values())


def _is_complete(path: Path, file_name: str) -> bool:
    """Whether the run at `path` is trained, and measured in the file of this name."""
    if not path.exists():
        return False
    run = store.open_run(path, without=(store.MODEL, store.RULE))
    # Another study may have measured a baseline of this one in full.
    file_names = (ANSWERS, MEASUREMENTS) if file_name == ANSWERS else (file_name,)
    return run.is_done and any(_is_measured(run, name) for name in file_names)


def write_reports(studies: Mapping[str, Study], scale: Scale, out: Path, processes: int = 1) -> tuple[StudyReport, ...]:
    """Write each study's pages from stored results alone.

    Drawing takes most of the time and is shared between `processes`; studies are then sent by name, so they must be
    in the catalog.
    """
    if processes > 1 and len(studies) > 1:
        known = all_studies()
        assert all(known.get(name) is study for name, study in studies.items()), "other processes know the catalog only"
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            return tuple(pool.map(_write_named_report, studies, repeat(scale), repeat(out)))
    results = Results(out / RUNS_FOLDER)
    study_reports = []
    for name, study in studies.items():
        own = {resolved.name for resolved in runs_of_studies([study], scale)}
        study_report = study.report_results(results.limited_to(own, out / name), scale)
        save_study_report(study_report, out / name)
        study_reports.append(study_report)
    return tuple(study_reports)


def _write_named_report(name: str, scale: Scale, out: Path) -> StudyReport:
    (study_report,) = write_reports({name: all_studies()[name]}, scale, out)
    return study_report


def all_studies() -> dict[str, Study]:
    """Every study of the catalog, by its name with hyphens."""
    return {name.replace("_", "-"): STUDIES.get(name) for name in STUDIES.names()}


def studies_of(names: Sequence[str]) -> dict[str, Study]:
    """The named studies, once each; `["all"]` gives every study. Names are written with hyphens."""
    known = all_studies()
    if list(names) == ["all"]:
        return known
    for name in names:
        if name not in known:
            raise unknown("study", name, known)
    return {name: known[name] for name in names}


def plan_of(studies: Mapping[str, Study], scale: Scale, options: TrainOptions) -> tuple[list[FleetGroup], int]:
    """The fleets that are still to be trained below `options.out`, and the number of runs already trained."""
    resolved_runs = runs_of_studies(studies.values(), scale)
    incomplete = _incomplete_of(resolved_runs, studies, scale, options)
    groups = plan_unfinished(incomplete, replace(options, out=options.out / RUNS_FOLDER, resume=True))
    return groups, len(resolved_runs) - sum(len(group.resolved_runs) for group in groups)


def runs_of_studies(studies: Iterable[Study], scale: Scale) -> list[ResolvedRun]:
    """Every run the studies need, once, including the baselines of the runs that are judged."""
    found: dict[str, ResolvedRun] = {}
    for study in studies:
        judged = [resolve(config) for config in study.judged(scale)]
        baselines = [baseline for resolved in judged for baseline in resolved.baselines.values()]
        for resolved in [*_runs_without_baselines([study], scale), *baselines]:
            found.setdefault(resolved.name, resolved)
    return list(found.values())


def _runs_without_baselines(studies: Iterable[Study], scale: Scale) -> list[ResolvedRun]:
    """The runs that the studies list themselves; these are measured in full."""
    found: dict[str, ResolvedRun] = {}
    for study in studies:
        monitored = [config for config, _ in study.epochs_to_measure(scale)]
        for config in [*study.runs(scale), *study.judged(scale), *monitored, *study.functional(scale)]:
            resolved = resolve(config)
            found.setdefault(resolved.name, resolved)
    return list(found.values())


def _epochs_to_measure(studies: Iterable[Study], scale: Scale) -> dict[str, set[int]]:
    """By run name, the epochs after which any of these studies needs a full measurement."""
    found: dict[str, set[int]] = {}
    for study in studies:
        for config, epochs in study.epochs_to_measure(scale):
            found.setdefault(resolve(config).name, set()).update(epochs)
    return found


def _functional_runs(studies: Iterable[Study], scale: Scale) -> list[ResolvedRun]:
    """The runs whose finite-step metrics any of these studies needs."""
    found = (resolve(config) for study in studies for config in study.functional(scale))
    return list({resolved.name: resolved for resolved in found}.values())


def _refuse_unmonitored(
    resolved_runs: Sequence[ResolvedRun], epochs_to_measure: Mapping[str, Collection[int]], folder: Path
) -> None:
    """Refuse runs trained without the epoch monitor: a log without detectors must not read as if none had fired."""
    for resolved in resolved_runs:
        run = store.open_run(folder / resolved.name, without=(store.MODEL, store.RULE))
        if any("growth" not in row for row in run.log()):
            raise InputError(f"{run.path} was trained without detectors in its log. {TRAIN_AGAIN}")
        for epoch in sorted(epochs_to_measure.get(resolved.name, ())):
            if not (run.path / epoch_file(epoch)).is_file():
                raise InputError(f"{run.path} was trained without being measured after epoch {epoch}. {TRAIN_AGAIN}")


def _measure_missing(
    jobs: Sequence[MeasurementJob], folder: Path, listener: ProgressListener, deadline: Deadline
) -> int:
    """Take the missing measurements; return how many are left when the time is up."""
    missing = [job for job in jobs if not _is_complete(folder / job.resolved.name, job.file_name)]
    for done, job in enumerate(missing):
        if deadline.is_past:
            return len(missing) - done
        listener.measuring(job.resolved.name, done, len(missing))
        path = folder / job.resolved.name
        measurements = job.measure(_open_with_weights(path), job.resolved)
        drop_leftovers(path / job.file_name)
        measurements.save(path / job.file_name)
    return 0


def _is_measured(run: store.Run, file_name: str) -> bool:
    """Whether the measurements exist and were taken of these weights."""
    path = run.path / file_name
    if not path.is_file():
        return False
    try:
        return bool(Measurements.load(path).facts.get("files") == run.record["files"])
    except InputError:  # Truncated when the process was killed: measured again.
        return False


def _open_with_weights(path: Path) -> store.Run:
    try:
        return store.open_run(path)
    except InputError as error:
        raise WalkbackError(f"{path} is not measured, and cannot be: {error}") from error

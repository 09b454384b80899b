"""Carrying studies out: train what is missing, measure what is missing, and tell each study from what is stored.

Runs lie in one folder and are shared: a network that several studies look at is trained and measured once. All of it
can be interrupted at any point; the next call goes on where it was.
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
from walkback.runs import store, train_runs
from walkback.runs.baselines import baselines_of
from walkback.runs.deadline import NO_DEADLINE, Deadline
from walkback.runs.measurement_files import ANSWERS, FUNCTIONAL, epoch_file
from walkback.training.planning.fleet_plan import FleetGroup
from walkback.training.resolved_run import ResolvedRun, resolve
from walkback_papers import STUDIES
from walkback_papers.results import TRAIN_AGAIN, Results
from walkback_papers.scale import Scale, scale_of
from walkback_papers.study import Study

RUNS_FOLDER = "runs"
"""Folder of all runs, below the studies' own."""


@dataclass(frozen=True)
class StudiesResult:
    """What came of it."""

    results: tuple[train_runs.Result, ...]
    study_reports: tuple[StudyReport, ...]
    """Empty while a run is unfinished."""
    unmeasured: int = 0
    """Measurements for which there was no time."""

    @property
    def unfinished(self) -> int:
        return self.unmeasured + sum(result.status != "done" for result in self.results)


@dataclass(frozen=True)
class MeasurementJob:
    """A measurement to take of a run, and the file it goes into."""

    resolved: ResolvedRun
    name: str
    take: Callable[[store.Run, ResolvedRun], Measurements]


@dataclass(frozen=True)
class CompletionStatus:
    """How far the runs of some studies are."""

    results: tuple[train_runs.Result, ...]
    unmeasured: int = 0
    """Measurements for which there was no time."""

    @property
    def is_done(self) -> bool:
        return not self.unmeasured and all(result.status == "done" for result in self.results)


class RunCompleter(Protocol):
    """A way to have runs trained and measured: here, or in processes of their own."""

    def __call__(
        self,
        studies: Mapping[str, Study],
        scale: Scale,
        options: train_runs.TrainOptions,
        listener: train_runs.ProgressListener,
    ) -> CompletionStatus: ...


def complete_runs(
    studies: Mapping[str, Study],
    scale: Scale,
    options: train_runs.TrainOptions,
    listener: train_runs.ProgressListener,
    names: Collection[str] | None = None,
) -> CompletionStatus:
    """Train and measure what is missing below `options.out`, of the runs called `names` or of all."""
    deadline = Deadline(options.max_seconds)
    resolved_runs = [
        resolved for resolved in runs_of_studies(studies.values(), scale) if names is None or resolved.name in names
    ]
    folder = options.out / RUNS_FOLDER
    measurer = _laboratory(options)
    jobs = _jobs(resolved_runs, studies, scale, measurer)
    left = _unsettled(jobs, folder)
    waiting = {resolved.name for resolved in left}
    settled = [resolved.name for resolved in resolved_runs if resolved.name not in waiting]
    if settled:
        listener.skipped(settled)

    def measure(runs: Sequence[store.Run], data: Dataset) -> None:
        found = _of({run.name for run in runs}, jobs)
        measurer.keep(found[0].resolved.source, data)
        _measure(found, folder, train_runs.ProgressListener(), NO_DEADLINE)

    # It is trained once, whoever asks first: so all that any study of the catalog wants to see is looked at. And it is
    # measured as soon as it is trained: then only numbers are needed of it, however the rest ends.
    epochs_to_measure = _closely([*all_studies().values(), *studies.values()], scale)
    watcher = EpochMonitor(epochs_to_measure=epochs_to_measure, finished=measure)
    training = replace(options, out=folder, resume=True, max_seconds=deadline.left)
    train_runs.train_configs([resolved.config for resolved in left], training, listener, observer=watcher)
    results = tuple(train_runs.result_of(resolved, folder) for resolved in resolved_runs)
    done = {result.run for result in results if result.status == "done"}
    finished = [resolved for resolved in resolved_runs if resolved.name in done]
    _refuse_unseen(finished, _closely(studies.values(), scale), folder)
    # Those that were trained before this call, and not measured.
    return CompletionStatus(results, _measure(_of(done, jobs), folder, listener, deadline))


def _of(names: Collection[str], jobs: Sequence[MeasurementJob]) -> list[MeasurementJob]:
    """The jobs that the runs of these names need."""
    return [job for job in jobs if job.resolved.name in names]


def run_studies(
    studies: Mapping[str, Study],
    scale: Scale,
    options: train_runs.TrainOptions,
    listener: train_runs.ProgressListener,
    settling: RunCompleter = complete_runs,
) -> StudiesResult:
    """Carry studies out below `options.out`."""
    done = settling(studies, scale, options, listener)
    study_reports = write_reports(studies, scale, options.out) if done.is_done else ()
    return StudiesResult(done.results, study_reports, done.unmeasured)


def run_named_studies(
    names: Sequence[str],
    scale: str,
    options: train_runs.TrainOptions,
    listener: train_runs.ProgressListener | None,
    *,
    render: bool,
) -> tuple[StudyReport, ...]:
    """What `walkback.study` does: carry the named studies out, or with `render` write their pages again."""
    studies, chosen = studies_of(names), scale_of(scale)
    if render:
        return write_reports(studies, chosen, options.out)
    return run_studies(studies, chosen, options, listener or train_runs.ProgressListener()).study_reports


def incomplete_runs(studies: Mapping[str, Study], scale: Scale, options: train_runs.TrainOptions) -> list[ResolvedRun]:
    """The runs of which something is still to be trained or measured."""
    return _left(runs_of_studies(studies.values(), scale), studies, scale, options)


def _left(
    resolved_runs: Sequence[ResolvedRun], studies: Mapping[str, Study], scale: Scale, options: train_runs.TrainOptions
) -> list[ResolvedRun]:
    return _unsettled(_jobs(resolved_runs, studies, scale, _laboratory(options)), options.out / RUNS_FOLDER)


def _laboratory(options: train_runs.TrainOptions) -> RunMeasurer:
    return RunMeasurer(options.data_root, train_runs.choose_device(options.device))


def _jobs(
    resolved_runs: Sequence[ResolvedRun], studies: Mapping[str, Study], scale: Scale, measurer: RunMeasurer
) -> list[MeasurementJob]:
    """What is to be measured of these runs, in the laboratory."""
    whole = {resolved.name for resolved in _own_recipes(studies.values(), scale)}
    jobs = [
        MeasurementJob(resolved, MEASUREMENTS, measurer.measure)
        if resolved.name in whole
        else MeasurementJob(resolved, ANSWERS, measurer.measure_answers)
        for resolved in resolved_runs
    ]
    finite = partial(measurer.measure_functional, samples=scale.functional_samples)
    closer = {resolved.name for resolved in _functional(studies.values(), scale)}
    return jobs + [
        MeasurementJob(resolved, FUNCTIONAL, finite) for resolved in resolved_runs if resolved.name in closer
    ]


def _unsettled(jobs: Sequence[MeasurementJob], folder: Path) -> list[ResolvedRun]:
    """The runs of which something is still to be made. Of the others nothing but numbers is needed: their weights may
    be gone."""
    found = {job.resolved.name: job.resolved for job in jobs if not _is_settled(folder / job.resolved.name, job.name)}
    return list(found.values())


def _is_settled(path: Path, name: str) -> bool:
    if not path.exists():
        return False
    found = store.open_run(path, without=(store.MODEL, store.RULE))
    # Another study may have measured in full what is a mere baseline here.
    names = (ANSWERS, MEASUREMENTS) if name == ANSWERS else (name,)
    return found.is_done and any(_is_measured(found, each) for each in names)


def write_reports(studies: Mapping[str, Study], scale: Scale, out: Path, processes: int = 1) -> tuple[StudyReport, ...]:
    """Write each study's pages from stored results alone.

    Drawing takes most of it, and several processes share that; their studies must be of the catalog.
    """
    if processes > 1 and len(studies) > 1:
        known = all_studies()
        assert all(known.get(name) is study for name, study in studies.items()), "other processes know the catalog only"
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            return tuple(pool.map(_tell_known, studies, repeat(scale), repeat(out)))
    results = Results(out / RUNS_FOLDER)
    study_reports = []
    for name, study in studies.items():
        own = {resolved.name for resolved in runs_of_studies([study], scale)}
        study_report = study.report_results(results.limited_to(own), scale)
        save_study_report(study_report, out / name)
        study_reports.append(study_report)
    return tuple(study_reports)


def _tell_known(name: str, scale: Scale, out: Path) -> StudyReport:
    (study_report,) = write_reports({name: all_studies()[name]}, scale, out)
    return study_report


def all_studies() -> dict[str, Study]:
    return {name.replace("_", "-"): STUDIES.get(name) for name in STUDIES.names()}


def studies_of(names: Sequence[str]) -> dict[str, Study]:
    """The named studies, once each, or all of them; names are written with hyphens."""
    known = all_studies()
    if list(names) == ["all"]:
        return known
    for name in names:
        if name not in known:
            raise unknown("study", name, known)
    return {name: known[name] for name in names}


def plan_of(
    studies: Mapping[str, Study], scale: Scale, options: train_runs.TrainOptions
) -> tuple[list[FleetGroup], int]:
    """The fleets that are still to be trained below `options.out`, and how many runs are trained already."""
    resolved_runs = runs_of_studies(studies.values(), scale)
    left = _left(resolved_runs, studies, scale, options)
    groups = train_runs.plan_unfinished(left, replace(options, out=options.out / RUNS_FOLDER, resume=True))
    return groups, len(resolved_runs) - sum(len(group.resolved_runs) for group in groups)


def runs_of_studies(studies: Iterable[Study], scale: Scale) -> list[ResolvedRun]:
    """Every run the studies need, once, with the baselines of those that are judged."""
    found: dict[str, ResolvedRun] = {}
    for study in studies:
        judged = [resolve(config) for config in study.judged(scale)]
        held_against = [baseline for resolved in judged for baseline in baselines_of(resolved).values()]
        for resolved in [*_own_recipes([study], scale), *held_against]:
            found.setdefault(resolved.name, resolved)
    return list(found.values())


def _own_recipes(studies: Iterable[Study], scale: Scale) -> list[ResolvedRun]:
    """The runs that the studies themselves look at."""
    found: dict[str, ResolvedRun] = {}
    for study in studies:
        looked_at = [config for config, _ in study.epochs_to_measure(scale)]
        for config in [*study.runs(scale), *study.judged(scale), *looked_at, *study.functional(scale)]:
            resolved = resolve(config)
            found.setdefault(resolved.name, resolved)
    return list(found.values())


def _closely(studies: Iterable[Study], scale: Scale) -> dict[str, set[int]]:
    """By run, the epochs that any of these studies wants to see in full."""
    found: dict[str, set[int]] = {}
    for study in studies:
        for config, epochs in study.epochs_to_measure(scale):
            found.setdefault(resolve(config).name, set()).update(epochs)
    return found


def _functional(studies: Iterable[Study], scale: Scale) -> list[ResolvedRun]:
    found = (resolve(config) for study in studies for config in study.functional(scale))
    return list({resolved.name: resolved for resolved in found}.values())


def _refuse_unseen(
    resolved_runs: Sequence[ResolvedRun], epochs_to_measure: Mapping[str, Collection[int]], folder: Path
) -> None:
    """A run that was trained by other means has no detectors in its log: that must not read as if none had fired."""
    for resolved in resolved_runs:
        found = store.open_run(folder / resolved.name, without=(store.MODEL, store.RULE))
        if any("growth" not in row for row in found.log()):
            raise InputError(f"{found.path} was trained without detectors in its log. {TRAIN_AGAIN}")
        for epoch in sorted(epochs_to_measure.get(resolved.name, ())):
            if not (found.path / epoch_file(epoch)).is_file():
                raise InputError(f"{found.path} was trained without being measured after epoch {epoch}. {TRAIN_AGAIN}")


def _measure(
    jobs: Sequence[MeasurementJob], folder: Path, listener: train_runs.ProgressListener, deadline: Deadline
) -> int:
    """Take what is missing, and return how much is left when the time is up."""
    missing = [job for job in jobs if not _is_settled(folder / job.resolved.name, job.name)]
    for done, job in enumerate(missing):
        if deadline.is_past:
            return len(missing) - done
        listener.measuring(job.resolved.name, done, len(missing))
        path = folder / job.resolved.name
        taken = job.take(_whole(path), job.resolved)
        drop_leftovers(path / job.name)
        taken.save(path / job.name)
    return 0


def _is_measured(found: store.Run, name: str) -> bool:
    """Whether the measurements are there, and are of these weights."""
    path = found.path / name
    if not path.is_file():
        return False
    try:
        return bool(Measurements.load(path).facts.get("files") == found.record["files"])
    except InputError:  # Cut off by a kill: measured again.
        return False


def _whole(path: Path) -> store.Run:
    try:
        return store.open_run(path)
    except InputError as error:
        raise WalkbackError(f"{path} is not measured, and cannot be: {error}") from error

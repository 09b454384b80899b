"""Perform the experiments of studies that have no result yet, in one process or in several."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import torch

from walkback.core.files import friendly_os_errors
from walkback.runs.provenance import provenance, without_paths
from walkback.runs.train_runs import ProgressListener, TrainOptions, choose_device
from walkback_papers.experiments import Experiment, missing_experiments
from walkback_papers.scale import Scale
from walkback_papers.study import Study

_WORK = "unfinished"
"""Name of the folder of what unfinished experiments have trained, inside the study's folder."""


def missing_of_studies(studies: Mapping[str, Study], scale: Scale, out: Path) -> list[tuple[str, Experiment]]:
    """The experiments without a stored result, each with the name of its study."""
    return [
        (name, experiment)
        for name, study in studies.items()
        for experiment in missing_experiments(study.experiments(scale), out / name)
    ]


def perform_experiments(
    studies: Mapping[str, Study], scale: Scale, options: TrainOptions, listener: ProgressListener, processes: int = 1
) -> int:
    """Perform and store the missing experiments; returns how many are left. None is begun after the time limit."""
    missing = missing_of_studies(studies, scale, options.out)
    until = None if options.max_seconds is None else time.time() + options.max_seconds
    if processes > 1 and len(missing) > 1:
        return _perform_in_processes(studies, scale, options, listener, missing, until, processes)
    for done, (name, experiment) in enumerate(missing):
        if _is_past(until):
            return len(missing) - done
        listener.measuring(experiment.name, done, len(missing))
        _perform(experiment, options.out / name, options)
    return 0


def _perform_in_processes(
    studies: Mapping[str, Study],
    scale: Scale,
    options: TrainOptions,
    listener: ProgressListener,
    missing: Sequence[tuple[str, Experiment]],
    until: float | None,
    processes: int,
) -> int:
    """Two processes with one thread each are faster than two threads in one."""
    count = min(processes, len(missing))
    performed = 0
    with ProcessPoolExecutor(count, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        waiting = {
            pool.submit(
                _perform_named, studies[name], scale, experiment.name, options.out / name, options, until
            ): experiment
            for name, experiment in missing
        }
        for done, future in enumerate(as_completed(waiting)):
            performed += future.result()
            listener.measuring(waiting[future].name, done, len(missing))
    return len(missing) - performed


def _perform_named(
    study: Study, scale: Scale, name: str, folder: Path, options: TrainOptions, until: float | None
) -> bool:
    """In another process: an experiment is found by its name, since functions cannot be sent."""
    if _is_past(until):
        return False
    _perform(next(each for each in study.experiments(scale) if each.name == name), folder, options)
    return True


def _perform(experiment: Experiment, folder: Path, options: TrainOptions) -> None:
    work = folder / _WORK / experiment.name
    result = experiment.perform(replace(options, out=work, resume=True, max_seconds=None))
    experiment.store(folder, result, provenance(choose_device(options.device), without_paths(options.command)))
    if work.exists():
        with friendly_os_errors(work, "remove"):
            shutil.rmtree(work)


def _is_past(until: float | None) -> bool:
    return until is not None and time.time() >= until

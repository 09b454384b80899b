"""Run a sweep: each planned fleet is a job for a worker; jobs of lost workers are retried, finished runs skipped."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from walkback.auditing.audit import with_baselines
from walkback.core.files import friendly_os_errors
from walkback.runs.deadline import NO_DEADLINE, Deadline
from walkback.runs.store import open_run
from walkback.runs.stored_plan import store_plan
from walkback.runs.train_runs import (
    Result,
    TrainOptions,
    choose_device,
    drop_leftovers_of_finished,
    plan_unfinished,
    refuse_duplicates,
    result_of,
)
from walkback.sweeping.executor import EndedJob, Executor
from walkback.sweeping.grid_file import GridFile
from walkback.training.planning.fleet_plan import FleetGroup
from walkback.training.planning.load_balance import shortest_compile_first, split_long_fleets
from walkback.training.resolved_run import ResolvedRun, resolve

MAX_RETRIES = 3
"""How often a job whose worker was lost is retried."""
LOCKED_WAIT_SECONDS = 2.0
"""Seconds before a job is tried again whose runs are locked by another process."""
_POLL_SECONDS = 0.5
"""Seconds between two checks of the jobs."""


@dataclass(frozen=True)
class Failure:
    """A job that failed."""

    job: int
    runs: tuple[str, ...]
    reason: str
    is_input: bool = False
    """Whether the user's input or code is the cause."""


@dataclass(frozen=True)
class SweepResult:
    """The outcome of a sweep."""

    results: tuple[Result, ...]
    """One for every run of the grid, including runs that were finished before."""
    failures: tuple[Failure, ...]

    @property
    def is_done(self) -> bool:
        return all(result.status == "done" for result in self.results)


class SweepListener:
    """Progress callbacks of a sweep; no-ops by default."""

    def planned(self, groups: Sequence[FleetGroup], finished: int) -> None:
        """The plan is made: `groups` are the jobs; `finished` runs are skipped."""

    def submitted(self, job: int) -> None: ...

    def ended(self, job: int) -> None: ...

    def lost(self, job: int, reason: str, tries_left: int) -> None: ...

    def failed(self, job: int, reason: str) -> None: ...

    def noted(self, job: int, note: str) -> None:
        """A message of the worker, or that the job waits for another process."""

    def close(self) -> None:
        """The sweep ended, successfully or not."""


def runs_of_grid(grid: GridFile) -> list[ResolvedRun]:
    """Every run of a grid, with the baselines if the grid has `baselines: true`."""
    resolved_runs = [resolve(config) for config in grid.configs()]
    refuse_duplicates(resolved_runs)
    return with_baselines(resolved_runs) if grid.baselines else resolved_runs


def jobs_of(
    resolved_runs: Sequence[ResolvedRun], options: TrainOptions, at_once: int | None = None
) -> list[FleetGroup]:
    """The fleets that are not finished, each a job. Long ones are split so that `at_once` CPU workers end together."""
    # Workers on other machines may have a GPU even if this one has none; they follow this plan.
    is_remote_gpu = options.device == "cuda" and not torch.cuda.is_available()
    groups = plan_unfinished(
        resolved_runs, replace(options, resume=True, device="cpu" if is_remote_gpu else options.device)
    )
    if options.device == "cuda" or choose_device(options.device).type == "cuda":
        return shortest_compile_first(groups)
    if at_once is None:
        return groups
    return split_long_fleets(groups, at_once)


def run_sweep(
    resolved_runs: Sequence[ResolvedRun],
    options: TrainOptions,
    executor: Executor,
    at_once: int | None,
    listener: SweepListener,
) -> SweepResult:
    """Train every run that is not finished, with at most `at_once` jobs at a time."""
    try:
        groups = jobs_of(resolved_runs, options, at_once)
        listener.planned(groups, len(resolved_runs) - sum(len(group.resolved_runs) for group in groups))
        with friendly_os_errors(options.out, "create"):
            options.out.mkdir(parents=True, exist_ok=True)
        store_plan(options.out, groups)
        jobs = [job_json(group, options) for group in groups]
        failures = Scheduler(run_names(groups), jobs, executor, listener).run(at_once or len(groups))
    finally:
        executor.close()
    _drop_leftovers(resolved_runs, options)
    return SweepResult(tuple(result_of(resolved, options.out) for resolved in resolved_runs), tuple(failures))


def _drop_leftovers(resolved_runs: Sequence[ResolvedRun], options: TrainOptions) -> None:
    """Remove what workers that were killed after the last file of a run was written have left."""
    paths = [options.out / resolved.name for resolved in resolved_runs]
    runs = [open_run(path) for path in paths if path.exists()]
    drop_leftovers_of_finished([run for run in runs if run.is_done], options.out)


def run_names(groups: Sequence[FleetGroup]) -> list[tuple[str, ...]]:
    """The names of the runs of each group."""
    return [tuple(resolved.name for resolved in group.resolved_runs) for group in groups]


class Scheduler:
    """Submits jobs to an executor, retries lost ones and waits for locked ones."""

    def __init__(
        self,
        names: Sequence[tuple[str, ...]],
        jobs: Sequence[dict[str, Any]],
        executor: Executor,
        listener: SweepListener,
        deadline: Deadline = NO_DEADLINE,
        done: Callable[[int], None] = lambda job: None,
    ):
        """`jobs` are the JSON data for the workers, `names` the runs of each job. After the deadline no job is
        submitted; `done` is called with each job that is complete."""
        self._names = names
        self._jobs = jobs
        self._executor = executor
        self._listener = listener
        self._waiting = deque(range(len(jobs)))
        self._locked: dict[int, float] = {}
        self._running: set[int] = set()
        self._losses = [0] * len(jobs)
        self._noted_locked: set[int] = set()
        self._failures: dict[int, Failure] = {}
        self._deadline = deadline
        self._done = done

    def run(self, at_once: int) -> list[Failure]:
        """Run all jobs, at most `at_once` at a time, and return those that failed."""
        while self._running or ((self._waiting or self._locked) and not self._deadline.is_past):
            now = time.monotonic()
            for job in [job for job, until in self._locked.items() if until <= now]:
                del self._locked[job]
                self._waiting.append(job)
            while self._waiting and len(self._running) < at_once and not self._deadline.is_past:
                job = self._waiting.popleft()
                self._executor.submit(job, self._jobs[job])
                self._running.add(job)
                self._listener.submitted(job)
            if self._running:
                for ended in self._executor.wait(_POLL_SECONDS):
                    self._running.remove(ended.number)
                    self._handle_end(ended)
            else:
                time.sleep(_POLL_SECONDS)
        return [self._failures[job] for job in sorted(self._failures)]

    def _handle_end(self, ended: EndedJob) -> None:
        job, report = ended.number, ended.report
        if report is None:
            self._losses[job] += 1
            left = MAX_RETRIES + 1 - self._losses[job]
            if left == 0:
                self._fail(job, f"lost {self._losses[job]} times; the last time, {ended.lost}")
                return
            self._listener.lost(job, ended.lost, left)
            self._waiting.append(job)
            return
        for note in report.notes:
            self._listener.noted(job, note)
        if report.status == "taken":
            # Perhaps a worker of this job that was believed dead still trains; the lock will be released.
            if job not in self._noted_locked:
                self._noted_locked.add(job)
                self._listener.noted(job, f"waiting: {report.reason}")
            self._locked[job] = time.monotonic() + LOCKED_WAIT_SECONDS
        elif report.status == "failed":
            self._fail(job, report.reason, report.is_input)
        elif report.status == "stopped":
            self._listener.noted(job, "stopped: the time limit is reached")
        else:
            self._done(job)
            self._listener.ended(job)

    def _fail(self, job: int, reason: str, is_input: bool = False) -> None:
        self._failures[job] = Failure(job, self._names[job], reason, is_input)
        self._listener.failed(job, reason)


def job_json(group: FleetGroup, options: TrainOptions) -> dict[str, Any]:
    """The JSON data of a job that trains one fleet."""
    return {
        "kind": "train",
        "options": options_json(options),
        "configs": [resolved.config.to_json() for resolved in group.resolved_runs],
    }


def options_json(options: TrainOptions) -> dict[str, Any]:
    """The options as JSON data; paths are absolute, because workers may run in another folder."""
    root = options.data_root
    paths = {"out": str(options.out.resolve()), "data_root": None if root is None else str(root.resolve())}
    return {**asdict(options), **paths, "command": list(options.command)}

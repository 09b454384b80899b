"""A sweep: a plan of fleets, each a job for a worker; lost workers are replaced, finished runs are never touched."""

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
from walkback.runs.train_runs import (
    Result,
    TrainOptions,
    choose_device,
    free_memory,
    plan_unfinished,
    refuse_duplicates,
    result_of,
)
from walkback.sweeping.executor import Ended, Executor
from walkback.sweeping.grid_file import GridFile
from walkback.training.planning.fleet_plan import FleetGroup
from walkback.training.planning.load_balance import shortest_compile_first, split_long_fleets
from walkback.training.resolved_run import ResolvedRun, resolve

TRIES_AGAIN = 3
"""How often a job whose worker was lost is given to another."""
REST = 2.0
"""Seconds before a job is tried again whose runs another process has."""
_LOOK = 0.5
"""Seconds between two looks at what rests."""


@dataclass(frozen=True)
class Failure:
    """A job that did not come to its end."""

    job: int
    runs: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class SweepResult:
    """What a sweep came to."""

    results: tuple[Result, ...]
    """Of every run of the grid, also of those that were finished before."""
    failures: tuple[Failure, ...]

    @property
    def is_done(self) -> bool:
        return all(result.status == "done" for result in self.results)


class SweepListener:
    """Hears how a sweep goes; the default hears nothing."""

    def planned(self, groups: Sequence[FleetGroup], finished: int) -> None:
        """`groups` are the jobs; `finished` runs are there already."""

    def submitted(self, job: int) -> None: ...

    def ended(self, job: int) -> None: ...

    def lost(self, job: int, reason: str, tries_left: int) -> None: ...

    def failed(self, job: int, reason: str) -> None: ...

    def said(self, job: int, note: str) -> None:
        """Something a worker had to say, or that a job waits for another process."""

    def close(self) -> None:
        """It is over, however it went."""


def runs_of_grid(grid: GridFile) -> list[ResolvedRun]:
    """Every run a grid asks for, with the baselines where it asks for them."""
    asked = [resolve(config) for config in grid.configs()]
    refuse_duplicates(asked)
    return with_baselines(asked) if grid.baselines else asked


def jobs_of(
    resolved_runs: Sequence[ResolvedRun], options: TrainOptions, at_once: int | None = None
) -> list[FleetGroup]:
    """The fleets that are still to be trained; each is a job. `at_once` processors share them."""
    # Workers elsewhere may have a GPU where this machine has none; they plan again with the memory they find.
    is_elsewhere = options.device == "cuda" and not torch.cuda.is_available()
    groups = plan_unfinished(
        resolved_runs, replace(options, resume=True, device="cpu" if is_elsewhere else options.device)
    )
    if options.device == "cuda" or choose_device(options.device).type == "cuda":
        return shortest_compile_first(groups)
    if at_once is None:
        return groups
    return split_long_fleets(groups, at_once, is_begun=lambda resolved: (options.out / resolved.name).exists())


def shared_memory(options: TrainOptions, at_once: int) -> TrainOptions:
    """The same options with a fair share of this machine's memory, for workers that are on it together."""
    share = free_memory(choose_device(options.device)) // at_once
    return replace(options, memory=share if options.memory is None else min(share, options.memory))


def run_sweep(
    resolved_runs: Sequence[ResolvedRun],
    options: TrainOptions,
    executor: Executor,
    at_once: int | None,
    listener: SweepListener,
) -> SweepResult:
    """Have every run trained that is not finished; no more than `at_once` jobs are handed out at a time."""
    try:
        groups = jobs_of(resolved_runs, options, at_once)
        listener.planned(groups, len(resolved_runs) - sum(len(group.resolved_runs) for group in groups))
        with friendly_os_errors(options.out, "create"):
            options.out.mkdir(parents=True, exist_ok=True)
        jobs = [job_json(group, options) for group in groups]
        failures = Scheduler(groups, jobs, executor, listener).run(at_once or len(groups))
    finally:
        executor.close()
    _clear_up(resolved_runs, options)
    return SweepResult(tuple(result_of(resolved, options.out) for resolved in resolved_runs), tuple(failures))


def _clear_up(resolved_runs: Sequence[ResolvedRun], options: TrainOptions) -> None:
    """Remove checkpoints that a kill after the last file left beside finished runs."""
    for path in (options.out / resolved.name for resolved in resolved_runs):
        if path.exists() and (run := open_run(path)).is_done:
            run.drop_checkpoints()


class Scheduler:
    """Which jobs wait, rest, are out, or failed."""

    def __init__(
        self,
        groups: Sequence[FleetGroup],
        jobs: Sequence[dict[str, Any]],
        executor: Executor,
        listener: SweepListener,
        deadline: Deadline = NO_DEADLINE,
        done: Callable[[int], None] = lambda job: None,
    ):
        """`jobs` are what workers are given, one for each of the groups. After the deadline none is handed out; `done`
        is told of each that came to its end."""
        self._groups = groups
        self._jobs = jobs
        self._executor = executor
        self._listener = listener
        self._waiting = deque(range(len(groups)))
        self._resting: dict[int, float] = {}
        self._out: set[int] = set()
        self._losses = [0] * len(groups)
        self._was_taken: set[int] = set()
        self._failures: dict[int, Failure] = {}
        self._deadline = deadline
        self._done = done

    def run(self, at_once: int) -> list[Failure]:
        while self._out or ((self._waiting or self._resting) and not self._deadline.is_past):
            now = time.monotonic()
            for job in [job for job, until in self._resting.items() if until <= now]:
                del self._resting[job]
                self._waiting.append(job)
            while self._waiting and len(self._out) < at_once and not self._deadline.is_past:
                job = self._waiting.popleft()
                self._executor.submit(job, self._jobs[job])
                self._out.add(job)
                self._listener.submitted(job)
            if self._out:
                for ended in self._executor.wait(_LOOK):
                    self._out.remove(ended.number)
                    self._hear(ended)
            else:
                time.sleep(_LOOK)
        return [self._failures[job] for job in sorted(self._failures)]

    def _hear(self, ended: Ended) -> None:
        job, report = ended.number, ended.report
        if report is None:
            self._losses[job] += 1
            left = TRIES_AGAIN + 1 - self._losses[job]
            if left == 0:
                self._fail(job, f"lost {self._losses[job]} times; the last time, {ended.lost}")
                return
            self._listener.lost(job, ended.lost, left)
            self._waiting.append(job)
            return
        for note in report.notes:
            self._listener.said(job, note)
        if report.status == "taken":
            # Perhaps its own first worker, believed dead and still at it: nothing is lost, the lock will be free.
            if job not in self._was_taken:
                self._was_taken.add(job)
                self._listener.said(job, f"waiting: {report.reason}")
            self._resting[job] = time.monotonic() + REST
        elif report.status == "failed":
            self._fail(job, report.reason)
        elif report.status == "stopped":
            self._listener.said(job, "stopped, the time is up")
        else:
            self._done(job)
            self._listener.ended(job)

    def _fail(self, job: int, reason: str) -> None:
        self._failures[job] = Failure(job, tuple(resolved.name for resolved in self._groups[job].resolved_runs), reason)
        self._listener.failed(job, reason)


def job_json(group: FleetGroup, options: TrainOptions) -> dict[str, Any]:
    """A fleet to be trained, as a worker is told."""
    return {
        "kind": "train",
        "options": options_json(options),
        "configs": [resolved.config.to_json() for resolved in group.resolved_runs],
    }


def options_json(options: TrainOptions) -> dict[str, Any]:
    """Workers may stand in another folder, so paths are whole."""
    root = options.data_root
    paths = {"out": str(options.out.resolve()), "data_root": None if root is None else str(root.resolve())}
    return {**asdict(options), **paths, "command": list(options.command)}

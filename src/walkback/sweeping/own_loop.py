"""Run the jobs of an audit of a user's own training function on an executor."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from walkback.auditing.own_loop.audit_own_loop import OwnLoop, RunJobs
from walkback.auditing.own_loop.jobs import LoopJob
from walkback.core.errors import InputError, WalkbackError
from walkback.core.machine import cores
from walkback.runs.deadline import Deadline
from walkback.runs.train_runs import ProgressListener, TrainOptions
from walkback.sweeping.executor import worker_threads
from walkback.sweeping.make_executor import gpu_count, make_executor
from walkback.sweeping.sweep import Scheduler, SweepListener


def on_executor(kind: str, options: TrainOptions, at_once: int | None, slurm: Mapping[str, Any]) -> RunJobs:
    """A function that runs jobs on the executor of this kind, `at_once` at a time."""
    if at_once is not None and (not isinstance(at_once, int) or at_once < 1):
        raise InputError(f"jobs is {at_once!r}; expected a number of jobs at once, at least 1.")
    if slurm and kind != "slurm":
        raise InputError(f"slurm= is for executor='slurm', not for '{kind}'.")

    def run_jobs(
        jobs: Sequence[LoopJob], loop: OwnLoop, options: TrainOptions, deadline: Deadline, listener: ProgressListener
    ) -> None:
        if not jobs:
            return
        problems = [reference.problem for reference in loop.references if reference.problem]
        if problems:
            raise InputError(
                f"{problems[0]}, so no other process can import it. Define train and build at the top level of a file, "
                "or leave executor= out."
            )
        count = at_once
        if kind == "local":
            count = at_once or gpu_count(options.device) or max(1, cores() // worker_threads())
        executor = make_executor(kind, options, count, slurm)
        try:
            documents = [_job_json(job, loop, options, deadline) for job in jobs]
            names = [(job.name,) for job in jobs]
            scheduler = Scheduler(names, documents, executor, _Forward(jobs, listener), deadline)
            failures = scheduler.run(count or len(jobs))
        finally:
            executor.close()
        if failures:
            first = failures[0]
            error = InputError if all(failure.is_input for failure in failures) else WalkbackError
            raise error(f"{len(failures)} of {len(jobs)} jobs failed; the first, {first.runs[0]}: {first.reason}")

    return run_jobs


class _Forward(SweepListener):
    """Passes the events of the scheduler on."""

    def __init__(self, jobs: Sequence[LoopJob], listener: ProgressListener):
        self._jobs, self._listener, self._ended = jobs, listener, 0

    def ended(self, job: int) -> None:
        self._ended += 1
        self._listener.job_ended(self._jobs[job].name, self._ended, len(self._jobs))

    def lost(self, job: int, reason: str, tries_left: int) -> None:
        self._listener.warned(f"{self._jobs[job].name}: its worker was lost: {reason}; {tries_left} tries are left")

    def noted(self, job: int, note: str) -> None:
        self._listener.warned(f"{self._jobs[job].name}: {note}")


def _job_json(job: LoopJob, loop: OwnLoop, options: TrainOptions, deadline: Deadline) -> dict[str, Any]:
    """The job as JSON data: the training function travels as a file and a name."""
    has_end = options.max_seconds is not None
    return {
        "kind": "own_loop",
        "job": job.to_json(),
        "sources": [reference.to_json() for reference in loop.references],
        "out": str(options.out.resolve()),
        "device": options.device,
        "checkpoint_seconds": options.checkpoint_seconds,
        "command": list(options.command),
        "described": dict(loop.describe or {}),
        "needs_feedback": list(loop.needs_feedback),
        "until": time.time() + deadline.left if has_end else None,
    }

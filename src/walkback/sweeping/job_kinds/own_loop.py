"""Run one job of an audit of a user's own training function."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from walkback.auditing.own_loop.function_reference import FunctionReference
from walkback.auditing.own_loop.jobs import LoopJob
from walkback.auditing.own_loop.train_job import JobOptions, train_job
from walkback.runs.deadline import Deadline
from walkback.runs.train_runs import choose_device
from walkback.sweeping.job_options import NotingListener


def run(job: dict[str, Any], note: Callable[[str], None]) -> bool:
    """Import the training function, run the job, and return whether it is finished."""
    sources = tuple(FunctionReference.from_json(each) for each in job["sources"])
    options = JobOptions(
        Path(job["out"]),
        choose_device(job["device"]),
        job["checkpoint_seconds"],
        tuple(job["command"]),
        sources,
        job["described"],
        tuple(job["needs_feedback"]),
    )
    until = job["until"]
    deadline = Deadline(None if until is None else max(0.0, until - time.time()))
    return train_job(sources[0].load(), LoopJob(**job["job"]), options, deadline, NotingListener(note))

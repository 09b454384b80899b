"""Train the runs of one fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from walkback.core.configuration import RunConfig
from walkback.runs.train_runs import train_resolved
from walkback.sweeping.job_options import NotingListener, options_of
from walkback.training.resolved_run import resolve


def run(job: dict[str, Any], note: Callable[[str], None]) -> bool:
    """Train `job["configs"]` and return whether every run is finished."""
    resolved_runs = [resolve(RunConfig.from_json(config)) for config in job["configs"]]
    results = train_resolved(resolved_runs, options_of(job), NotingListener(note))
    return all(result.status == "done" for result in results)

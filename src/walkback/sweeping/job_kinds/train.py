"""Train the runs of one fleet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from walkback.core.configuration import RunConfig
from walkback.runs.train_runs import train_configs
from walkback.sweeping.job_options import NotingListener, options_of


def run(job: dict[str, Any], note: Callable[[str], None]) -> bool:
    """Train `job["configs"]`; whether every run is finished."""
    configs = [RunConfig.from_json(config) for config in job["configs"]]
    results = train_configs(configs, options_of(job), NotingListener(note))
    return all(result.status == "done" for result in results)

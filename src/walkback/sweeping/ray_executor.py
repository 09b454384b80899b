"""Run jobs as Ray tasks, on this machine or on the cluster that RAY_ADDRESS names (`auto`: a running cluster)."""

from __future__ import annotations

import os
from typing import Any

from walkback.core.errors import InputError
from walkback.sweeping.executor import EndedJob, JobSpec
from walkback.sweeping.worker import JobReport, run_job

OBJECT_STORE_BYTES = 100 << 20
"""Shared memory of a local Ray; small, because jobs and reports are a few kilobytes."""


class RayExecutor:
    """Runs each job as a Ray task with one core and, if `wants_gpu`, one GPU. `slots`: cores of a Ray started here."""

    def __init__(self, slots: int, wants_gpu: bool = False) -> None:
        try:
            import ray
        except ImportError:
            raise InputError("--executor ray needs Ray. Install it with: pip install 'walkback[ray]'") from None
        self._ray: Any = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            address = os.environ.get("RAY_ADDRESS", "local")
            own = {"num_cpus": slots, "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
            try:
                ray.init(address=address, log_to_driver=False, **(own if address == "local" else {}))
            except (ConnectionError, ValueError) as error:
                raise InputError(f"Ray could not be started at RAY_ADDRESS={address}: {error}") from error
        # The scheduler of the sweep retries lost jobs.
        self._task: Any = ray.remote(num_cpus=1, num_gpus=int(wants_gpu), max_retries=0)(run_job)
        self._started: dict[Any, int] = {}

    def submit(self, number: int, job: JobSpec) -> None:
        self._started[self._task.remote(dict(job))] = number

    def wait(self, seconds: float) -> list[EndedJob]:
        if not self._started:
            return []
        over, _ = self._ray.wait(list(self._started), num_returns=1, timeout=seconds)
        return [self._end(task) for task in over]

    def close(self) -> None:
        for task in self._started:
            self._ray.cancel(task, force=True)
        self._started.clear()
        if self._is_ours:
            self._ray.shutdown()

    def _end(self, task: Any) -> EndedJob:
        number = self._started.pop(task)
        try:
            return EndedJob(number, JobReport.from_json(self._ray.get(task)))
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines()
            # RayTaskError has a traceback as its text, with the exception in the last line.
            reason = lines[-1 if isinstance(error, self._ray.exceptions.RayTaskError) else 0] if lines else ""
            return EndedJob(number, None, f"Ray lost its worker ({type(error).__name__}: {reason})")

"""Jobs as Ray tasks: on this machine, or on the cluster that RAY_ADDRESS names (`auto` for a running one)."""

from __future__ import annotations

import os
from typing import Any

from walkback.core.errors import InputError
from walkback.sweeping.executor import Ended, JobSpec
from walkback.sweeping.worker import JobReport, run_job

STORE_BYTES = 100 << 20
"""Ray's shared memory on this machine: jobs and reports are a few kilobytes."""


class RayExecutor:
    """A Ray task for each job, of one core and perhaps one GPU. `slots` are the cores of a Ray of our own."""

    def __init__(self, slots: int, wants_gpu: bool = False) -> None:
        try:
            import ray
        except ImportError:
            raise InputError("--executor ray needs Ray. Install it with: pip install 'walkback[ray]'") from None
        self._ray: Any = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            address = os.environ.get("RAY_ADDRESS", "local")
            own = {"num_cpus": slots, "object_store_memory": STORE_BYTES, "include_dashboard": False}
            try:
                ray.init(address=address, log_to_driver=False, **(own if address == "local" else {}))
            except (ConnectionError, ValueError) as error:
                raise InputError(f"Ray could not be started at RAY_ADDRESS={address}: {error}") from error
        # The sweep itself decides how often a lost job is tried again.
        self._task: Any = ray.remote(num_cpus=1, num_gpus=int(wants_gpu), max_retries=0)(run_job)
        self._started: dict[Any, int] = {}

    def submit(self, number: int, job: JobSpec) -> None:
        self._started[self._task.remote(dict(job))] = number

    def wait(self, seconds: float) -> list[Ended]:
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

    def _end(self, task: Any) -> Ended:
        number = self._started.pop(task)
        try:
            return Ended(number, JobReport.from_json(self._ray.get(task)))
        except self._ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines()
            # What a task raised is Ray's text for a person: a traceback, with the error itself in its last line.
            said = lines[-1 if isinstance(error, self._ray.exceptions.RayTaskError) else 0] if lines else ""
            return Ended(number, None, f"Ray lost its worker ({type(error).__name__}: {said})")

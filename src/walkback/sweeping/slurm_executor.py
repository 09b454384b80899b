"""Run jobs on a Slurm cluster, through submitit. The folder of the runs must be visible to every node."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from walkback.core.errors import InputError
from walkback.sweeping.executor import EndedJob, JobSpec
from walkback.sweeping.worker import JobReport, run_job

DEFAULT_HOURS = 4
"""Default time limit of a job; a job that reaches it is resumed from its last checkpoint."""


class SlurmExecutor:
    """Runs each job as a Slurm job. `settings` are submitit's parameters (timeout_min, slurm_partition, ...).

    With `cluster="local"` submitit starts processes on this machine instead.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        wants_gpu: bool = False,
        cluster: Literal["slurm", "local"] = "slurm",
    ) -> None:
        try:
            import submitit
        except ImportError:
            raise InputError(
                "--executor slurm needs submitit. Install it with: pip install 'walkback[slurm]'"
            ) from None
        if cluster == "slurm" and shutil.which("sbatch") is None:
            raise InputError("--executor slurm needs sbatch, which this machine does not have. Use --executor local.")
        self._submitit: Any = submitit
        # One folder per sweep: submitit identifies local jobs by process ids, which are used again.
        own_folder = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        self._executor: Any = submitit.AutoExecutor(folder=own_folder, cluster=cluster)
        own = {
            "name": "walkback",
            "timeout_min": DEFAULT_HOURS * 60,
            "cpus_per_task": 1,
            "gpus_per_node": int(wants_gpu),
        }
        try:
            self._executor.update_parameters(**own | dict(settings))
        except (NameError, TypeError, AssertionError, ValueError) as error:
            raise InputError(f"--slurm was refused by submitit: {error}") from error
        self._started: dict[int, Any] = {}

    def submit(self, number: int, job: JobSpec) -> None:
        try:
            self._started[number] = self._executor.submit(run_job, dict(job))
        except self._submitit.core.utils.FailedSubmissionError as error:
            reason = " ".join(str(error).split())
            raise InputError(
                f"Slurm refused a job: {reason}. Check --slurm, then run the same command again to continue."
            ) from error

    def wait(self, seconds: float) -> list[EndedJob]:
        until = time.monotonic() + seconds
        while True:
            over = [number for number, job in self._started.items() if job.done()]
            if over or time.monotonic() >= until:
                return [self._end(number) for number in over]
            time.sleep(min(0.2, seconds))

    def close(self) -> None:
        for job in self._started.values():
            job.cancel()
        self._started.clear()

    def _end(self, number: int) -> EndedJob:
        job = self._started.pop(number)
        try:
            return EndedJob(number, JobReport.from_json(job.result()))
        except (self._submitit.core.utils.UncompletedJobError, self._submitit.core.utils.FailedJobError) as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            return EndedJob(
                number, None, f"job {job.job_id} ended without a report ({lines[0] if lines else 'no reason'})"
            )

"""The executor interface, and the executor that runs jobs as processes on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from walkback.core.errors import InputError
from walkback.core.reading.json_text import read_object
from walkback.core.reading.regular_files import fault_of
from walkback.sweeping.worker import JobReport

JobSpec = Mapping[str, Any]
"""A job as JSON data, the argument of `worker.run_job`."""
TERMINATE_SECONDS = 5.0
"""Seconds that a worker has to end after SIGTERM, before it is killed."""


@dataclass(frozen=True)
class EndedJob:
    """A job that ended: the report of its worker, or why the worker was lost."""

    number: int
    report: JobReport | None
    lost: str = ""
    """Why there is no report; empty if there is one."""


class Executor(Protocol):
    """Runs jobs. A job is identified by its number, which may be used again after `wait` has returned the job."""

    def submit(self, number: int, job: JobSpec) -> None:
        """Run a job, now or as soon as there are resources for it."""

    def wait(self, seconds: float) -> list[EndedJob]:
        """The jobs that ended since the last call; waits at most `seconds` for one to end."""

    def close(self) -> None:
        """Stop the jobs that still run and free all resources."""


@dataclass(frozen=True)
class _Started:
    process: subprocess.Popen[bytes]
    folder: Path
    gpu: str | None


class LocalExecutor:
    """Runs each job as a process on this machine, with one thread unless OMP_NUM_THREADS is set.

    Each process gets one of `gpus`, the least used one, as its CUDA_VISIBLE_DEVICES.
    """

    def __init__(self, gpus: tuple[str, ...] = ()) -> None:
        self._gpus = gpus
        self._started: dict[int, _Started] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="walkback-sweep-")
        self._count = 0

    def submit(self, number: int, job: JobSpec) -> None:
        self._count += 1
        folder = Path(self._folder.name) / str(self._count)
        folder.mkdir()
        (folder / "job.json").write_text(json.dumps(job))
        in_use = [started.gpu for started in self._started.values()]
        gpu = min(self._gpus, key=in_use.count, default=None)
        with (folder / "errors.txt").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "walkback.sweeping.worker", folder / "job.json", folder / "report.json"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=worker_environment(gpu),
            )
        self._started[number] = _Started(process, folder, gpu)

    def wait(self, seconds: float) -> list[EndedJob]:
        until = time.monotonic() + seconds
        while True:
            over = [number for number, started in self._started.items() if started.process.poll() is not None]
            if over or time.monotonic() >= until:
                return [self._end(number) for number in over]
            time.sleep(min(0.05, seconds))

    def close(self) -> None:
        for started in self._started.values():
            started.process.terminate()
        for started in self._started.values():
            try:
                started.process.wait(TERMINATE_SECONDS)
            except subprocess.TimeoutExpired:
                started.process.kill()
                started.process.wait()
            _close_pipe(started.process)
        self._started.clear()
        self._folder.cleanup()

    def pids(self) -> dict[int, int]:
        """The process id of each running job."""
        return {number: started.process.pid for number, started in self._started.items()}

    def _end(self, number: int) -> EndedJob:
        started = self._started.pop(number)
        _close_pipe(started.process)
        report = started.folder / "report.json"
        if report.exists():
            return EndedJob(
                number, JobReport.from_json(read_object(report, fault_of(report, "Start the sweep again.")))
            )
        lines = (started.folder / "errors.txt").read_text(errors="replace").strip().splitlines()
        last_line = f" ({lines[-1]})" if lines else ""
        return EndedJob(number, None, f"its process {_exit_text(started.process.returncode)}{last_line}")


def _exit_text(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"was killed by signal {-status}"


def _close_pipe(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        process.stdin.close()


def worker_environment(gpu: str | None) -> dict[str, str]:
    """Environment of a worker: one thread by default, since several multi-threaded workers compete for the cores."""
    own = {"OMP_NUM_THREADS": "1"} | dict(os.environ)
    return own if gpu is None else own | {"CUDA_VISIBLE_DEVICES": gpu}


def worker_threads() -> int:
    """The number of threads of one worker."""
    text = os.environ.get("OMP_NUM_THREADS", "1").partition(",")[0]
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"OMP_NUM_THREADS is '{text}'; expected a whole number of at least 1.")
    return int(text)


def visible_gpus(count: int) -> tuple[str, ...]:
    """Names of the `count` GPUs that torch sees, in the form of CUDA_VISIBLE_DEVICES."""
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return tuple(named[:count]) if named else tuple(map(str, range(count)))

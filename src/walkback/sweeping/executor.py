"""Where jobs are carried out: three methods, and the executor that starts processes on this machine."""

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
from walkback.sweeping.worker import JobReport

JobSpec = Mapping[str, Any]
"""What `worker.perform` takes: JSON."""
PATIENCE = 5.0
"""Seconds a worker has to end when asked to."""


@dataclass(frozen=True)
class Ended:
    """One job's end: what its worker said, or how the worker was lost."""

    number: int
    report: JobReport | None
    lost: str = ""
    """Why there is no report."""


class Executor(Protocol):
    """Carries out jobs somewhere. A job is known by its number, which is free again once its end was told."""

    def submit(self, number: int, job: JobSpec) -> None:
        """Have a job carried out, now or as soon as there is room."""

    def wait(self, seconds: float) -> list[Ended]:
        """The jobs that have ended since the last call; waits for one, but no longer than `seconds`."""

    def close(self) -> None:
        """End what still runs, and let go of everything."""


@dataclass(frozen=True)
class _Started:
    process: subprocess.Popen[bytes]
    folder: Path
    gpu: str | None


class LocalExecutor:
    """A process for each job on this machine, with one thread unless OMP_NUM_THREADS says otherwise.

    `gpus` are handed out in turn, the least used first, as CUDA_VISIBLE_DEVICES.
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
                env=environment(gpu),
            )
        self._started[number] = _Started(process, folder, gpu)

    def wait(self, seconds: float) -> list[Ended]:
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
                started.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                started.process.kill()
                started.process.wait()
            _close_pipe(started.process)
        self._started.clear()
        self._folder.cleanup()

    def pids(self) -> dict[int, int]:
        """The process of each job that is being carried out."""
        return {number: started.process.pid for number, started in self._started.items()}

    def _end(self, number: int) -> Ended:
        started = self._started.pop(number)
        _close_pipe(started.process)
        report = started.folder / "report.json"
        if report.exists():
            return Ended(number, JobReport.from_json(json.loads(report.read_text())))
        lines = (started.folder / "errors.txt").read_text(errors="replace").strip().splitlines()
        said = f" ({lines[-1]})" if lines else ""
        return Ended(number, None, f"its process {_how(started.process.returncode)}{said}")


def _how(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _close_pipe(process: subprocess.Popen[bytes]) -> None:
    if process.stdin:
        process.stdin.close()


def environment(gpu: str | None) -> dict[str, str]:
    """A worker's environment: several processes of many threads each would only be in each other's way."""
    own = {"OMP_NUM_THREADS": "1"} | dict(os.environ)
    return own if gpu is None else own | {"CUDA_VISIBLE_DEVICES": gpu}


def threads() -> int:
    """The threads of one worker."""
    text = os.environ.get("OMP_NUM_THREADS", "1").partition(",")[0]
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"OMP_NUM_THREADS is '{text}'; expected a whole number of at least 1.")
    return int(text)


def visible_gpus(count: int) -> tuple[str, ...]:
    """The names of the `count` GPUs that torch sees, as CUDA_VISIBLE_DEVICES takes them."""
    named = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return tuple(named[:count]) if named else tuple(map(str, range(count)))

"""A worker: do one job and report how it ended.

A job and its report are plain JSON, so that files, Ray and Slurm can carry them. `job["kind"]` names a module of
`job_kinds`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from walkback.core.errors import WalkbackError
from walkback.core.files import write_atomic
from walkback.runs.store import RunLockedError


@dataclass(frozen=True)
class JobReport:
    """What a worker says at the end of a job."""

    status: Literal["done", "stopped", "taken", "failed"]
    """`stopped`: the time was up; `taken`: another process has these runs just now, perhaps a worker that was believed
    dead."""
    reason: str = ""
    notes: tuple[str, ...] = ()
    """What else whoever watches should know, such as that the memory was not enough at first."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(plain: dict[str, Any]) -> JobReport:
        return JobReport(plain["status"], plain["reason"], tuple(plain["notes"]))


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Carry out a job; every error that Python can catch is in its report."""
    notes: list[str] = []
    try:
        # Imported here, so that a worker whose installation is broken can report it.
        from walkback.sweeping.job_kinds import JOBS

        is_done = JOBS.get(job["kind"])(job, notes.append)
    except RunLockedError as error:
        report = JobReport("taken", str(error))
    except WalkbackError as error:
        report = JobReport("failed", str(error), tuple(notes))
    except Exception as error:
        report = JobReport("failed", f"{type(error).__name__}: {error}", tuple(notes))
    else:
        report = JobReport("done" if is_done else "stopped", notes=tuple(notes))
    return report.to_json()


def main(job: Path, report: Path) -> None:
    """A worker in a process of its own: the job comes in a file and the report goes into one."""
    threading.Thread(target=_end_with_the_sweep, daemon=True).start()
    said = run_job(json.loads(job.read_text()))
    write_atomic(report, json.dumps(said).encode())
    if said["status"] == "stopped":
        # What torch's compiler has still to do in processes of its own would be waited for.
        os._exit(0)


def _end_with_the_sweep() -> None:
    """The sweep holds the other end of our standard input; when it is gone, however it ended, so are we."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

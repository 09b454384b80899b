"""A worker: run one job and report how it ended.

A job and its report are JSON data, which files, Ray and Slurm can transfer. `job["kind"]` names a module of
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

from walkback.core.errors import InputError, WalkbackError
from walkback.core.files import write_atomic
from walkback.core.reading.json_text import read_object
from walkback.core.reading.regular_files import fault_of
from walkback.runs.store import RunLockedError


@dataclass(frozen=True)
class JobReport:
    """How a job ended."""

    status: Literal["done", "stopped", "taken", "failed"]
    """`stopped`: the time limit was reached; `taken`: another process has locked these runs, perhaps a worker that was
    believed dead."""
    reason: str = ""
    notes: tuple[str, ...] = ()
    """Messages for the user, such as that a fleet did not fit into the memory and was split."""
    is_input: bool = False
    """Whether the user's input or code is the cause of a failure."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(plain: dict[str, Any]) -> JobReport:
        return JobReport(plain["status"], plain["reason"], tuple(plain["notes"]), plain.get("is_input", False))


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Run a job and return its report as JSON data; exceptions become reports with the status `failed`."""
    notes: list[str] = []
    try:
        # Imported here, so that a broken installation is reported too.
        from walkback.sweeping.job_kinds import JOBS

        is_done = JOBS.get(job["kind"])(job, notes.append)
    except RunLockedError as error:
        report = JobReport("taken", str(error))
    except WalkbackError as error:
        report = JobReport("failed", str(error), tuple(notes), isinstance(error, InputError))
    except Exception as error:
        report = JobReport("failed", f"{type(error).__name__}: {error}", tuple(notes))
    else:
        report = JobReport("done" if is_done else "stopped", notes=tuple(notes))
    return report.to_json()


def main(job: Path, report: Path) -> None:
    """Run the job in the file `job` and write its report to the file `report`."""
    threading.Thread(target=_exit_with_sweep, daemon=True).start()
    outcome = run_job(read_object(job, fault_of(job, "Start the sweep again.")))
    write_atomic(report, json.dumps(outcome).encode())
    if outcome["status"] == "stopped":
        # A normal exit would wait for the processes of torch's compiler.
        os._exit(0)


def _exit_with_sweep() -> None:
    """Exit when standard input closes: the sweep holds its other end, so the sweep has ended, even if it was killed."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

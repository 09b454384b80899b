"""What a worker does, wherever it is: train one fleet, or settle some runs of studies, and say how it went.

A job and its report are plain JSON, so that they travel through a file, through Ray and through Slurm alike.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from walkback.core.errors import WalkbackError
from walkback.core.files import write_atomic
from walkback.studies.store import TakenError

if TYPE_CHECKING:
    from walkback.studies.run import Listener, Options


@dataclass(frozen=True)
class Report:
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
    def from_json(plain: dict[str, Any]) -> Report:
        return Report(plain["status"], plain["reason"], tuple(plain["notes"]))


def perform(job: dict[str, Any]) -> dict[str, Any]:
    """Carry out a job; every error that Python can catch is in its report."""
    notes: list[str] = []
    try:
        is_done = (_settle if "studies" in job else _train)(job, notes.append)
    except TakenError as error:
        report = Report("taken", str(error))
    except WalkbackError as error:
        report = Report("failed", str(error), tuple(notes))
    except Exception as error:
        report = Report("failed", f"{type(error).__name__}: {error}", tuple(notes))
    else:
        report = Report("done" if is_done else "stopped", notes=tuple(notes))
    return report.to_json()


def _train(job: dict[str, Any], note: Callable[[str], None]) -> bool:
    """Whether every run is finished."""
    # Imported here, so that a worker whose installation is broken can say so.
    from walkback.core.config import RunConfig
    from walkback.studies import run

    configs = [RunConfig.from_json(config) for config in job["configs"]]
    results = run.train(configs, _options(job), _noting(note))
    return all(result.status == "done" for result in results)


def _settle(job: dict[str, Any], note: Callable[[str], None]) -> bool:
    """Whether every run is finished and measured."""
    from walkback.studies import conduct
    from walkback.studies.scale import scale_of

    studies, scale, options = conduct.studies_of(job["studies"]), scale_of(job["scale"]), _options(job)
    if job["until"] is not None:
        options = replace(options, max_seconds=max(0.0, job["until"] - time.time()))
    return conduct.settle(studies, scale, options, _noting(note), names=set(job["runs"])).is_done


def _options(job: dict[str, Any]) -> Options:
    from walkback.studies.run import Options

    how = job["options"]
    root = how["data_root"]
    paths = {"out": Path(how["out"]), "data_root": None if root is None else Path(root)}
    # Whoever handed out the job has said what it will take.
    return Options(**{**how, **paths, "resume": True, "predict": False, "command": tuple(how["command"])})


def _noting(note: Callable[[str], None]) -> Listener:
    from walkback.studies.run import Listener
    from walkback.training.group import Group, back_off_text

    class Noting(Listener):
        def backed_off(self, group: Group, parts: Sequence[Group], steps: int) -> None:
            note(back_off_text(group, parts))

    return Noting()


def main(job: Path, report: Path) -> None:
    """A worker in a process of its own: the job comes in a file and the report goes into one."""
    threading.Thread(target=_end_with_the_sweep, daemon=True).start()
    said = perform(json.loads(job.read_text()))
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

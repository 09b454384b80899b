"""Write the measurements of a watch to trackio: `Watch(..., loggers=[Trackio(run)])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from walkback.watching.scalars import ScalarLogger, import_extra


class TrackioRun(Protocol):
    """What `trackio.init` returns, or any object with its `log`."""

    def log(self, metrics: dict[str, Any], step: int) -> Any: ...


class Trackio(ScalarLogger):
    """Writes to a run of `trackio.init`; a name starts a run of that project."""

    def __init__(self, run: TrackioRun | str, prefix: str = "walkback"):
        super().__init__(prefix)
        self._run: TrackioRun = _start_run(run) if isinstance(run, str) else run

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)


def _start_run(project: str) -> TrackioRun:
    run: TrackioRun = import_extra("trackio", "trackio", "a run").init(project=project)
    return run

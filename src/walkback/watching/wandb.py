"""Write the measurements of a watch to Weights & Biases: `Watch(..., loggers=[WandB(run)])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from walkback.watching.scalars import ScalarLogger, import_extra


class WandBRun(Protocol):
    """What `wandb.init` returns, or any object with these two methods."""

    def define_metric(self, name: str, *, step_metric: str) -> Any: ...
    def log(self, data: dict[str, Any]) -> Any: ...


class WandB(ScalarLogger):
    """Writes to a run of `wandb.init`; a name starts a run of that project.

    The values are plotted over `walkback/step`. W&B's own step is left alone: it may only grow, and your own calls of
    `log` may count otherwise.
    """

    def __init__(self, run: WandBRun | str, prefix: str = "walkback"):
        super().__init__(prefix)
        self._run: WandBRun = _start_run(run) if isinstance(run, str) else run
        self._run.define_metric(f"{prefix}/*", step_metric=f"{prefix}/step")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({**values, f"{self._prefix}/step": step})


def _start_run(project: str) -> WandBRun:
    run: WandBRun = import_extra("wandb", "wandb", "a run").init(project=project)
    return run

"""Write the measurements of a watch to MLflow: `Watch(..., loggers=[MLflow()])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from walkback.watching.scalars import ScalarLogger, import_extra


class MetricsTracker(Protocol):
    """The module mlflow, or any object with its `log_metrics`."""

    def log_metrics(self, metrics: dict[str, float], step: int) -> Any: ...


class MLflow(ScalarLogger):
    """Writes to MLflow's active run, which MLflow starts where there is none. `@` in a name becomes `_at_`: MLflow
    refuses it."""

    def __init__(self, tracker: MetricsTracker | None = None, prefix: str = "walkback"):
        super().__init__(prefix)
        instead = "an object that has log_metrics"
        self._tracker: MetricsTracker = tracker or import_extra("mlflow", "mlflow", instead)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._tracker.log_metrics({name.replace("@", "_at_"): value for name, value in values.items()}, step=step)

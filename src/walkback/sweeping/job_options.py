"""Read the training options of a job, and turn warnings and out-of-memory events into notes of its report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from walkback.runs.train_runs import ProgressListener, TrainOptions
from walkback.training.planning.fleet_plan import FleetGroup, back_off_text


def options_of(job: dict[str, Any]) -> TrainOptions:
    """Read `job["options"]`, which `sweep.options_json` wrote."""
    options = job["options"]
    root = options["data_root"]
    paths = {"out": Path(options["out"]), "data_root": None if root is None else Path(root)}
    # The sweep has already predicted the time; timing the device again would disturb other workers on it.
    return TrainOptions(**{**options, **paths, "resume": True, "predict": False, "command": tuple(options["command"])})


class NotingListener(ProgressListener):
    """Calls `note` with each warning, and with a text when a fleet did not fit into the memory and was split."""

    def __init__(self, note: Callable[[str], None]):
        self._note = note

    def backed_off(self, group: FleetGroup, parts: Sequence[FleetGroup], steps: int) -> None:
        self._note(back_off_text(group, parts))

    def warned(self, message: str) -> None:
        self._note(message)

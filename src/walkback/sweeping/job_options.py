"""The options of a job, and what a worker reports of its training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from walkback.runs.train_runs import ProgressListener, TrainOptions
from walkback.training.planning.fleet_plan import FleetGroup, back_off_text


def options_of(job: dict[str, Any]) -> TrainOptions:
    """`job["options"]`, as `options_json` wrote them."""
    how = job["options"]
    root = how["data_root"]
    paths = {"out": Path(how["out"]), "data_root": None if root is None else Path(root)}
    # The sweep has predicted the time already; predicting it again would disturb other workers on the same device.
    return TrainOptions(**{**how, **paths, "resume": True, "predict": False, "command": tuple(how["command"])})


class NotingListener(ProgressListener):
    """Passes on, as a note, that a fleet did not fit into the memory."""

    def __init__(self, note: Callable[[str], None]):
        self._note = note

    def backed_off(self, group: FleetGroup, parts: Sequence[FleetGroup], steps: int) -> None:
        self._note(back_off_text(group, parts))

"""What is seen of models while they train: detectors in every row of the log, and full measurements where asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from walkback.auditing.measure_run import SAMPLES, look
from walkback.core.errors import InputError
from walkback.core.files import drop_leftovers, explained
from walkback.core.measurements import GROUP
from walkback.data.dataset import Dataset
from walkback.data.feed import TestSet
from walkback.measure.detector_readings import Detectors
from walkback.runs.measurement_files import close_name
from walkback.runs.store import Run
from walkback.runs.train_runs import free_memory
from walkback.training.driver import Driver
from walkback.training.planning.flop_count import count_step


@dataclass
class Watcher:
    """Looks at a driver's models before its first epoch and after every one."""

    every: int = 1
    """Epochs between looks."""
    closely: Mapping[str, Collection[int]] = field(default_factory=dict)
    """By run name, the epochs after which it is measured in full; 0 is before the first."""
    finished: Callable[[Sequence[Run], Dataset], None] = lambda members, data: None
    """Told of runs that have just been finished, and of their data."""
    _known: WeakKeyDictionary[Driver, Detectors] = field(default_factory=WeakKeyDictionary, repr=False)

    def __post_init__(self) -> None:
        if type(self.every) is not int or self.every < 1:
            raise InputError(f"watch is {self.every!r}; expected a whole number of epochs, at least 1.")

    def before_training(self, driver: Driver, members: Sequence[Run], data: Dataset, device: torch.device) -> None:
        self._look_closely(driver, members, data, device)

    def after_epoch(
        self, driver: Driver, members: Sequence[Run], data: Dataset, device: torch.device
    ) -> list[dict[str, Any]]:
        """What goes into each model's row of the log."""
        self._look_closely(driver, members, data, device)
        if driver.epoch % self.every:
            return [{} for _ in members]
        if driver not in self._known:
            first = driver.recipes[0]
            tests = TestSet(data, first.dtype, device, batch=SAMPLES).batches()
            self._known[driver] = Detectors(first.net, first.rule, *tests[0], at_once=_at_once(driver, device))
        return [sight.to_json() for sight in self._known[driver].look(driver)]

    def after_training(self, members: Sequence[Run], data: Dataset) -> None:
        self.finished(members, data)

    def _look_closely(self, driver: Driver, members: Sequence[Run], data: Dataset, device: torch.device) -> None:
        wanted = [driver.epoch in self.closely.get(run.name, ()) for run in members]
        if not any(wanted):
            return
        tests = TestSet(data, driver.recipes[0].dtype, device)
        for recipe, run, snapshot, is_wanted in zip(driver.recipes, members, driver.snapshots(), wanted, strict=True):
            if is_wanted:
                params, state = (
                    {name: leaf.to(device) for name, leaf in leaves.items()}
                    for leaves in (snapshot.params, snapshot.state)
                )
                path = run.path / close_name(driver.epoch)
                with explained(path.parent, "create"):
                    path.parent.mkdir(exist_ok=True)
                drop_leftovers(path)
                look(recipe, params, state, tests).save(path)


def _at_once(driver: Driver, device: torch.device) -> int:
    """Groups of samples that fit into memory at once, beside the models in training."""
    first = driver.recipes[0]
    each = count_step(first).bytes_made * GROUP // first.config.batch
    return max(1, min(SAMPLES // GROUP, free_memory(device) // (len(driver.recipes) * each)))

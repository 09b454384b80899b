"""Measure models while they train: detectors in every row of the log, full measurements after chosen epochs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from walkback.auditing.measure_run import EVALUATION_SAMPLES, measure_network
from walkback.core.errors import InputError
from walkback.core.files import drop_leftovers, make_subfolder
from walkback.core.measurements import GROUP
from walkback.data.dataset import Dataset
from walkback.data.feed import TestSet
from walkback.measure.detector_readings import Detectors
from walkback.runs.measurement_files import epoch_file
from walkback.runs.store import Run
from walkback.runs.train_runs import memory_budget
from walkback.training.driver import Driver
from walkback.training.planning.flop_count import count_step


@dataclass
class EpochMonitor:
    """Measures a driver's models before the first epoch and after every `every`-th one."""

    every: int = 1
    """Epochs between two detector readings."""
    epochs_to_measure: Mapping[str, Collection[int]] = field(default_factory=dict)
    """By run name, the epochs after which the run is measured in full; 0 is before the first."""
    finished: Callable[[Sequence[Run], Dataset], None] = lambda members, data: None
    """Called with runs that have just been finished, and with their data."""
    _known: WeakKeyDictionary[Driver, Detectors] = field(default_factory=WeakKeyDictionary, repr=False)

    def __post_init__(self) -> None:
        if type(self.every) is not int or self.every < 1:
            raise InputError(f"watch is {self.every!r}; expected a whole number of epochs, at least 1.")

    def before_training(self, driver: Driver, members: Sequence[Run], data: Dataset, device: torch.device) -> None:
        self._measure_in_full(driver, members, data, device)

    def after_epoch(
        self, driver: Driver, members: Sequence[Run], data: Dataset, device: torch.device
    ) -> list[dict[str, Any]]:
        """What is added to each model's row of the log."""
        self._measure_in_full(driver, members, data, device)
        if driver.epoch % self.every:
            return [{} for _ in members]
        if driver not in self._known:
            first = driver.resolved_runs[0]
            tests = TestSet(data, first.dtype, device, batch=EVALUATION_SAMPLES).batches()
            self._known[driver] = Detectors(first.net, first.rule, *tests[0], at_once=_at_once(driver, device))
        return [reading.to_json() for reading in self._known[driver].measure(driver)]

    def after_training(self, members: Sequence[Run], data: Dataset) -> None:
        self.finished(members, data)

    def _measure_in_full(self, driver: Driver, members: Sequence[Run], data: Dataset, device: torch.device) -> None:
        wanted = [driver.epoch in self.epochs_to_measure.get(run.name, ()) for run in members]
        if not any(wanted):
            return
        tests = TestSet(data, driver.resolved_runs[0].dtype, device)
        for resolved, run, snapshot, is_wanted in zip(
            driver.resolved_runs, members, driver.snapshots(), wanted, strict=True
        ):
            if is_wanted:
                params, state = (
                    {name: leaf.to(device) for name, leaf in leaves.items()}
                    for leaves in (snapshot.params, snapshot.state)
                )
                path = run.path / epoch_file(driver.epoch)
                make_subfolder(path.parent)
                drop_leftovers(path)
                measure_network(resolved, params, state, tests).save(path)


def _at_once(driver: Driver, device: torch.device) -> int:
    """Groups of samples that fit into memory together with the models in training."""
    first = driver.resolved_runs[0]
    each = count_step(first).bytes_made * GROUP // first.config.batch
    return max(1, min(EVALUATION_SAMPLES // GROUP, memory_budget(device) // (len(driver.resolved_runs) * each)))

"""What is seen of models while they train: detectors in every row of the log, and full measurements where asked for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch

from walkback.core.files import explained
from walkback.data.dataset import Dataset
from walkback.data.feed import TestSet
from walkback.measure.detect import Detectors
from walkback.studies.laboratory import SAMPLES, look
from walkback.studies.results import CLOSELY
from walkback.studies.store import Run
from walkback.training.driver import Driver


@dataclass
class Watcher:
    """Looks at a driver's models after its epochs."""

    every: int = 1
    """Epochs between looks."""
    closely: Mapping[str, Collection[int]] = field(default_factory=dict)
    """By run name, the epochs after which it is measured in full."""
    _known: WeakKeyDictionary[Driver, Detectors] = field(default_factory=WeakKeyDictionary, repr=False)

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
            self._known[driver] = Detectors(first.net, first.rule, *tests[0])
        return [sight.to_json() for sight in self._known[driver].look(driver)]

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
                folder = run.path / CLOSELY
                with explained(folder, "create"):
                    folder.mkdir(exist_ok=True)
                look(recipe, params, state, tests).save(folder / f"{driver.epoch:04d}.npz")

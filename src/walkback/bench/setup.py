"""The models that are timed: ResMLPs on vectors as long as a CIFAR image, so that no file is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from walkback.core.config import RunConfig
from walkback.core.settings import Choice
from walkback.data.dataset import Dataset
from walkback.training.driver import Driver
from walkback.training.recipe import Recipe, resolve

BATCH = 128
MANY_EPOCHS = 10_000
"""So that a schedule does not end while its driver is still being timed."""


@dataclass(frozen=True)
class Scale:
    """The paper's ResMLP and CIFAR's arithmetic; `steps` make up what is timed at once."""

    d: int = 256
    depth: int = 4
    dim: int = 3072
    steps: int = 25
    test: int = 1024

    def recipes(self, method: str, seeds: Sequence[int]) -> list[Recipe]:
        data = {"dim": self.dim, "train": self.steps * BATCH, "test": self.test}
        shared = {
            "arch": Choice("resmlp", {"d": self.d, "depth": self.depth}),
            "data": Choice("prototypes", data),
            "epochs": MANY_EPOCHS,
            "batch": BATCH,
        }
        return [resolve(RunConfig(method=Choice.parse(method), seed=seed, **shared)) for seed in seeds]  # type: ignore[arg-type]

    def recipe(self, method: str) -> Recipe:
        return self.recipes(method, [0])[0]

    def data(self) -> Dataset:
        return self.recipe("bp").source.load(None)

    def facts(self) -> dict[str, Any]:
        return {"arch": f"resmlp:d={self.d},depth={self.depth}", "inputs": self.dim, "batch": BATCH}


TINY = {"d": 16, "depth": 2, "dim": 32, "steps": 2, "test": 256}
"""What `quick` times instead."""


def scale(quick: bool, **changes: int) -> Scale:
    return Scale(**(TINY if quick else changes))


def epoch_of(driver: Driver) -> Callable[[], object]:
    return lambda: driver.train_epoch(lambda _: None)

"""The models that are timed: the papers' sizes, on made-up inputs of CIFAR's length, so that no file is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from walkback.core.configuration import RunConfig
from walkback.core.errors import InputError
from walkback.core.settings import Choice
from walkback.credit import RULES
from walkback.data.dataset import Dataset
from walkback.training.driver import Driver
from walkback.training.resolved_run import Recipe, resolve

BATCH = 128
MANY_EPOCHS = 1_000_000
"""So that a schedule does not end while its driver is still being timed."""
INPUTS = {"resmlp": "prototypes:dim=3072", "student_net": "teacher"}
IMAGES = "tiles:side=32"
"""What an architecture is timed on: images of CIFAR's size where it has no entry above."""
TINY_ARCHS = {
    "resmlp": "resmlp:d=16,depth=2",
    "student_net": "student_net:d=16,depth=2",
    "vit_mini": "vit_mini:d=8,depth=1,heads=2,mlp_ratio=2",
    "small_cnn": "small_cnn:width=4,depth=1",
}
TINY_INPUTS = {"resmlp": "prototypes:dim=32", "student_net": "teacher:dim=8"}
TINY_IMAGES = "tiles:side=8"
TINY_STEPS, TINY_TEST = 2, 256
"""What `quick` times instead."""


@dataclass(frozen=True)
class Scale:
    """What is timed; an epoch has `steps` steps."""

    arch: str = "resmlp"
    """As a user writes it; its defaults are the papers' sizes."""
    data: str = INPUTS["resmlp"]
    steps: int = 25
    test: int = 1024

    def recipes(self, method: str, seeds: Sequence[int]) -> list[Recipe]:
        data = Choice.parse(self.data)
        sizes = {"train": self.steps * BATCH, "test": self.test}
        shared: dict[str, Any] = {
            "arch": Choice.parse(self.arch),
            "data": Choice(data.name, {**data.settings, **sizes}),
            "epochs": MANY_EPOCHS,
            "batch": BATCH,
        }
        return [resolve(RunConfig(method=Choice.parse(method), seed=seed, **shared)) for seed in seeds]

    def recipe(self, method: str) -> Recipe:
        return self.recipes(method, [0])[0]

    def load(self) -> Dataset:
        return self.recipe("bp").source.load(None)

    def facts(self) -> dict[str, Any]:
        recipe = self.recipe("bp")
        return {"arch": str(recipe.config.arch), "inputs": list(recipe.source.input_shape), "batch": BATCH}


def scale(quick: bool, arch: str = "resmlp", steps: int = 25) -> Scale:
    """What a bench times of an architecture."""
    name = Choice.parse(arch).name
    if quick:
        # Settings that a user adds are for the full size.
        tiny = TINY_ARCHS.get(name, arch)
        return Scale(tiny, TINY_INPUTS.get(name, TINY_IMAGES), TINY_STEPS, TINY_TEST)
    return Scale(arch, INPUTS.get(name, IMAGES), steps)


def epoch_of(driver: Driver) -> Callable[[], object]:
    return lambda: driver.train_epoch(lambda _: None)


def refusal(method: str, size: Scale) -> str:
    """Why a rule of the catalog is not defined here; a name that is not in the catalog is a mistake instead."""
    RULES.module(Choice.parse(method).name)
    try:
        size.recipe(method)
    except InputError as error:
        return str(error)
    return ""

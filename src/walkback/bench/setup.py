"""The models that are timed: the papers' sizes, on made-up inputs of CIFAR's length, so that no file is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from walkback.core.configuration import RunConfig
from walkback.core.errors import InputError
from walkback.core.settings import Spec
from walkback.credit import RULES
from walkback.data.dataset import Dataset
from walkback.training.driver import Driver
from walkback.training.resolved_run import ResolvedRun, resolve

BENCH_BATCH = 128
MANY_EPOCHS = 1_000_000
"""So that a schedule does not end while its driver is still being timed."""
INPUTS = {"resmlp": "prototypes:dim=3072", "student_net": "teacher"}
BENCH_IMAGES = "tiles:side=32"
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
class BenchScale:
    """What is timed; an epoch has `steps` steps."""

    arch: str = "resmlp"
    """As a user writes it; its defaults are the papers' sizes."""
    data: str = INPUTS["resmlp"]
    steps: int = 25
    test: int = 1024

    def resolved_runs(self, method: str, seeds: Sequence[int]) -> list[ResolvedRun]:
        data = Spec.parse(self.data)
        sizes = {"train": self.steps * BENCH_BATCH, "test": self.test}
        shared: dict[str, Any] = {
            "arch": Spec.parse(self.arch),
            "data": Spec(data.name, {**data.settings, **sizes}),
            "epochs": MANY_EPOCHS,
            "batch": BENCH_BATCH,
        }
        return [resolve(RunConfig(method=Spec.parse(method), seed=seed, **shared)) for seed in seeds]

    def resolved(self, method: str) -> ResolvedRun:
        return self.resolved_runs(method, [0])[0]

    def load(self) -> Dataset:
        return self.resolved("bp").source.load(None)

    def facts(self) -> dict[str, Any]:
        resolved = self.resolved("bp")
        return {"arch": str(resolved.config.arch), "inputs": list(resolved.source.input_shape), "batch": BENCH_BATCH}


def scale(quick: bool, arch: str = "resmlp", steps: int = 25) -> BenchScale:
    """What a bench times of an architecture."""
    name = Spec.parse(arch).name
    if quick:
        # Settings that a user adds are for the full size.
        tiny = TINY_ARCHS.get(name, arch)
        return BenchScale(tiny, TINY_INPUTS.get(name, TINY_IMAGES), TINY_STEPS, TINY_TEST)
    return BenchScale(arch, INPUTS.get(name, BENCH_IMAGES), steps)


def epoch_of(driver: Driver) -> Callable[[], object]:
    return lambda: driver.train_epoch(lambda _: None)


def bench_refusal(method: str, size: BenchScale) -> str:
    """Why a rule of the catalog is not defined here; a name that is not in the catalog is a mistake instead."""
    RULES.module(Spec.parse(method).name)
    try:
        size.resolved(method)
    except InputError as error:
        return str(error)
    return ""

"""The models that are timed: the papers' sizes, on synthetic inputs of CIFAR's size, so that no file is needed."""

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
"""Epochs in the configuration: enough that a schedule does not end while its driver is timed."""
BENCH_INPUTS = {"resmlp": "prototypes:dim=3072", "student_net": "teacher"}
"""The data that an architecture is timed on; BENCH_IMAGES where it has no entry."""
BENCH_IMAGES = "tiles:side=32"
"""Images of CIFAR's size."""
TINY_ARCHS = {
    "resmlp": "resmlp:d=16,depth=2",
    "student_net": "student_net:d=16,depth=2",
    "vit_mini": "vit_mini:d=8,depth=1,heads=2,mlp_ratio=2",
    "small_cnn": "small_cnn:width=4,depth=1",
}
TINY_INPUTS = {"resmlp": "prototypes:dim=32", "student_net": "teacher:dim=8"}
TINY_IMAGES = "tiles:side=8"
TINY_STEPS, TINY_TEST = 2, 256
"""The sizes with `quick`."""


@dataclass(frozen=True)
class BenchScale:
    """An architecture, its data and the length of an epoch, which has `steps` steps."""

    arch: str = "resmlp"
    """As on the command line; the defaults of its settings are the papers' sizes."""
    data: str = BENCH_INPUTS["resmlp"]
    steps: int = 25
    test: int = 1024

    def resolved_runs(self, method: str, seeds: Sequence[int]) -> list[ResolvedRun]:
        """The resolved runs of a method, one per seed."""
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
        """The resolved run of a method with seed 0."""
        return self.resolved_runs(method, [0])[0]

    def load(self) -> Dataset:
        return self.resolved("bp").source.load(None)

    def facts(self) -> dict[str, Any]:
        """What is stored with a result: the architecture, the shape of its inputs, and the batch."""
        resolved = self.resolved("bp")
        return {"arch": str(resolved.config.arch), "inputs": list(resolved.source.input_shape), "batch": BENCH_BATCH}


def scale(quick: bool, arch: str = "resmlp", steps: int = 25) -> BenchScale:
    """The sizes at which a bench times an architecture; tiny ones with `quick`."""
    name = Spec.parse(arch).name
    if quick:
        # The user's settings apply to the full size only.
        tiny = TINY_ARCHS.get(name, arch)
        return BenchScale(tiny, TINY_INPUTS.get(name, TINY_IMAGES), TINY_STEPS, TINY_TEST)
    return BenchScale(arch, BENCH_INPUTS.get(name, BENCH_IMAGES), steps)


def epoch_of(driver: Driver) -> Callable[[], object]:
    """A function that trains the driver's models for one epoch."""
    return lambda: driver.train_epoch(lambda _: None)


def bench_refusal(method: str, size: BenchScale) -> str:
    """Why a method cannot be timed at this size, empty if it can; a name that is not in the catalog is an error."""
    RULES.module(Spec.parse(method).name)
    try:
        size.resolved(method)
    except InputError as error:
        return str(error)
    return ""

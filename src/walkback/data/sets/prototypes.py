"""Synthetic task, no download: noisy Gaussian prototypes, several per class, so that depth is needed.

Size: 12,800 training and 4,000 test samples by default
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from walkback.core.errors import InputError
from walkback.core.random_streams import generator
from walkback.core.settings import require_at_least, require_memory
from walkback.data.dataset import CatalogSource, Dataset, digest


@dataclass(frozen=True)
class Prototypes(CatalogSource):
    """Prototypes are N(0, I) vectors, assigned to the classes in turn; a sample is one of them plus noise."""

    prototypes: int = 60
    dim: int = 16
    noise: float = 0.45
    labels: int = 10
    train: int = 12_800
    test: int = 4_000
    task_seed: int = 0
    """Seed of the task, independent of the runs' seeds: all runs get the same samples."""

    def __post_init__(self) -> None:
        for name, least in (("dim", 1), ("labels", 2), ("train", 1), ("test", 1), ("noise", 0), ("task_seed", 0)):
            require_at_least(getattr(self, name), least, f"{name} of prototypes")
        require_memory((self.prototypes + self.train + self.test) * self.dim, "prototypes")
        if self.prototypes < self.labels:
            raise InputError(f"prototypes is {self.prototypes}; expected at least one per class ({self.labels}).")

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.dim,)

    @property
    def classes(self) -> int:
        return self.labels

    @property
    def train_size(self) -> int:
        return self.train

    def samples(self, root: Path | None) -> Dataset:
        draws = generator(self.task_seed, "prototypes")
        centres = torch.randn(self.prototypes, self.dim, generator=draws)
        train_x, train_y = self._sample(centres, self.train, draws)
        test_x, test_y = self._sample(centres, self.test, draws)
        return Dataset(train_x, train_y, test_x, test_y, self.labels, digest=digest(train_x, train_y, test_x, test_y))

    def _sample(self, centres: Tensor, count: int, draws: Generator) -> tuple[Tensor, Tensor]:
        which = torch.randint(self.prototypes, (count,), generator=draws)
        x = centres[which] + self.noise * torch.randn(count, self.dim, generator=draws)
        return x, which % self.labels


DATA_SET = Prototypes

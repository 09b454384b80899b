"""Synthetic task of small images, no download: noisy Gaussian prototypes with three channels.

Size: 1,600 training and 1,024 test images of 3 x 8 x 8 by default, as float numbers
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from walkback.core.settings import require_at_least
from walkback.data.dataset import CatalogSource, Dataset, digest
from walkback.data.sets.prototypes import Prototypes

CHANNELS = 3


@dataclass(frozen=True)
class Tiles(CatalogSource):
    """The counterpart of `prototypes` for networks that need images, such as convolutions."""

    side: int = 8
    prototypes: int = 60
    noise: float = 2.0
    labels: int = 10
    train: int = 1_600
    test: int = 1_024
    task_seed: int = 0

    def __post_init__(self) -> None:
        require_at_least(self.side, 1, "side of tiles")
        self._vectors()

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (CHANNELS, self.side, self.side)

    @property
    def classes(self) -> int:
        return self.labels

    @property
    def train_size(self) -> int:
        return self.train

    @property
    def is_image(self) -> bool:
        return False  # Floats, used unchanged: not normalised, cropped or flipped.

    def samples(self, root: Path | None) -> Dataset:
        flat = self._vectors().samples(root)
        train_x, test_x = (x.view(-1, *self.input_shape) for x in (flat.train_x, flat.test_x))
        sha256 = digest(train_x, flat.train_y, test_x, flat.test_y)
        return Dataset(train_x, flat.train_y, test_x, flat.test_y, self.labels, digest=sha256)

    def _vectors(self) -> Prototypes:
        dim = math.prod(self.input_shape)
        return Prototypes(self.prototypes, dim, self.noise, self.labels, self.train, self.test, self.task_seed)


DATA_SET = Tiles

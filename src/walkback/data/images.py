"""CIFAR as a data source: arrays from disk as tensors in memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from walkback.data import cifar
from walkback.data.cifar_spec import CifarSpec
from walkback.data.dataset import CatalogSource, Dataset, digest
from walkback.data.where import data_root


@dataclass(frozen=True)
class Cifar(CatalogSource):
    """Base of cifar10 and cifar100."""

    spec: ClassVar[CifarSpec]
    mean: ClassVar[tuple[float, float, float]]
    std: ClassVar[tuple[float, float, float]]

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (3, 32, 32)

    @property
    def classes(self) -> int:
        return self.spec.classes

    @property
    def train_size(self) -> int:
        return self.spec.train_size

    def samples(self, root: Path | None) -> Dataset:
        arrays = cifar.load_cifar(self.spec, data_root(root))
        train_x, test_x = _to_nchw(arrays.train_pixels), _to_nchw(arrays.test_pixels)
        train_y, test_y = torch.from_numpy(arrays.train_labels).long(), torch.from_numpy(arrays.test_labels).long()
        sha256 = digest(train_x, train_y, test_x, test_y)
        return Dataset(train_x, train_y, test_x, test_y, self.classes, sha256, self.mean, self.std)


def _to_nchw(pixels: NDArray[Any]) -> Tensor:
    """Convert NHWC bytes to a NCHW tensor."""
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()

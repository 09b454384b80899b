"""A data set as a run uses it, and where it comes from."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from walkback.core.random_streams import generator
from walkback.core.settings import recorded_settings


@dataclass(frozen=True)
class Dataset:
    """All samples, resident. Images are uint8 [n, channels, height, width]; vectors are float32 [n, features]."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int
    digest: str
    """sha256 over the arrays, so that two runs can be known to have seen the same data."""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    """Per-channel statistics of images scaled to 0..1; empty for vectors, which are used as they are."""

    @property
    def is_image(self) -> bool:
        return self.train_x.dtype == torch.uint8


@dataclass(frozen=True)
class DataSource(ABC):
    """A data set's name and settings: enough to build networks for it, without loading it."""

    @property
    @abstractmethod
    def input_shape(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def classes(self) -> int: ...

    @property
    @abstractmethod
    def train_size(self) -> int: ...

    @property
    def is_image(self) -> bool:
        return len(self.input_shape) == 3

    def settings(self) -> dict[str, Any]:
        """What a run's configuration says of it."""
        return recorded_settings(self)

    @abstractmethod
    def load(self, root: Path | None) -> Dataset:
        """The samples; `root` is the data folder the user named, if any."""


@dataclass(frozen=True)
class CatalogSource(DataSource):
    """A data set of the catalog: made by its name and settings alone."""

    shuffled: bool = field(default=False, kw_only=True)
    """Deal the training labels anew, so that there is nothing to learn from them; the test set stays true."""

    @abstractmethod
    def samples(self, root: Path | None) -> Dataset:
        """The samples with their own labels."""

    def load(self, root: Path | None) -> Dataset:
        data = self.samples(root)
        return with_shuffled_labels(data) if self.shuffled else data


def with_shuffled_labels(data: Dataset) -> Dataset:
    """The same data with its training labels permuted: every class keeps its size and loses its meaning.

    The permutation has a stream of its own, apart from the runs' seeds: every run sees the same labels.
    """
    order = torch.randperm(len(data.train_y), generator=generator(0, "random labels"))
    labels = data.train_y[order]
    return replace(data, train_y=labels, digest=digest(data.train_x, labels, data.test_x, data.test_y))


def digest(*arrays: Tensor) -> str:
    """sha256 over shapes, types and bytes."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(f"{tuple(array.shape)}{array.dtype}".encode())
        state.update(array.contiguous().numpy().tobytes())
    return state.hexdigest()

"""Loaded data sets, and the sources that load them."""

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
    """All samples, in memory. Images are uint8 [n, channels, height, width]; vectors are float32 [n, features]."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int
    digest: str
    """sha256 of the arrays, recorded so that runs can be checked to have used the same data."""
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    """Per-channel statistics of images scaled to 0..1; empty for vectors, which are not normalised."""

    @property
    def is_image(self) -> bool:
        return self.train_x.dtype == torch.uint8


@dataclass(frozen=True)
class DataSource(ABC):
    """A data set's settings, shapes and sizes: enough to build networks for it without loading it."""

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

    @property
    def per_token(self) -> bool:
        """Whether each token of a sample has a label: windows are float32 [n, tokens], their labels [n, tokens]."""
        return False

    def settings(self) -> dict[str, Any]:
        """The settings that a run's configuration records."""
        return recorded_settings(self)

    @abstractmethod
    def load(self, root: Path | None) -> Dataset:
        """Load the samples; `root` is the data folder given by the user, if any."""


@dataclass(frozen=True)
class CatalogSource(DataSource):
    """A data set of the catalog, determined by its name and settings."""

    shuffled: bool = field(default=False, kw_only=True)
    """Permute the training labels, so that they carry no information; the test set keeps its true labels."""

    @abstractmethod
    def samples(self, root: Path | None) -> Dataset:
        """The samples with their true labels."""

    def load(self, root: Path | None) -> Dataset:
        data = self.samples(root)
        return with_shuffled_labels(data) if self.shuffled else data


def with_shuffled_labels(data: Dataset) -> Dataset:
    """The same data with its training labels permuted, so that all classes keep their sizes.

    The permutation has its own random stream, independent of the runs' seeds: all runs get the same labels.
    """
    order = torch.randperm(len(data.train_y), generator=generator(0, "random labels"))
    labels = data.train_y[order]
    return replace(data, train_y=labels, digest=digest(data.train_x, labels, data.test_x, data.test_y))


def digest(*arrays: Tensor) -> str:
    """sha256 of the arrays' shapes, types and bytes."""
    state = hashlib.sha256()
    for array in arrays:
        state.update(f"{tuple(array.shape)}{array.dtype}".encode())
        state.update(array.contiguous().numpy().tobytes())
    return state.hexdigest()

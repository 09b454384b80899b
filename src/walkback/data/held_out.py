"""A part of the training samples in the place of the test set, for choosing settings without any test sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from walkback.core.errors import InputError
from walkback.core.random_streams import generator
from walkback.core.settings import Scalar, convert
from walkback.data.dataset import Dataset, DataSource, digest

HELD_OUT = "held_out"
"""The setting of every data set that holds out this share of its training samples."""


@dataclass(frozen=True)
class HeldOut(DataSource):
    """A data set whose test samples are a share of the training samples of `inner`; the test set of `inner` is unused.

    The split has its own random stream, independent of the runs' seeds: all runs are compared on the same samples.
    """

    inner: DataSource
    share: float

    def __post_init__(self) -> None:
        if not 0 < self._held < self.inner.train_size:
            raise InputError(
                f"held_out is {self.share:g} of {self.inner.train_size} training samples; expected a share above 0 and "
                "below 1 that leaves samples on both sides."
            )

    @property
    def _held(self) -> int:
        return round(self.share * self.inner.train_size)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.inner.input_shape

    @property
    def classes(self) -> int:
        return self.inner.classes

    @property
    def train_size(self) -> int:
        return self.inner.train_size - self._held

    @property
    def is_image(self) -> bool:
        return self.inner.is_image

    @property
    def per_token(self) -> bool:
        return self.inner.per_token

    def settings(self) -> dict[str, Any]:
        return {**self.inner.settings(), HELD_OUT: self.share}

    def load(self, root: Path | None) -> Dataset:
        data = self.inner.load(root)
        order = torch.randperm(len(data.train_x), generator=generator(0, "held out"))
        held, kept = order[: self._held].sort().values, order[self._held :].sort().values
        arrays = (data.train_x[kept], data.train_y[kept], data.train_x[held], data.train_y[held])
        return replace(
            data, train_x=arrays[0], train_y=arrays[1], test_x=arrays[2], test_y=arrays[3], digest=digest(*arrays)
        )


def without_held_out(settings: Mapping[str, Scalar]) -> tuple[dict[str, Scalar], float | None]:
    """A data set's settings without `held_out`, and its value."""
    rest = {key: value for key, value in settings.items() if key != HELD_OUT}
    return rest, convert(settings[HELD_OUT], float, HELD_OUT) if HELD_OUT in settings else None

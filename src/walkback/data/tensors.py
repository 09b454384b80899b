"""User-supplied tensors as a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from walkback.core.errors import InputError
from walkback.data.dataset import Dataset, DataSource, digest

TENSORS_NAME = "tensors"
"""The name that configurations record for user-supplied tensors."""


@dataclass(frozen=True)
class Tensors(DataSource):
    """Samples passed in memory. A run records their sha256; resuming it needs the same samples."""

    data: Dataset = field(compare=False, repr=False)
    digest: str

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.data.train_x.shape[1:])

    @property
    def classes(self) -> int:
        return self.data.classes

    @property
    def train_size(self) -> int:
        return len(self.data.train_y)

    @property
    def is_image(self) -> bool:
        return self.data.is_image

    @property
    def per_token(self) -> bool:
        return self.data.train_y.ndim == 2

    def settings(self) -> dict[str, Any]:
        return {"digest": self.digest}

    def load(self, root: Path | None) -> Dataset:
        return self.data


def from_tensors(
    train_x: Any,
    train_y: Any,
    test_x: Any,
    test_y: Any,
    *,
    mean: Sequence[float] = (),
    std: Sequence[float] = (),
) -> Tensors:
    """Make a data set from arrays or tensors.

    Inputs are uint8 images [n, channels, height, width], which are cropped, flipped and normalised by `mean` and `std`
    (per channel, of pixels scaled to 0..1), or floats of any shape [n, ...], which are used unchanged. Labels are whole
    numbers from 0. For a language model inputs and labels are both whole numbers [n, tokens].
    """
    per_token = torch.as_tensor(train_y).ndim == 2
    inputs = [_inputs(x, name, per_token) for x, name in ((train_x, "train_x"), (test_x, "test_x"))]
    labels = [_labels(y, x, name) for y, x, name in zip((train_y, test_y), inputs, ("train_y", "test_y"), strict=True)]
    if inputs[0].shape[1:] != inputs[1].shape[1:] or inputs[0].dtype != inputs[1].dtype:
        raise InputError(
            f"train_x has samples of shape {tuple(inputs[0].shape[1:])} ({inputs[0].dtype}), test_x of shape "
            f"{tuple(inputs[1].shape[1:])} ({inputs[1].dtype}). They must agree."
        )
    if inputs[0].dtype == torch.uint8 and not len(mean) == len(std) == inputs[0].shape[1]:
        raise InputError(
            f"Images with {inputs[0].shape[1]} channels need mean and std with {inputs[0].shape[1]} numbers each; "
            f"got {len(mean)} and {len(std)}."
        )
    if labels[0].ndim != labels[1].ndim:
        raise InputError("train_y has labels of samples, test_y of tokens, or the reverse. They must agree.")
    tokens = inputs if labels[0].ndim == 2 else []
    classes = int(max(values.max() for values in (*labels, *tokens))) + 1
    sha256 = digest(inputs[0], labels[0], inputs[1], labels[1])
    data = Dataset(inputs[0], labels[0], inputs[1], labels[1], classes, sha256, tuple(mean), tuple(std))
    return Tensors(data, sha256)


def _inputs(values: Any, name: str, per_token: bool) -> Tensor:
    x = torch.as_tensor(values).cpu()
    is_image = x.dtype == torch.uint8 and x.ndim == 4
    if per_token and _is_whole(x) and x.ndim == 2 and x.numel() and int(x.min()) >= 0:
        return x.float().contiguous()  # Windows of tokens.
    if not is_image and not (x.is_floating_point() and x.ndim >= 2):
        raise InputError(
            f"{name} has shape {tuple(x.shape)} and type {x.dtype}; expected uint8 images [n, channels, height, width] "
            "or floats [n, ...]; with a label for each token, whole numbers from 0 [n, tokens]."
        )
    if not is_image and not x.isfinite().all():
        raise InputError(f"{name} holds values that are not finite. Remove or replace those samples.")
    return x.contiguous() if is_image else x.float().contiguous()


def _is_whole(x: Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def _labels(values: Any, x: Tensor, name: str) -> Tensor:
    y = torch.as_tensor(values).cpu()
    is_fitting = y.shape in (x.shape[:1], x.shape[:2] if x.ndim == 2 else None)
    if not is_fitting or y.is_floating_point() or len(y) == 0 or int(y.min()) < 0:
        raise InputError(
            f"{name} has shape {tuple(y.shape)} and type {y.dtype}; expected {len(x)} whole numbers from 0, "
            "one for each sample (or for each token of windows of tokens)."
        )
    return y.long().contiguous()

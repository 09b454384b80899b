"""Training batches: sample order and augmentation.

Both are drawn on the CPU from the streams (seed, "order", epoch) and (seed, "augment", epoch). They depend on the seed
but not on the method, so methods are compared on the same batches. The pixels stay on the device as uint8 and are
cropped, flipped and normalised there.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from walkback.core.errors import InputError
from walkback.core.random_streams import generator
from walkback.data.dataset import Dataset

PAD = 4
"""Pixels added on each side before the random crop, as usual on CIFAR."""

Augment = Literal["none", "crop_flip", "crop_flip_black"]
"""Random crop and horizontal flip. `crop_flip` pads with the mean colour (zero after normalisation), `crop_flip_black`
with black (zero before it): the papers do not specify which."""

Order = dict[str, Tensor]
"""The random choices of an epoch, each [steps, batch]: `index`, and with augmentation `top`, `left`, `flip`."""


class Feed:
    """Training batches of one data set on one device."""

    def __init__(self, data: Dataset, batch: int, augment: Augment, dtype: torch.dtype, device: torch.device):
        if batch > len(data.train_y):
            raise InputError(
                f"batch is {batch}, but the data has only {len(data.train_y)} training samples. Use a smaller batch."
            )
        self.batch = batch
        self.steps = len(data.train_y) // batch
        self._augment = augment != "none"
        self._y = data.train_y.to(device)
        self._normalise = Normalise(data, dtype, device)
        pixels = data.train_x.to(device)
        if self._augment:
            height, width = pixels.shape[-2:]
            padded = F.pad(pixels, (PAD, PAD, PAD, PAD))
            if augment == "crop_flip":
                border = F.pad(torch.zeros(height, width, dtype=torch.bool), (PAD, PAD, PAD, PAD), value=True)
                mean = torch.tensor([round(255 * value) for value in data.mean], dtype=torch.uint8, device=device)
                padded[:, :, border.to(device)] = mean[:, None]
            # A view of all crops of all images: indexing it gathers the chosen ones, and nothing is copied beforehand.
            self._x = padded.unfold(2, height, 1).unfold(3, width, 1)
        else:
            self._x = pixels

    def order(self, seed: int, epoch: int) -> Order:
        """Draw the choices of one epoch, on the CPU. Only full batches are used."""
        count = self.steps * self.batch
        index = torch.randperm(len(self._y), generator=generator(seed, "order", epoch))[:count]
        chosen = {"index": index}
        if self._augment:
            draws = generator(seed, "augment", epoch)
            chosen["top"] = torch.randint(2 * PAD + 1, (count,), generator=draws)
            chosen["left"] = torch.randint(2 * PAD + 1, (count,), generator=draws)
            chosen["flip"] = torch.randint(2, (count,), generator=draws)
        return {name: values.view(self.steps, self.batch) for name, values in chosen.items()}

    def take(self, picks: Order) -> tuple[Tensor, Tensor]:
        """Inputs and labels for choices of shape [...] on the device; the results have [...] as leading axes."""
        x, y = self.gather(picks)
        return self.finish(x, picks), y

    def gather(self, picks: Order) -> tuple[Tensor, Tensor]:
        """The chosen samples as stored (uint8 images are cropped but not normalised), and their labels."""
        index = picks["index"]
        if self._augment:
            return self._x[index, :, picks["top"], picks["left"]], self._y[index]
        return self._x[index], self._y[index]

    def finish(self, x: Tensor, picks: Order) -> Tensor:
        """Flip and normalise gathered samples, to give the inputs of a network."""
        if self._augment:
            x = torch.where(picks["flip"][..., None, None, None] > 0, x.flip(-1), x)
        return self._normalise(x)


class Normalise:
    """Convert uint8 images to normalised floats; vectors are only cast."""

    def __init__(self, data: Dataset, dtype: torch.dtype, device: torch.device):
        self._dtype = dtype
        self._is_image = data.is_image
        if self._is_image:
            mean = torch.tensor(data.mean, dtype=torch.float64).view(-1, 1, 1)
            std = torch.tensor(data.std, dtype=torch.float64).view(-1, 1, 1)
            self._scale = (1 / (255 * std)).to(dtype).to(device)
            self._shift = (mean / std).to(dtype).to(device)

    def __call__(self, x: Tensor) -> Tensor:
        x = x.to(self._dtype)
        return x * self._scale - self._shift if self._is_image else x


class TestSet:
    """The test samples of one data set on one device, in batches, without augmentation."""

    __test__ = False  # The name starts with "Test", but it is no pytest class.

    def __init__(self, data: Dataset, dtype: torch.dtype, device: torch.device, batch: int = 1000):
        self._normalise = Normalise(data, dtype, device)
        self._x = data.test_x.to(device)
        self._y = data.test_y.to(device)
        self._batch = batch

    def __len__(self) -> int:
        return len(self._y)

    @property
    def answers(self) -> int:
        """The number of labels: one for each sample, or for each of its tokens."""
        return self._y.numel()

    def batches(self) -> list[tuple[Tensor, Tensor]]:
        pairs = zip(torch.split(self._x, self._batch), torch.split(self._y, self._batch), strict=True)
        return [(self._normalise(x), y) for x, y in pairs]

"""The data baseline: a DataLoader that transforms one image at a time in Python, with workers or without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from walkback.bench.setup import BENCH_BATCH, BENCH_IMAGES, TINY_IMAGES, TINY_STEPS
from walkback.core.settings import Spec, build_settings
from walkback.data.catalog import DATA_SETS
from walkback.data.dataset import Dataset
from walkback.data.feed import PAD
from walkback.data.tensors import Tensors, from_tensors


def synthetic_images(steps: int, quick: bool) -> Tensors:
    """Synthetic 8-bit images of CIFAR's size, which can be cropped, flipped and normalised."""
    spec = Spec.parse(TINY_IMAGES if quick else BENCH_IMAGES)
    sizes = {"train": (TINY_STEPS if quick else steps) * BENCH_BATCH, "test": BENCH_BATCH}
    source = build_settings(DATA_SETS.get(spec.name), {**spec.settings, **sizes}, "the data of the bench")
    data: Dataset = source.load(None)
    train_x, test_x = ((128 + 32 * x).clamp(0, 255).to(torch.uint8) for x in (data.train_x, data.test_x))
    return from_tensors(train_x, data.train_y, test_x, data.test_y, mean=(0.5,) * 3, std=(0.25,) * 3)


class PerSampleTransforms(TorchDataset[tuple[Tensor, int]]):
    """The usual torchvision training transforms for CIFAR, without torchvision.

    They are RandomCrop(side, padding=4), RandomHorizontalFlip(), ToTensor() and Normalize(mean, std), on a PIL image.
    """

    def __init__(self, data: Dataset):
        self._pixels = data.train_x.permute(0, 2, 3, 1).contiguous().numpy()
        self._labels = data.train_y.tolist()
        self._mean = torch.tensor(data.mean).view(-1, 1, 1)
        self._std = torch.tensor(data.std).view(-1, 1, 1)
        # torchvision pads with black by default; the mean colour, which walkback's feed uses, costs the same.
        self._fill = tuple(round(255 * value) for value in data.mean)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = Image.fromarray(self._pixels[index])
        side, height = image.size
        image = ImageOps.expand(image, PAD, self._fill)
        top, left = torch.randint(2 * PAD + 1, (2,)).tolist()
        image = image.crop((left, top, left + side, top + height))
        if torch.rand(1) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1).contiguous().float().div_(255)
        return pixels.sub_(self._mean).div_(self._std), self._labels[index]


def loader_batches(data: Dataset, workers: int, device: torch.device) -> DataLoader[Any]:
    """A DataLoader of shuffled full batches; its workers persist between epochs, which is fastest."""
    return DataLoader(
        PerSampleTransforms(data),
        BENCH_BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
    )


def loader_epoch(loader: DataLoader[Any], use: Callable[[Any], object], device: torch.device) -> Callable[[], None]:
    """A function that passes once over the data: moves each batch to the device and calls `use` with it."""

    def epoch() -> None:
        for x, y in loader:
            use((x.to(device, non_blocking=True), y.to(device, non_blocking=True)))

    return epoch

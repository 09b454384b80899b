"""Training batches: each sample at most once per epoch; crops and flips equal to a plain loop."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from walkback.core.errors import InputError
from walkback.data.dataset import Dataset
from walkback.data.feed import PAD, Feed, TestSet

CPU = torch.device("cpu")
MEAN, STD = (0.5, 0.25, 0.125), (0.2, 0.25, 0.5)


def images(count: int = 20, size: int = 8) -> Dataset:
    draws = torch.Generator().manual_seed(0)
    x = torch.randint(256, (count, 3, size, size), generator=draws, dtype=torch.uint8)
    y = torch.arange(count) % 4
    return Dataset(x, y, x[:7], y[:7], 4, "", MEAN, STD)


def cropped(image: torch.Tensor, top: int, left: int, flip: bool, fill: torch.Tensor) -> torch.Tensor:
    """One crop, pixel by pixel."""
    size = image.shape[-1]
    out = torch.empty(3, size, size)
    for row in range(size):
        for column in range(size):
            source = size - 1 - column if flip else column
            r, c = row + top - PAD, source + left - PAD
            inside = 0 <= r < size and 0 <= c < size
            out[:, row, column] = image[:, r, c].float() if inside else fill
    return out


@pytest.mark.parametrize(("augment", "fill"), [("crop_flip", [128, 64, 32]), ("crop_flip_black", [0, 0, 0])])
def test_crops_and_flips_equal_a_plain_loop(augment, fill):
    data = images()
    feed = Feed(data, 5, augment, torch.float64, CPU)
    order = feed.order(3, 2)
    picks = {name: values[1] for name, values in order.items()}
    x, y = feed.take(picks)
    mean, std = (torch.tensor(v, dtype=torch.float64).view(3, 1, 1) for v in (MEAN, STD))
    for row, index in enumerate(picks["index"].tolist()):
        top, left, flip = (int(picks[name][row]) for name in ("top", "left", "flip"))
        expected = cropped(data.train_x[index], top, left, bool(flip), torch.tensor(fill, dtype=torch.float32))
        torch.testing.assert_close(x[row], (expected.double() / 255 - mean) / std)
        assert y[row] == data.train_y[index]


def test_augmentation_uses_every_offset_and_flips_half():
    order = Feed(images(4000), 100, "crop_flip", torch.float32, CPU).order(1, 0)
    for name in ("top", "left"):
        assert order[name].unique().tolist() == list(range(2 * PAD + 1))
    assert order["flip"].float().mean().item() == pytest.approx(0.5, abs=0.04)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_an_epoch_has_full_batches_of_distinct_samples(count, batch, epoch):
    data = images(count, size=2)
    if batch > count:
        with pytest.raises(InputError, match="smaller batch"):
            Feed(data, batch, "none", torch.float32, CPU)
        return
    feed = Feed(data, batch, "none", torch.float32, CPU)
    index = feed.order(0, epoch)["index"]
    assert index.shape == (count // batch, batch)
    assert len(index.unique()) == index.numel()


def test_a_stack_of_choices_gives_a_stack_of_batches():
    feed = Feed(images(), 5, "crop_flip", torch.float32, CPU)
    orders = [feed.order(seed, 0) for seed in (1, 2)]
    picks = {name: torch.stack([order[name][0] for order in orders]) for name in orders[0]}
    x, y = feed.take(picks)
    for row, order in enumerate(orders):
        alone_x, alone_y = feed.take({name: values[0] for name, values in order.items()})
        assert torch.equal(x[row], alone_x)
        assert torch.equal(y[row], alone_y)


def test_evaluation_uses_every_sample_once_without_augmentation():
    data = images()
    batches = TestSet(data, torch.float64, CPU, batch=3).batches()
    x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
    mean, std = (torch.tensor(v, dtype=torch.float64).view(3, 1, 1) for v in (MEAN, STD))
    torch.testing.assert_close(x, (data.test_x.double() / 255 - mean) / std)
    assert torch.equal(y, data.test_y)

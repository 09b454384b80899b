"""User-supplied tensors: training on them, and errors for tensors that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import walkback as wb


def floats(count=64, shape=(5,)):
    return np.random.default_rng(0).normal(size=(count, *shape))


def labels(count=64, classes=3):
    return np.arange(count) % classes


def test_own_vectors_train_and_resume_only_with_the_same_tensors(tmp_path):
    data = wb.tensors(floats(), labels(), floats(16), labels(16))
    settings = {"arch": "resmlp:d=8,depth=1", "epochs": 1, "batch": 16, "out": tmp_path}
    (result,) = wb.train("bp", data=data, **settings)
    record = wb.load(result.path).record
    assert record["data"] == {"name": "tensors", "digest": data.digest}
    (again,) = wb.train("bp", data=wb.tensors(floats(), labels(), floats(16), labels(16)), resume=True, **settings)
    assert again == result
    (other,) = wb.train("bp", data=wb.tensors(floats() + 1, labels(), floats(16), labels(16)), **settings)
    assert other.run != result.run
    with pytest.raises(wb.InputError, match="Pass them again"):
        wb.train("bp", data="tensors", **settings)


def test_own_images_are_augmented_and_float_images_are_not(tmp_path):
    pixels = torch.randint(256, (64, 3, 8, 8), dtype=torch.uint8)
    settings = {"arch": "resmlp:d=8,depth=1", "epochs": 1, "batch": 16, "out": tmp_path}
    data = wb.tensors(pixels, labels(), pixels, labels(), mean=(0.5,) * 3, std=(0.25,) * 3)
    (result,) = wb.train("bp", data=data, **settings)
    assert wb.load(result.path).record["config"]["augment"] == "crop_flip"
    (result,) = wb.train("bp", data=wb.tensors(pixels / 255, labels(), pixels / 255, labels()), **settings)
    assert wb.load(result.path).record["config"]["augment"] == "none"


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((floats(), labels(63), floats(), labels()), "train_y has shape"),
        ((floats(), labels() - 1, floats(), labels()), "train_y has shape"),
        ((floats(), labels().astype(float), floats(), labels()), "train_y has shape"),
        ((floats(), labels(), floats(64, (6,)), labels()), "They must agree"),
        ((floats()[:, 0], labels(), floats(), labels()), "train_x has shape"),
        ((floats() * np.nan, labels(), floats(), labels()), "not finite"),
        (
            (np.zeros((64, 3, 4, 4), np.uint8), labels(), np.zeros((64, 3, 4, 4), np.uint8), labels()),
            "need mean and std",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(arrays, message):
    with pytest.raises(wb.InputError, match=message):
        wb.tensors(*arrays)

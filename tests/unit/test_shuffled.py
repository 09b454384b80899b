"""Random labels: the training labels are permuted, and everything else stays unchanged."""

from __future__ import annotations

import dataclasses

import fake_cifar
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tiny
from walkback.core.configuration import grid
from walkback.core.errors import InputError
from walkback.data.catalog import DATA_SETS
from walkback.data.cifar import NotFoundError
from walkback.data.dataset import Dataset, digest, with_shuffled_labels
from walkback.data.images import Cifar
from walkback.runs import store
from walkback.training.resolved_run import resolve

SMALL = {"train": 400, "test": 50}
"""Sizes of a data set, as far as it has these settings."""


def loaded(name: str, tmp_path) -> tuple[Dataset, Dataset]:
    """A data set with its true labels, and with random labels."""
    kind = DATA_SETS.get(name)
    names = {f.name for f in dataclasses.fields(kind)}
    sizes = {key: size for key, size in SMALL.items() if key in names}
    if issubclass(kind, Cifar):
        spec, arrays = fake_cifar.fake(kind.spec)
        folder = tmp_path / spec.python_folder
        folder.mkdir()
        for file, data in fake_cifar.python_files(spec, arrays).items():
            (folder / file).write_bytes(data)
        kind = dataclasses.dataclass(frozen=True)(type("Small", (kind,), {"spec": spec}))
    try:
        return kind(**sizes).load(tmp_path), kind(**sizes, shuffled=True).load(tmp_path)
    except NotFoundError:
        pytest.skip(f"{name} needs files")


@pytest.mark.parametrize("name", DATA_SETS.names())
def test_every_data_set_can_permute_its_training_labels(name, tmp_path):
    plain, shuffled = loaded(name, tmp_path)
    assert torch.equal(plain.train_x, shuffled.train_x)
    assert torch.equal(plain.test_x, shuffled.test_x)
    assert torch.equal(plain.test_y, shuffled.test_y)
    assert not torch.equal(plain.train_y, shuffled.train_y)
    assert torch.equal(plain.train_y.flatten().bincount(), shuffled.train_y.flatten().bincount())
    assert shuffled.digest == digest(shuffled.train_x, shuffled.train_y, shuffled.test_x, shuffled.test_y)
    assert shuffled.digest != plain.digest


def test_permuted_labels_agree_with_the_true_ones_at_chance_level():
    source = DATA_SETS.get("prototypes")(train=20_000, test=10)
    plain, shuffled = source.load(None), dataclasses.replace(source, shuffled=True).load(None)
    sizes = plain.train_y.bincount().double() / 20_000
    chance = float((sizes**2).sum())
    agree = (plain.train_y == shuffled.train_y).double().mean().item()
    assert agree == pytest.approx(chance, abs=4 * (chance * (1 - chance) / 20_000) ** 0.5)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40))
def test_labels_are_permuted_and_the_same_every_time(labels):
    x, y = torch.zeros(len(labels), 2), torch.tensor(labels)
    data = Dataset(x, y, x, y, 5, "")
    first, second = with_shuffled_labels(data), with_shuffled_labels(data)
    assert torch.equal(first.train_y, second.train_y)
    assert first.train_y.sort().values.tolist() == sorted(labels)


def test_shuffled_is_part_of_a_runs_configuration():
    plain, shuffled = (resolve(grid("bp", data=f"{tiny.DATA}{more}", batch=16)[0]) for more in ("", ",shuffled=true"))
    assert shuffled.config.data.settings["shuffled"] is True
    assert plain.config.digest() != shuffled.config.digest()
    assert plain.name != shuffled.name
    assert plain.fleet_key() != shuffled.fleet_key()
    spelled = resolve(grid("bp", data=f"{tiny.DATA},shuffled=no", batch=16)[0])
    assert spelled.config.digest() == plain.config.digest()
    with pytest.raises(InputError, match=r"shuffled of the data set 'prototypes' is 'maybe'.*true or false"):
        resolve(grid("bp", data=f"{tiny.DATA},shuffled=maybe", batch=16)[0])


def test_a_stored_run_records_the_digest_of_its_permuted_data(tmp_path):
    import walkback as wb

    wb.train("bp", arch=tiny.arch("resmlp"), data=f"{tiny.DATA},shuffled=true", epochs=1, batch=16, out=tmp_path)
    record = store.open_run(store.find_runs(tmp_path)[0]).record
    source = DATA_SETS.get("prototypes")(train=96, test=64, dim=6, prototypes=8, labels=4)
    assert record["config"]["data"]["shuffled"] is True
    assert record["data"]["digest"] == dataclasses.replace(source, shuffled=True).load(None).digest
    assert record["data"]["digest"] != source.load(None).digest

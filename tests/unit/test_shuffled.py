"""Random labels: the training set's own, dealt anew; everything else stays as it was."""

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
from walkback.data.cifar_spec import CIFAR10, CIFAR100
from walkback.data.dataset import Dataset, digest, with_shuffled_labels
from walkback.data.images import Cifar
from walkback.runs import store
from walkback.training.resolved_run import resolve

SMALL = {"prototypes": {"train": 400, "test": 50}, "tiles": {"train": 400, "test": 50}, "teacher": {"train": 400}}


def loaded(name: str, tmp_path) -> tuple[Dataset, Dataset]:
    """A data set as it is, and with random labels."""
    kind, given_settings = DATA_SETS.get(name), SMALL.get(name, {})
    if issubclass(kind, Cifar):
        spec, arrays = fake_cifar.fake(CIFAR10 if name == "cifar10" else CIFAR100)
        folder = tmp_path / spec.python_folder
        folder.mkdir()
        for file, data in fake_cifar.python_files(spec, arrays).items():
            (folder / file).write_bytes(data)
        kind = dataclasses.dataclass(frozen=True)(type("Small", (kind,), {"spec": spec}))
    return kind(**given_settings).load(tmp_path), kind(**given_settings, shuffled=True).load(tmp_path)


@pytest.mark.parametrize("name", DATA_SETS.names())
def test_every_data_set_can_deal_its_training_labels_anew(name, tmp_path):
    plain, shuffled = loaded(name, tmp_path)
    assert torch.equal(plain.train_x, shuffled.train_x)
    assert torch.equal(plain.test_x, shuffled.test_x)
    assert torch.equal(plain.test_y, shuffled.test_y)
    assert not torch.equal(plain.train_y, shuffled.train_y)
    assert torch.equal(plain.train_y.bincount(), shuffled.train_y.bincount())
    assert shuffled.digest == digest(shuffled.train_x, shuffled.train_y, shuffled.test_x, shuffled.test_y)
    assert shuffled.digest != plain.digest


def test_new_labels_agree_with_the_old_ones_as_often_as_chance_says():
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


def test_it_is_part_of_a_runs_configuration():
    plain, shuffled = (resolve(grid("bp", data=f"{tiny.DATA}{more}", batch=16)[0]) for more in ("", ",shuffled=true"))
    assert shuffled.config.data.settings["shuffled"] is True
    assert plain.config.digest() != shuffled.config.digest()
    assert plain.name != shuffled.name
    assert plain.fleet_key() != shuffled.fleet_key()
    spelled = resolve(grid("bp", data=f"{tiny.DATA},shuffled=no", batch=16)[0])
    assert spelled.config.digest() == plain.config.digest()
    with pytest.raises(InputError, match="shuffled of the data set 'prototypes' is 'maybe'; expected true or false"):
        resolve(grid("bp", data=f"{tiny.DATA},shuffled=maybe", batch=16)[0])


def test_a_stored_run_says_which_labels_it_saw(tmp_path):
    import walkback as wb

    wb.train("bp", arch=tiny.arch("resmlp"), data=f"{tiny.DATA},shuffled=true", epochs=1, batch=16, out=tmp_path)
    record = store.open_run(store.find_runs(tmp_path)[0]).record
    source = DATA_SETS.get("prototypes")(train=96, test=64, dim=6, prototypes=8, labels=4)
    assert record["config"]["data"]["shuffled"] is True
    assert record["data"]["digest"] == dataclasses.replace(source, shuffled=True).load(None).digest
    assert record["data"]["digest"] != source.load(None).digest

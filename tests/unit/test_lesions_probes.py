"""Lesions and probes agree with hand-written ones, for own and foreign models."""

from __future__ import annotations

import copy

import foreign_models
import lying_models
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tiny
import walkback as wb
from walkback.measure.inputs import regroup
from walkback.measure.lesions import measure_lesions
from walkback.measure.options import MeasureOptions
from walkback.measure.probes import PENALTIES, RidgeClassifier
from walkback.measure.snapshot import measure
from walkback.measure.subject import NetworkSubject
from walkback.nets.network import part


def data_for(net, count=260):
    draws = torch.Generator().manual_seed(3)
    return torch.randn(count, *net.input_shape, generator=draws), torch.randint(net.classes, (count,), generator=draws)


@pytest.mark.parametrize("name", ["resmlp", "vit_mini", "small_cnn"])
def test_lesions_of_own_networks_are_those_of_a_loop(name):
    made = tiny.resolved("bp", arch=tiny.arch(name), dtype="float32")
    net, params = made.net, made.params()
    initial = {leaf: value + 0.3 * torch.randn_like(value) for leaf, value in params.items()}
    x, y = data_for(net)
    found = measure_lesions(NetworkSubject(net, params), regroup([(x, y)]), initial)

    def right(skipped=(), reset=None):
        h = net.stem(part(params, "stem"), x)
        for block in range(net.depth):
            if block not in skipped:
                h = h + net.branch(part(initial if block == reset else params, f"blocks.{block}"), h)
        return (net.head(part(params, "head"), h).argmax(-1) == y).numpy()

    for block in range(net.depth):
        np.testing.assert_array_equal(found["lesion_skip"][block], right([block]))
        np.testing.assert_array_equal(found["lesion_reset"][block], right(reset=block))
    for layer in range(net.depth + 1):
        np.testing.assert_array_equal(found["lesion_cut"][layer], right(range(layer, net.depth)))


@pytest.mark.parametrize("make", [foreign_models.Reference, foreign_models.sequential, foreign_models.Tokens])
def test_lesions_of_foreign_models_are_those_of_edited_copies(make):
    torch.manual_seed(0)
    model, before = make().eval(), make().eval()
    if make is foreign_models.Tokens:
        x, y = _tokens()
    else:
        x, y = torch.randn(260, 6), torch.randint(4, (260,))
    report = wb.diagnose(model, [(x, y)], initial=before)
    arrays = report.measurements.arrays
    blocks = _blocks_of(model)
    for index, name in enumerate(blocks):
        edited = copy.deepcopy(model)
        edited.get_submodule(name).load_state_dict(before.get_submodule(name).state_dict())
        with torch.no_grad():
            np.testing.assert_array_equal(arrays["lesion_reset"][index], (edited(x).argmax(-1) == y).numpy())
        skipped = copy.deepcopy(model)
        _replace(skipped, name, Zero() if make is foreign_models.Reference else nn.Identity())
        with torch.no_grad():
            np.testing.assert_array_equal(arrays["lesion_skip"][index], (skipped(x).argmax(-1) == y).numpy())
    np.testing.assert_array_equal(arrays["lesion_cut"][-1], arrays["correct"])


class Zero(nn.Module):
    def forward(self, h):
        return torch.zeros_like(h)


def _tokens():
    draws = torch.Generator().manual_seed(0)
    return torch.randint(10, (260, 7), generator=draws), torch.randint(4, (260,), generator=draws)


def _blocks_of(model):
    if isinstance(model, foreign_models.Reference):
        return [f"blocks.{i}" for i in range(len(model.blocks))]
    if isinstance(model, nn.Sequential):
        return ["1", "2", "3"]
    return [name for name, module in model.named_modules() if isinstance(module, nn.TransformerEncoderLayer)]


def _replace(model, name, new):
    parent, _, last = name.rpartition(".")
    owner = model.get_submodule(parent) if parent else model
    if last.isdigit():
        owner[int(last)] = new
    else:
        setattr(owner, last, new)


def test_a_block_that_was_reset_after_training_shows_it():
    model = lying_models.make("mlp", None)
    x, _ = lying_models.batch("mlp", 512)
    y = lying_models.make("mlp", None, seed=5)(x).argmax(-1)
    initial = copy.deepcopy(model.state_dict())
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(150):
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimiser.step()
    trained = wb.diagnose(model, [(x, y)], initial=initial).measurements.arrays
    assert (trained["lesion_reset"].mean(1) < trained["correct"].mean() - 0.02).all()
    block = {name: value for name, value in initial.items() if name.startswith("blocks.2.")}
    model.load_state_dict({**model.state_dict(), **block})
    reset = wb.diagnose(model, [(x, y)], initial=initial).measurements.arrays
    np.testing.assert_array_equal(reset["lesion_reset"][2], reset["correct"])
    np.testing.assert_array_equal(reset["correct"], trained["lesion_reset"][2])


def test_lesions_of_blocks_that_change_the_shape_are_not_possible():
    torch.manual_seed(0)

    class Strided(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.head = nn.Linear(6, 8), nn.Linear(4, 4)
            self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(4, 4)])

        def forward(self, x):
            h = self.stem(x)
            for block in self.blocks:
                h = block(h)
            return self.head(h)

    arrays = wb.diagnose(Strided(), [(torch.randn(260, 6), torch.randint(4, (260,)))]).measurements.arrays
    assert np.isnan(arrays["lesion_skip"]).all(1).tolist() == [False, True, False]
    assert np.isnan(arrays["lesion_cut"]).all(1).tolist() == [True, True, False, False]


def ridge_by_hand(train, labels, test, classes):
    """The same classifier with an intercept that is not penalised, by normal equations and explicit GCV."""
    mean, scale = train.mean(0), train.std(0)
    x, z = (train - mean) / scale, (test - mean) / scale
    target = F.one_hot(labels, classes).double()
    best = None
    for penalty in PENALTIES:
        inverse = torch.linalg.inv(x.T @ x + penalty * torch.eye(x.shape[1], dtype=torch.float64))
        hat = x @ inverse @ x.T + 1 / len(x)
        error = len(x) * (target - hat @ target).square().sum() / (len(x) - hat.trace()) ** 2
        if best is None or error < best[0]:
            weights = inverse @ x.T @ (target - target.mean(0))
            best = float(error), float(penalty), (z @ weights + target.mean(0)).argmax(-1)
    return best


@pytest.mark.parametrize(("count", "features"), [(200, 10), (40, 60)])
def test_the_probe_is_ridge_regression_with_generalised_cross_validation(count, features):
    torch.manual_seed(0)
    labels = torch.randint(3, (count,))
    centres = torch.randn(3, features).double()
    train = centres[labels] + 2 * torch.randn(count, features).double()
    test = centres[torch.randint(3, (100,))] + 2 * torch.randn(100, features).double()
    probe = RidgeClassifier(train, labels, 3)
    _, penalty, predicted = ridge_by_hand(train, labels, test, 3)
    assert probe.penalty == pytest.approx(penalty)
    assert torch.equal(probe.predict(test), predicted)


def test_probes_of_own_and_foreign_models():
    made = tiny.resolved("bp", dtype="float32")
    net = made.net
    x, y = data_for(net, 512)
    options = MeasureOptions(train=(x[:256], y[:256]), initial=made.params())
    scaled = {name: 2 * leaf for name, leaf in made.params().items()}
    found = measure(NetworkSubject(net, scaled), regroup([(x[256:], y[256:])]), options).arrays
    states = NetworkSubject(net, scaled).states(x)
    for layer, h in enumerate(states):
        predicted = RidgeClassifier(h[:256], y[:256], net.classes).predict(h[256:])
        np.testing.assert_array_equal(found["probe_correct"][layer], (predicted == y[256:]).numpy())
    assert found["probe_initial"].shape == found["probe_correct"].shape

    model = lying_models.make("mlp", None)
    x, y = lying_models.batch("mlp", 600)
    found = wb.diagnose(model, [(x[:300], y[:300])], train_batches=[(x[300:], y[300:])]).measurements.arrays
    h = model.stem(x).detach()
    predicted = RidgeClassifier(h[300:], y[300:], 4).predict(h[:300])
    np.testing.assert_array_equal(found["probe_correct"][0], (predicted == y[:300]).numpy())
    assert "probe_initial" not in found

"""sdfa and drtp against their definitions, and the sign of drtp."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F

import tiny
from walkback.core.errors import InputError
from walkback.credit import RULES
from walkback.credit.rule import transport
from walkback.credit.trace import trace
from walkback.nets.network import Leaves, Linear, Network, part, plain_linear
from walkback.training.single import Single


@dataclass(frozen=True)
class Rotations(Network):
    """Linear blocks whose full maps I + W are rotations, under a head with orthonormal rows and no norm.

    The map from any layer to the logits then has orthonormal rows, so feedback equal to it is perfectly aligned.
    """

    d: int = 6

    @property
    def state_shape(self):
        return (self.d,)

    def init(self, generator):
        def rotation():
            return torch.linalg.qr(torch.randn(self.d, self.d, generator=generator, dtype=torch.float64))[0]

        identity = torch.eye(self.d, dtype=torch.float64)
        blocks = {f"blocks.{index}.w.weight": rotation() - identity for index in range(self.depth)}
        stem = torch.randn(self.d, *self.input_shape, generator=generator, dtype=torch.float64)
        return {"stem.weight": 0.1 * stem, **blocks, "head.weight": rotation()[: self.classes]}

    def stem(self, leaves: Leaves, x):
        return F.linear(x, leaves["weight"])

    def branch(self, leaves: Leaves, h, linear: Linear = plain_linear):
        return linear("w", h, leaves["w.weight"], torch.zeros(self.d, dtype=h.dtype))

    def head(self, leaves: Leaves, h):
        return F.linear(h, leaves["weight"])


@pytest.fixture
def rotations():
    """(net, parameters, feedback aligned with the network, x, y): labels that a linear map of x decides."""
    net = Rotations(input_shape=(7,), classes=3, depth=3)
    draws = torch.Generator().manual_seed(0)
    params = net.init(draws)
    state, above = {}, params["head.weight"]
    for layer in reversed(range(net.depth + 1)):
        state[f"B.{layer}"] = above
        if layer:
            above = above + above @ params[f"blocks.{layer - 1}.w.weight"]
    x = torch.randn(40, 7, generator=draws, dtype=torch.float64)
    y = (x @ torch.randn(7, 3, generator=draws, dtype=torch.float64)).argmax(-1)
    return net, params, state, x, y


def trace_of(net, params, x, y):
    return trace(net, params, x, y, [plain_linear] * net.depth, with_input=True)


def bound(name, is_unit=0.0):
    rule = RULES.get(name)()
    return rule.bind({"scale": torch.tensor(is_unit, dtype=torch.float64)}) if name == "sdfa" else rule


def case(name):
    resolved = tiny.resolved(name)
    data = resolved.source.load(None)
    x, y = data.train_x[:16].double(), data.train_y[:16]
    return resolved, resolved.params(), resolved.state(), x, y


def test_sdfa_projects_the_signs_of_the_error():
    resolved, params, state, x, y = case("sdfa")
    traced = trace_of(resolved.net, params, x, y)
    credits, _ = bound("sdfa").credit(resolved.net, params, state, traced, {})
    for layer, credit in enumerate(credits):
        for sample in range(len(y)):
            signs = [1.0 if value > 0 else -1.0 for value in traced.error[sample].tolist()]
            expected = sum(sign * row for sign, row in zip(signs, state[f"B.{layer}"], strict=True))
            torch.testing.assert_close(credit[sample], expected)


def test_sdfa_with_unit_error_is_divided_by_the_root_of_the_classes_and_zero_error_gives_zero_credit():
    resolved, params, state, x, y = case("sdfa")
    classes = resolved.net.classes
    params["head.out.bias"] = (
        800.0 * F.one_hot(y[0], classes).double()
    )  # So confident in one class that e is exactly 0.
    traced = trace_of(resolved.net, params, x, y)
    raw, _ = bound("sdfa").credit(resolved.net, params, state, traced, {})
    unit, _ = bound("sdfa", 1.0).credit(resolved.net, params, state, traced, {})
    confident = traced.error.abs().sum(-1) == 0
    assert confident[0]
    for credit in (*raw, *unit):
        assert (credit[confident] == 0).all()
    resolved, params, state, x, y = case("sdfa")
    traced = trace_of(resolved.net, params, x, y)
    raw, _ = bound("sdfa").credit(resolved.net, params, state, traced, {})
    unit, _ = bound("sdfa", 1.0).credit(resolved.net, params, state, traced, {})
    for left, right in zip(raw, unit, strict=True):
        torch.testing.assert_close(left, right * classes**0.5, rtol=1e-12, atol=1e-14)


def test_drtp_is_minus_the_feedback_row_of_the_label():
    resolved, params, state, x, y = case("drtp")
    credits, _ = bound("drtp").credit(resolved.net, params, state, trace_of(resolved.net, params, x, y), {})
    for layer, credit in enumerate(credits):
        assert torch.equal(credit, -state[f"B.{layer}"][y])


@pytest.mark.parametrize("name", ["sdfa", "drtp"])
def test_the_credit_depends_on_the_label_alone_however_well_it_is_fitted(name):
    resolved, params, state, x, y = case(name)
    one, _ = bound(name).credit(resolved.net, params, state, trace_of(resolved.net, params, x, y), {})
    fitted = {n: 9 * leaf if n.startswith("head.") else leaf for n, leaf in params.items()}
    other, _ = bound(name).credit(resolved.net, fitted, state, trace_of(resolved.net, fitted, x.flip(0), y), {})
    assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


def test_sdfa_is_twice_drtp_plus_a_constant():
    """sign(e) = 1 - 2 onehot(y) under softmax, so both separate the labels in the same way."""
    resolved, params, state, x, y = case("sdfa")
    traced = trace_of(resolved.net, params, x, y)
    signs, _ = bound("sdfa").credit(resolved.net, params, state, traced, {})
    targets, _ = bound("drtp").credit(resolved.net, params, state, traced, {})
    for layer, (left, right) in enumerate(zip(signs, targets, strict=True)):
        torch.testing.assert_close(left, 2 * right + state[f"B.{layer}"].sum(0), rtol=1e-12, atol=1e-13)


def test_drtp_with_aligned_feedback_has_the_gradients_sign_for_every_sample_and_layer(rotations):
    """<a_l, g_l> = -onehot(y)^T B B^T e = 1 - p_y, which is positive."""
    net, params, state, x, y = rotations
    traced = trace_of(net, params, x, y)
    credits, _ = bound("drtp").credit(net, params, state, traced, {})
    missing = 1 - traced.logits.softmax(-1).gather(1, y[:, None])[:, 0]
    for credit, gradient in zip(credits, transport(traced), strict=True):
        torch.testing.assert_close((credit * gradient).sum(-1), missing, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("sign", "falls"), [(1, True), (-1, False)])
def test_drtp_under_a_fixed_head_lowers_the_loss_and_with_the_other_sign_raises_it(rotations, sign, falls):
    """Only the stem is trained; blocks and head are fixed, so the feedback stays aligned."""
    net, params, state, x, y = rotations
    losses = []
    for _ in range(60):
        traced = trace_of(net, params, x, y)
        losses.append(traced.losses.mean().item())
        credits, _ = bound("drtp").credit(net, params, state, traced, {})
        gradient = traced.stem.leaves(sign * credits[0])["weight"]
        params["stem.weight"] = params["stem.weight"] - 0.05 * gradient
    if falls:
        assert losses[-1] < 0.6 * losses[0]
    else:
        assert losses[-1] > 1.5 * losses[0]


def test_negating_the_feedback_of_drtp_negates_the_credit():
    """B is drawn symmetrically about 0, so both signs of the credit are equally likely."""
    resolved, params, state, x, y = case("drtp")
    traced = trace_of(resolved.net, params, x, y)
    negated = {name: -leaf for name, leaf in state.items()}
    one, _ = bound("drtp").credit(resolved.net, params, state, traced, {})
    two, _ = bound("drtp").credit(resolved.net, params, negated, traced, {})
    assert all(torch.equal(left, -right) for left, right in zip(one, two, strict=True))


@dataclass(frozen=True)
class Squashed(Network):
    """Four tanh units under a linear head: one hidden layer, as target projection was proposed for."""

    depth: int = 1

    @property
    def state_shape(self):
        return (4,)

    def init(self, generator):
        stem = torch.randn(4, *self.input_shape, generator=generator, dtype=torch.float64)
        head = torch.randn(self.classes, 4, generator=generator, dtype=torch.float64)
        none = torch.zeros((), dtype=torch.float64)
        return {"stem.weight": stem / stem.shape[1] ** 0.5, "blocks.0.scale": none, "head.weight": head / 2}

    def stem(self, leaves: Leaves, x):
        return torch.tanh(F.linear(x, leaves["weight"]))

    def branch(self, leaves: Leaves, h, linear: Linear = plain_linear):
        return leaves["scale"] * h

    def head(self, leaves: Leaves, h):
        return F.linear(h, leaves["weight"])


@pytest.mark.parametrize("name", ["sdfa", "drtp"])
@pytest.mark.parametrize("sign", [1, -1])
def test_with_random_feedback_of_either_sign_a_hidden_layer_learns(name, sign):
    """Compared with the same layer left random under a trained head; only the head gets the true gradient."""
    net = Squashed(input_shape=(20,), classes=3)
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(200, 20, generator=draws, dtype=torch.float64)
    y = (x @ torch.randn(20, 3, generator=draws, dtype=torch.float64)).argmax(-1)
    rule = bound(name)
    start = net.init(draws)
    state = {k: sign * v.double() for k, v in rule.init(net, draws).items()}

    def trained(rate):
        params = dict(start)
        for _ in range(300):
            traced = trace_of(net, params, x, y)
            credits, _ = rule.credit(net, params, state, traced, {})
            params["stem.weight"] = params["stem.weight"] - rate * traced.stem.leaves(credits[0])["weight"]
            params["head.weight"] = params["head.weight"] - 0.5 * traced.head_gradient["weight"]
        return trace_of(net, params, x, y).losses.mean().item()

    assert trained(0.5) < 0.5 * trained(0.0)


def test_sdfa_has_a_setting_scale_and_drtp_has_none():
    assert tiny.resolved("sdfa:scale=unit_error").rule.scale == "unit_error"
    with pytest.raises(InputError, match="scale"):
        tiny.resolved("drtp:scale=unit_error")


@pytest.mark.parametrize("name", ["sdfa", "drtp"])
def test_the_two_sites_train_the_blocks_differently(name):
    ends = []
    for site in ("output", "input"):
        resolved = tiny.resolved(f"{name}:site={site}")
        ends.append(tiny.train(Single(resolved, resolved.source.load(None), tiny.CPU), 1)[0].params)
    assert torch.equal(part(ends[0], "stem")["weight"], part(ends[1], "stem")["weight"])
    assert not torch.equal(ends[0]["blocks.0.w2.weight"], ends[1]["blocks.0.w2.weight"])

"""Signs and labels projected straight to every layer: sdfa and drtp against their definitions, and drtp's sign."""

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


def taken(net, params, x, y):
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
    seen = taken(resolved.net, params, x, y)
    credits, _ = bound("sdfa").credit(resolved.net, params, state, seen, {})
    for layer, credit in enumerate(credits):
        for sample in range(len(y)):
            signs = [1.0 if value > 0 else -1.0 for value in seen.error[sample].tolist()]
            expected = sum(sign * row for sign, row in zip(signs, state[f"B.{layer}"], strict=True))
            torch.testing.assert_close(credit[sample], expected)


def test_sdfa_at_unit_length_is_divided_by_the_root_of_the_classes_and_no_error_gives_no_credit():
    resolved, params, state, x, y = case("sdfa")
    classes = resolved.net.classes
    params["head.out.bias"] = 800.0 * F.one_hot(y[0], classes).double()  # So sure of one class that e is exactly 0.
    seen = taken(resolved.net, params, x, y)
    raw, _ = bound("sdfa").credit(resolved.net, params, state, seen, {})
    unit, _ = bound("sdfa", 1.0).credit(resolved.net, params, state, seen, {})
    sure = seen.error.abs().sum(-1) == 0
    assert sure[0]
    for credit in (*raw, *unit):
        assert (credit[sure] == 0).all()
    resolved, params, state, x, y = case("sdfa")
    seen = taken(resolved.net, params, x, y)
    raw, _ = bound("sdfa").credit(resolved.net, params, state, seen, {})
    unit, _ = bound("sdfa", 1.0).credit(resolved.net, params, state, seen, {})
    for left, right in zip(raw, unit, strict=True):
        torch.testing.assert_close(left, right * classes**0.5, rtol=1e-12, atol=1e-14)


def test_drtp_is_minus_the_labels_row_of_the_feedback():
    resolved, params, state, x, y = case("drtp")
    credits, _ = bound("drtp").credit(resolved.net, params, state, taken(resolved.net, params, x, y), {})
    for layer, credit in enumerate(credits):
        assert torch.equal(credit, -state[f"B.{layer}"][y])


@pytest.mark.parametrize("name", ["sdfa", "drtp"])
def test_the_credit_depends_on_the_label_alone_however_well_it_is_fitted(name):
    resolved, params, state, x, y = case(name)
    one, _ = bound(name).credit(resolved.net, params, state, taken(resolved.net, params, x, y), {})
    fitted = {n: 9 * leaf if n.startswith("head.") else leaf for n, leaf in params.items()}
    other, _ = bound(name).credit(resolved.net, fitted, state, taken(resolved.net, fitted, x.flip(0), y), {})
    assert all(torch.equal(left, right) for left, right in zip(one, other, strict=True))


def test_sdfa_is_twice_drtp_and_a_constant():
    """sign(e) = 1 - 2 onehot(y) under softmax, so both push labels apart alike."""
    resolved, params, state, x, y = case("sdfa")
    seen = taken(resolved.net, params, x, y)
    signs, _ = bound("sdfa").credit(resolved.net, params, state, seen, {})
    targets, _ = bound("drtp").credit(resolved.net, params, state, seen, {})
    for layer, (left, right) in enumerate(zip(signs, targets, strict=True)):
        torch.testing.assert_close(left, 2 * right + state[f"B.{layer}"].sum(0), rtol=1e-12, atol=1e-13)


def test_drtp_with_aligned_feedback_has_the_gradients_sign_for_every_sample_and_layer(rotations):
    """<a_l, g_l> = -onehot(y)^T B B^T e = 1 - p_y, which is positive."""
    net, params, state, x, y = rotations
    seen = taken(net, params, x, y)
    credits, _ = bound("drtp").credit(net, params, state, seen, {})
    missing = 1 - seen.logits.softmax(-1).gather(1, y[:, None])[:, 0]
    for credit, gradient in zip(credits, transport(seen), strict=True):
        torch.testing.assert_close((credit * gradient).sum(-1), missing, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("sign", "falls"), [(1, True), (-1, False)])
def test_drtp_under_a_fixed_head_learns_with_its_sign_and_unlearns_with_the_other(rotations, sign, falls):
    """The stem descends drtp's credit; blocks and head stay, so the feedback stays aligned."""
    net, params, state, x, y = rotations
    losses = []
    for _ in range(60):
        seen = taken(net, params, x, y)
        losses.append(seen.losses.mean().item())
        credits, _ = bound("drtp").credit(net, params, state, seen, {})
        gradient = seen.stem.leaves(sign * credits[0])["weight"]
        params["stem.weight"] = params["stem.weight"] - 0.05 * gradient
    if falls:
        assert losses[-1] < 0.6 * losses[0]
    else:
        assert losses[-1] > 1.5 * losses[0]


def test_drtps_sign_is_that_of_its_feedback():
    """Turning B over turns the credit over: with B drawn symmetrically about 0, both signs are equally likely."""
    resolved, params, state, x, y = case("drtp")
    seen = taken(resolved.net, params, x, y)
    over = {name: -leaf for name, leaf in state.items()}
    one, _ = bound("drtp").credit(resolved.net, params, state, seen, {})
    two, _ = bound("drtp").credit(resolved.net, params, over, seen, {})
    assert all(torch.equal(left, -right) for left, right in zip(one, two, strict=True))


@dataclass(frozen=True)
class Squashed(Network):
    """Four tanh units under a linear head: one hidden layer of the kind target projection was made for."""

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
    """Against the same layer left random under a trained head; only the head knows the true gradient."""
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
            seen = taken(net, params, x, y)
            credits, _ = rule.credit(net, params, state, seen, {})
            params["stem.weight"] = params["stem.weight"] - rate * seen.stem.leaves(credits[0])["weight"]
            params["head.weight"] = params["head.weight"] - 0.5 * seen.head_gradient["weight"]
        return taken(net, params, x, y).losses.mean().item()

    assert trained(0.5) < 0.5 * trained(0.0)


def test_sdfa_takes_a_scale_and_drtp_refuses_it():
    assert tiny.resolved("sdfa:scale=unit_error").rule.scale == "unit_error"
    with pytest.raises(InputError, match="scale"):
        tiny.resolved("drtp:scale=unit_error")


@pytest.mark.parametrize("name", ["sdfa", "drtp"])
def test_both_sites_differ(name):
    ends = []
    for site in ("output", "input"):
        resolved = tiny.resolved(f"{name}:site={site}")
        ends.append(tiny.train(Single(resolved, resolved.source.load(None), tiny.CPU), 1)[0].params)
    assert torch.equal(part(ends[0], "stem")["weight"], part(ends[1], "stem")["weight"])
    assert not torch.equal(ends[0]["blocks.0.w2.weight"], ends[1]["blocks.0.w2.weight"])

"""Cases in which a rule must equal backprop, on networks made for it; scales and shapes of feedback."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
from walkback.core.random_streams import generator
from walkback.credit import RULES
from walkback.credit.feedback import scaled, unit
from walkback.credit.rule import transport
from walkback.credit.trace import one_hot, softmax_error, trace
from walkback.nets.network import Leaves, Linear, Network, plain_linear


@dataclass(frozen=True)
class LinearNet(Network):
    """Residual blocks f(h) = W h and a linear head without a norm: the map from a layer to the logits is one matrix."""

    d: int = 5

    @property
    def state_shape(self):
        return (self.d,)

    def init(self, generator):
        def draw(rows, columns):
            return torch.randn(rows, columns, generator=generator, dtype=torch.float64)

        blocks = {f"blocks.{index}.w.weight": draw(self.d, self.d) for index in range(self.depth)}
        return {"stem.weight": draw(self.d, *self.input_shape), **blocks, "head.weight": draw(self.classes, self.d)}

    def stem(self, leaves: Leaves, x):
        return F.linear(x, leaves["weight"])

    def branch(self, leaves: Leaves, h, linear: Linear = plain_linear):
        return linear("w", h, leaves["w.weight"], torch.zeros(self.d, dtype=h.dtype))

    def head(self, leaves: Leaves, h):
        return F.linear(h, leaves["weight"])


@pytest.fixture
def linear_case():
    net = LinearNet(input_shape=(7,), classes=3, depth=3)
    draws = torch.Generator().manual_seed(0)
    params = net.init(draws)
    x = torch.randn(11, 7, generator=draws, dtype=torch.float64)
    y = torch.randint(3, (11,), generator=draws)
    traced = trace(net, params, x, y, [plain_linear] * net.depth, with_input=True)
    maps = [torch.eye(net.d, dtype=torch.float64) + params[f"blocks.{i}.w.weight"] for i in range(net.depth)]
    return net, params, traced, maps


def bound(rule):
    """The rule with tensors as its dynamic fields, as inside a step."""
    return rule.bind({name: torch.tensor(value) for name, value in rule.knobs().items()})


def assert_same(found, expected):
    for left, right in zip(found, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-13)


def test_fa_equals_bp_on_linear_blocks_when_feedback_is_the_transposed_map(linear_case):
    net, params, traced, maps = linear_case
    state = {f"B.{index}": matrix.T for index, matrix in enumerate(maps)}
    credits, _ = RULES.get("fa")().credit(net, params, state, traced, {})
    assert_same(credits, transport(traced))


def test_fa_with_random_feedback_is_exact_at_the_top_only(linear_case):
    net, params, traced, _ = linear_case
    rule = RULES.get("fa")()
    state = {k: v.double() for k, v in rule.init(net, torch.Generator().manual_seed(1)).items()}
    credits, _ = rule.credit(net, params, state, traced, {})
    truth = transport(traced)
    assert_same(credits[-1:], truth[-1:])
    assert all(F.cosine_similarity(a, g).abs().max() < 0.999 for a, g in zip(credits[:-1], truth[:-1], strict=True))
    # a_l = B_l a_{l+1}, sample by sample.
    for layer in range(net.depth):
        for sample in range(3):
            expected = state[f"B.{layer}"] @ credits[layer + 1][sample]
            torch.testing.assert_close(credits[layer][sample], expected)


def test_dfa_equals_bp_on_a_linear_net_when_feedback_is_the_product_of_the_maps_above(linear_case):
    net, params, traced, maps = linear_case
    state, above = {}, params["head.weight"]
    for layer in reversed(range(net.depth + 1)):
        state[f"B.{layer}"] = above
        above = above @ maps[layer - 1] if layer else above
    rule = bound(RULES.get("dfa")())
    credits, _ = rule.credit(net, params, state, traced, {})
    assert_same(credits, transport(traced))


def test_dfa_unit_error_only_rescales_each_samples_credit(linear_case):
    net, params, traced, _ = linear_case
    rule = RULES.get("dfa")()
    state = {k: v.double() for k, v in rule.init(net, torch.Generator().manual_seed(1)).items()}
    raw, _ = bound(rule).credit(net, params, state, traced, {})
    units, _ = bound(replace(rule, scale="unit_error")).credit(net, params, state, traced, {})
    length = traced.error.norm(dim=-1, keepdim=True)
    assert_same([u * length for u in units], raw)


@pytest.mark.parametrize("scale", ["raw", "unit_error"])
def test_dfa_of_logits_projects_the_gradient_of_a_squared_error(linear_case, scale):
    net, params, traced, _ = linear_case
    rule = RULES.get("dfa")(scale=scale, error="logits")
    state = {k: v.double() for k, v in rule.init(net, torch.Generator().manual_seed(1)).items()}
    logits = traced.logits.clone().requires_grad_()
    (0.5 * ((logits - one_hot(traced.y, net.classes).double()) ** 2).sum()).backward()
    error = logits.grad / (logits.grad.norm(dim=-1, keepdim=True) if scale == "unit_error" else 1)
    credits, _ = bound(rule).credit(net, params, state, traced, {})
    assert_same(credits, [error @ state[f"B.{layer}"] for layer in range(net.depth + 1)])
    usual, _ = bound(replace(rule, error="probabilities")).credit(net, params, state, traced, {})
    assert not torch.allclose(credits[0], usual[0])


@pytest.mark.parametrize(("rule", "shape", "std"), [("fa", (40, 40), 40**-0.5), ("dfa", (10, 40), 1.0)])
def test_feedback_has_the_defined_shape_and_standard_deviation(rule, shape, std):
    net = tiny.resolved(rule, arch="resmlp:d=40,depth=6", data="prototypes:train=64,test=64", batch=16).net
    state = RULES.get(rule)().init(net, torch.Generator().manual_seed(3))
    assert len(state) == {"fa": 6, "dfa": 7}[rule]
    assert {tuple(leaf.shape) for leaf in state.values()} == {shape}
    values = torch.stack(list(state.values()))
    assert values.mean().abs() < 4 * std / values.numel() ** 0.5
    assert values.std() == pytest.approx(std, rel=4 / (2 * values.numel()) ** 0.5)


def test_feedback_is_drawn_layer_by_layer_from_the_runs_own_stream():
    """Bit for bit: settings at their defaults must not change the feedback of published runs."""
    for rule, shapes, std in (("dfa", [(4, 8)] * 4, 1.0), ("fa", [(8, 8)] * 3, 8**-0.5)):
        resolved = tiny.resolved(rule, dtype="float32")
        stream = generator(resolved.config.seed, "feedback")
        expected = {f"B.{i}": torch.randn(shape, generator=stream) * std for i, shape in enumerate(shapes)}
        assert tiny.same_bits(resolved.state(), expected)


def test_credit_has_the_gradients_sign_and_scale_by_finite_differences():
    """The directional derivative of each sample's own loss is its inner product with bp's credit."""
    resolved = tiny.resolved("bp")
    data = resolved.source.load(None)
    params, x, y = resolved.params(), data.train_x[:9].double(), data.train_y[:9]
    traced = trace(resolved.net, params, x, y, [plain_linear] * resolved.net.depth, with_input=True)
    draws = torch.Generator().manual_seed(0)
    for layer, (h, a) in enumerate(zip(traced.states, transport(traced), strict=True)):
        v = torch.randn(h.shape, generator=draws, dtype=h.dtype)
        ups, downs = (
            F.cross_entropy(resolved.net.forward_from(layer, params, h + t * v), y, reduction="none")
            for t in (1e-5, -1e-5)
        )
        torch.testing.assert_close((ups - downs) / 2e-5, (a * v).sum(-1), rtol=1e-6, atol=1e-9)


@given(st.lists(st.floats(-300, 300), min_size=2, max_size=6), st.data())
@settings(max_examples=200, deadline=None)
def test_the_error_is_the_loss_gradient_with_full_relative_precision(values, data):
    logits = torch.tensor([values], dtype=torch.float64)
    label = torch.tensor([data.draw(st.integers(0, len(values) - 1))])
    target = one_hot(label, len(values)).double()
    error = softmax_error(logits, target)
    assert error.sum().abs() <= 1e-15 * len(values)
    assert torch.equal(torch.sign(error[0, label]), -torch.sign(error.sum(-1) - error[0, label]))
    plain = logits.softmax(-1) - target
    torch.testing.assert_close(error, plain, rtol=0, atol=1e-15)
    others = torch.logsumexp(logits.masked_fill(target.bool(), -torch.inf), -1)
    expected = -torch.sigmoid(others - logits[0, label])
    torch.testing.assert_close(error[0, label], expected, rtol=1e-9, atol=1e-300)


@given(st.integers(0, 2**31), st.floats(1e-30, 1e30))
@settings(max_examples=100, deadline=None)
def test_unit_errors_have_length_one_at_any_scale_and_zero_stays_zero(seed, scale):
    error = torch.randn(6, 10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale
    error[2] = 0
    lengths = unit(error).norm(dim=-1)
    assert torch.equal(lengths[2], torch.zeros((), dtype=torch.float64))
    keep = torch.tensor([0, 1, 3, 4, 5])
    torch.testing.assert_close(lengths[keep], torch.ones(5, dtype=torch.float64))
    assert torch.equal(scaled(error, torch.tensor(0.0)), error)
    assert torch.equal(scaled(error, torch.tensor(1.0)), unit(error))

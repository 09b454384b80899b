"""Greedy local learning: credit is the gradient of each state's own auxiliary loss, independent of the layers above."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F

import tiny
from walkback.core.errors import InputError
from walkback.credit import RULES, local
from walkback.credit.rule import transport
from walkback.credit.trace import trace
from walkback.nets.network import Leaves, Linear, Network, plain_linear
from walkback.training.fleet import Fleet
from walkback.training.single import Single


@dataclass(frozen=True)
class Shaped(Network):
    """A network whose hidden states have the shape of its inputs, to test pooling over any shape."""

    @property
    def state_shape(self):
        return self.input_shape

    def init(self, generator):
        weight = torch.randn(self.classes, self.features, generator=generator, dtype=torch.float64)
        blocks = {f"blocks.{index}.scale": torch.tensor(0.3 + index).double() for index in range(self.depth)}
        return {"stem.scale": torch.tensor(2.0).double(), **blocks, "head.weight": weight}

    def stem(self, leaves: Leaves, x):
        return leaves["scale"] * x

    def branch(self, leaves: Leaves, h, linear: Linear = plain_linear):
        return torch.tanh(leaves["scale"] * h)

    def head(self, leaves: Leaves, h):
        return F.linear(pooled(h), leaves["weight"])


def pooled(h):
    """[n, features], written for each kind of state."""
    if h.ndim == 4:
        return h.sum((2, 3)) / (h.shape[2] * h.shape[3])
    return h.sum(1) / h.shape[1] if h.ndim == 3 else h


def trace_of(net, params, x, y):
    return trace(net, params, x, y, [plain_linear] * net.depth, with_input=True)


def case(**settings):
    resolved = tiny.resolved("local", **settings)
    data = resolved.source.load(None)
    return resolved, resolved.params(), resolved.state(), data.train_x[:16].double(), data.train_y[:16]


def credits_of(net, params, state, x, y):
    return RULES.get("local")().credit(net, params, state, trace_of(net, params, x, y), {})[0]


def test_it_equals_bp_if_the_auxiliary_heads_are_the_head_and_the_blocks_are_zero():
    resolved, params, state, x, y = case(arch=tiny.arch("resmlp", "terminal_norm=false"))
    for name in params:
        if ".w2." in name:
            params[name] = torch.zeros_like(params[name])
    state = {f"learned.{layer}.{leaf}": params[f"head.out.{leaf}"] for layer in range(3) for leaf in ("weight", "bias")}
    credits = credits_of(resolved.net, params, state, x, y)
    truth = transport(trace_of(resolved.net, params, x, y))
    for found, right in zip(credits, truth, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-12, atol=1e-15)
        assert found.abs().min(dim=-1).values.max() > 0


@pytest.mark.parametrize("shape", [(5,), (4, 5), (5, 2, 3)], ids=["vector", "tokens", "maps"])
def test_credit_is_the_gradient_of_the_auxiliary_loss(shape):
    net = Shaped(input_shape=shape, classes=3, depth=2)
    draws = torch.Generator().manual_seed(0)
    params = net.init(draws)
    rule = RULES.get("local")()
    state = {name: leaf.double() for name, leaf in rule.init(net, draws).items()}
    x, y = torch.randn(6, *shape, generator=draws, dtype=torch.float64), torch.randint(3, (6,), generator=draws)
    traced = trace_of(net, params, x, y)
    credits, _ = rule.credit(net, params, state, traced, {})
    losses = []
    for layer in range(net.depth):
        h = traced.states[layer].clone().requires_grad_()
        logits = pooled(h) @ state[f"learned.{layer}.weight"].T + state[f"learned.{layer}.bias"]
        loss = F.cross_entropy(logits, y, reduction="sum")
        losses.append(loss.item() / len(y))
        torch.testing.assert_close(credits[layer], torch.autograd.grad(loss, h)[0], rtol=1e-10, atol=1e-14)
    assert torch.equal(credits[-1], traced.top)
    total, logs = rule.own_loss(net, params, state, traced, {})
    assert total.item() == pytest.approx(sum(losses), rel=1e-12)
    assert logs["aux_loss"].item() == pytest.approx(sum(losses) / net.depth, rel=1e-12)


def test_credit_below_the_top_does_not_depend_on_the_layers_above():
    resolved, params, state, x, y = case()
    one = credits_of(resolved.net, params, state, x, y)
    changed = {n: leaf + 1 if n.startswith(("blocks.1", "blocks.2", "head")) else leaf for n, leaf in params.items()}
    other = credits_of(resolved.net, changed, state, x, y)
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])  # h_1 is the output of block 0.
    assert not torch.equal(one[2], other[2])


def test_the_last_block_and_the_head_get_the_gradients_of_bp():
    resolved, params, state, x, y = case()
    traced = trace_of(resolved.net, params, x, y)
    found = local.gradients(traced, credits_of(resolved.net, params, state, x, y), "output", None, "sum")
    truth = local.gradients(traced, transport(traced), "output", None, "sum")
    for name, leaf in truth.items():
        assert torch.equal(found[name], leaf) == name.startswith(("blocks.2.", "head.")), name


def test_the_auxiliary_losses_fall_in_training_and_are_logged():
    resolved = tiny.resolved("local:aux_lr=0.01", lr=0.01, epochs=15)
    driver = Single(resolved, resolved.source.load(None), tiny.CPU)
    logs = [driver.train_epoch(lambda _: None)[0] for _ in range(15)]
    assert logs[-1]["aux_loss"] < 0.5 * logs[0]["aux_loss"]
    assert logs[-1]["loss"] < 0.5 * logs[0]["loss"]
    assert logs[0]["own_loss"] == pytest.approx(3 * logs[0]["aux_loss"], rel=1e-12)


def test_both_drivers_train_the_same_auxiliary_heads():
    resolved_runs = [tiny.resolved("local:aux_lr=0.01", seeds=seed) for seed in (1, 2)]
    data = resolved_runs[0].source.load(None)
    together = tiny.train(Fleet(resolved_runs, data, tiny.CPU), 2)
    for resolved, left in zip(resolved_runs, together, strict=True):
        (right,) = tiny.train(Single(resolved, data, tiny.CPU), 2)
        assert tiny.distance(left.state, right.state) < 1e-11
        assert not any(torch.equal(leaf, right.state[name]) for name, leaf in resolved.state().items())


def test_in_the_frozen_baseline_the_auxiliary_heads_learn_and_the_blocks_stay():
    resolved = tiny.resolved("local:shell=method")
    (end,) = tiny.train(Single(resolved, resolved.source.load(None), tiny.CPU), 2)
    assert not any(torch.equal(leaf, end.state[name]) for name, leaf in resolved.state().items())
    assert all(torch.equal(leaf, end.params[n]) for n, leaf in resolved.params().items() if n.startswith("blocks."))


def test_a_zero_aux_lr_and_site_input_are_refused():
    with pytest.raises(InputError, match="aux_lr"):
        tiny.resolved("local:aux_lr=0")
    with pytest.raises(InputError, match="site=output only"):
        tiny.resolved("local:site=input")

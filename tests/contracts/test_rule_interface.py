"""The optional parts of the rule interface, tested with both drivers on rules made for the purpose.

One rule learns its state, one draws noise for every step, and one updates its state with the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

import tiny
from walkback.credit.perlinear import feedback_linear
from walkback.credit.rule import CreditRule, transport
from walkback.training.fleet import Fleet
from walkback.training.schedules import CosineSchedule
from walkback.training.single import Single


@dataclass(frozen=True)
class Learner(CreditRule):
    """a_l = e @ W_l with W_l regressed on the top gradient."""

    def init(self, net, generator):
        shape = (net.classes, *net.state_shape)
        return {
            "fixed": torch.ones(2),
            **{f"learned.{layer}": torch.randn(shape, generator=generator) for layer in range(net.depth + 1)},
        }

    def credit(self, net, params, state, trace, noise):
        return tuple(trace.error @ state[f"learned.{layer}"] for layer in range(net.depth + 1)), {
            "size": state["learned.0"].norm()
        }

    def own_loss(self, net, params, state, trace, noise):
        errors = [((trace.error @ state[f"learned.{layer}"] - trace.top) ** 2).mean() for layer in range(net.depth + 1)]
        return sum(errors), {"worst": torch.stack(errors).max()}


@dataclass(frozen=True)
class Noisy(CreditRule):
    """Credit along a new random direction for every sample and step."""

    def draw(self, net, batch, generator):
        return {"each.xi": torch.randn(batch, net.depth + 1, *net.state_shape, generator=generator)}

    def credit(self, net, params, state, trace, noise):
        return tuple(xi * trace.losses[:, None] for xi in noise["each.xi"].unbind(1)), {}


@dataclass(frozen=True)
class Follower(CreditRule):
    """Kolen-Pollack: the feedback gets the same increments and decay as the weights."""

    sites = ("output",)
    through_blocks = True

    def init(self, net, generator):
        (d,) = net.state_shape
        names = [f"{block}.{layer}" for block in range(net.depth) for layer in ("w1", "w2")]
        return {name: torch.randn(d, d, generator=generator) for name in names}

    def linears(self, net, state, noise):
        def linear_of(block):
            return lambda name, x, weight, bias: feedback_linear(x, weight, bias, state[f"{block}.{name}"])

        return [linear_of(block) for block in range(net.depth)]

    def credit(self, net, params, state, trace, noise):
        return transport(trace), {}

    def after_update(self, state, before, after, decay):
        def follow(name, feedback):
            weight = f"blocks.{name}.weight"
            return feedback * (1 - decay) + (after[weight] - (1 - decay) * before[weight]).mT

        return {name: follow(name, feedback) for name, feedback in state.items()}


def both_drivers(rule, epochs=2):
    resolved_runs = [replace(tiny.resolved("bp", seeds=seed), rule=rule) for seed in (1, 2)]
    data = resolved_runs[0].source.load(None)
    fleet = Fleet(resolved_runs, data, tiny.CPU)
    together = tiny.train(fleet, epochs)
    alone = [tiny.train(Single(resolved, data, tiny.CPU), epochs)[0] for resolved in resolved_runs]
    for left, right in zip(together, alone, strict=True):
        assert tiny.distance(left.params, right.params) < 1e-11
        assert left.state.keys() == right.state.keys()
        if right.state:
            assert tiny.distance(left.state, right.state) < 1e-11
    return resolved_runs, alone, data


def test_own_loss_trains_the_learned_leaves_and_no_others():
    resolved_runs, alone, data = both_drivers(Learner())
    start = resolved_runs[0].state()
    assert torch.equal(alone[0].state["fixed"], start["fixed"])
    for name in start.keys() - {"fixed"}:
        assert not torch.equal(alone[0].state[name], start[name])
    driver = Single(replace(resolved_runs[0], config=replace(resolved_runs[0].config, epochs=60)), data, tiny.CPU)
    losses = [driver.train_epoch(lambda _: None)[0]["own_loss"] for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]


def test_a_learned_state_resumes_from_a_snapshot_to_the_same_bits():
    resolved = replace(tiny.resolved("bp"), rule=Learner())
    data = resolved.source.load(None)
    for make in (lambda: Single(resolved, data, tiny.CPU), lambda: Fleet([resolved], data, tiny.CPU)):
        uninterrupted = make()
        middle = tiny.train(uninterrupted, 1)
        (end,) = tiny.train(uninterrupted, 1)
        again = make()
        again.restore(middle)
        (found,) = tiny.train(again, 1)
        assert tiny.same_bits(found.state, end.state)
        assert tiny.same_bits(found.own_moments, end.own_moments)


def test_noise_is_drawn_for_each_model_and_step():
    both_drivers(Noisy())
    resolved = replace(tiny.resolved("bp"), rule=Noisy())
    draws = [resolved.noise(0, 0), resolved.noise(0, 1), resolved.noise(1, 0)]
    assert torch.equal(draws[0]["each.xi"], resolved.noise(0, 0)["each.xi"])
    assert not torch.equal(draws[0]["each.xi"], draws[1]["each.xi"])
    assert not torch.equal(draws[0]["each.xi"], draws[2]["each.xi"])


def test_a_followers_gap_to_the_weights_shrinks_by_the_decay_alone():
    (resolved, _), (end, _), _ = both_drivers(Follower())
    steps = 2 * (resolved.source.train_size // resolved.config.batch)
    factor = 1.0
    for done in range(steps):
        factor *= 1 - resolved.config.lr * CosineSchedule().factor(done, steps, 1) * resolved.config.weight_decay
    start, weights = resolved.state(), resolved.params()
    for name, feedback in end.state.items():
        gap = end.params[f"blocks.{name}.weight"] - feedback.mT
        first = weights[f"blocks.{name}.weight"] - start[name].mT
        torch.testing.assert_close(gap, factor * first, rtol=1e-9, atol=1e-12)

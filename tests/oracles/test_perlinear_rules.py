"""Per-Linear feedback: equal to backprop if the feedback is the transposed weight, else equal to its formula."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch.func import grad, vjp

import tiny
from walkback.core.errors import InputError
from walkback.credit import RULES, local
from walkback.credit.rule import transport
from walkback.credit.rules.kp import follow
from walkback.credit.trace import trace
from walkback.measure.subject import NetworkSubject
from walkback.nets.network import Network, part, plain_linear
from walkback.training.fleet import Fleet
from walkback.training.schedules import CosineSchedule
from walkback.training.single import Single

NAMES = ["usf", "frsf", "brsf", "kp", "fa_layers"]
SIGNED = ["usf", "frsf", "brsf"]


def keys(net):
    """("block.name", fan_in, fan_out) of every Linear inside a block."""
    return [(layer.key, layer.shape[1], layer.shape[0]) for layer in net.layers]


@dataclass(frozen=True)
class Wide(Network):
    """Blocks of two Linears that are not square, to test the shapes of feedback; it cannot be run."""

    d: int = 20

    @property
    def state_shape(self):
        return (self.d,)

    @property
    def block_linears(self):
        return (("up", self.d, 6 * self.d), ("down", 6 * self.d, self.d))

    def init(self, generator):
        shapes = {f"blocks.{key}.weight": (out, into) for key, into, out in keys(self)}
        return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}

    stem = branch = head = None


@dataclass(frozen=True)
class NoLinears(Wide):
    block_linears = ()


def case(name: str, **settings):
    """A rule on the tiny network, with random parameters of both signs."""
    resolved = tiny.resolved(name, **settings)
    data = resolved.source.load(None)
    draws = torch.Generator().manual_seed(5)
    params = {n: v + 0.3 * torch.randn(v.shape, generator=draws, dtype=v.dtype) for n, v in resolved.params().items()}
    return resolved, params, data.train_x[:16].double(), data.train_y[:16]


def credits_of(resolved, params, state, noise, x, y):
    linears = resolved.rule.linears(resolved.net, state, noise)
    traced = trace(resolved.net, params, x, y, linears, with_input=True)
    return traced, resolved.rule.credit(resolved.net, params, state, traced, noise)[0]


def bp_of(resolved, params, x, y):
    return transport(trace(resolved.net, params, x, y, [plain_linear] * resolved.net.depth, with_input=True))


def transposed_weight_state(resolved, params, kind):
    """State and noise that make the rule's feedback the transposed weight."""
    leaves = {key: params[f"blocks.{key}.weight"].mT for key, _, _ in keys(resolved.net)}
    made = {
        "usf": ({}, {}),
        "frsf": ({f"magnitude.{key}": leaf.abs() for key, leaf in leaves.items()}, {}),
        "brsf": ({}, {f"magnitude.{key}": leaf.abs() for key, leaf in leaves.items()}),
        "kp": ({f"B.{key}": leaf for key, leaf in leaves.items()}, {}),
        "fa_layers": ({f"B.{key}": leaf for key, leaf in leaves.items()}, {}),
    }
    return made[kind]


@pytest.mark.parametrize("name", NAMES)
def test_with_the_transposed_weight_as_feedback_it_equals_bp(name):
    resolved, params, x, y = case(name)
    if name == "usf":  # Its feedback is the weight if all weights have the magnitude 1 / sqrt(fan_out).
        for key, _, fan_out in keys(resolved.net):
            params[f"blocks.{key}.weight"] = params[f"blocks.{key}.weight"].sign() / math.sqrt(fan_out)
    traced, credits = credits_of(resolved, params, *transposed_weight_state(resolved, params, name), x, y)
    for found, expected in zip(credits, bp_of(resolved, params, x, y), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)
    truth = grad(lambda leaves: F.cross_entropy(resolved.net.forward(leaves, x), y))(params)
    assert tiny.distance(local.gradients(traced, credits, "output", None, "sum"), truth) < 1e-12


def by_hand(resolved, params, matrices, x, y):
    """Credits and the gradients of W1 and W2 with these feedback matrices [fan_in, fan_out], written out."""
    states = [resolved.net.stem(part(params, "stem"), x)]
    for block in range(resolved.net.depth):
        states.append(states[-1] + resolved.net.branch(part(params, f"blocks.{block}"), states[-1]))
    top = states[-1].clone().requires_grad_()
    losses = F.cross_entropy(resolved.net.head(part(params, "head"), top), y, reduction="sum")
    credits, gradients = [torch.autograd.grad(losses, top)[0]], {}
    for block in reversed(range(resolved.net.depth)):
        leaves = part(params, f"blocks.{block}")
        norm = (leaves["norm.weight"], leaves["norm.bias"])
        z, back = vjp(lambda h, norm=norm: F.layer_norm(h, h.shape[-1:], *norm), states[block])
        u = z @ leaves["w1.weight"].T + leaves["w1.bias"]
        above = credits[0]
        cdf = 0.5 * (1 + torch.erf(u / math.sqrt(2)))
        slope = cdf + u * torch.exp(-(u**2) / 2) / math.sqrt(2 * math.pi)
        inner = (above @ matrices[f"{block}.w2"].T) * slope
        gradients[f"blocks.{block}.w2.weight"] = above.T @ (u * cdf) / len(y)
        gradients[f"blocks.{block}.w1.weight"] = inner.T @ z / len(y)
        credits.insert(0, above + back(inner @ matrices[f"{block}.w1"].T)[0])
    return credits, gradients


def feedback_matrices(name, resolved, params, state, noise):
    """The feedback matrices of the rule's definition."""
    found = {}
    for key, _, fan_out in keys(resolved.net):
        signs = params[f"blocks.{key}.weight"].T.sign()
        found[key] = {
            "usf": lambda s=signs, n=fan_out: s / math.sqrt(n),
            "frsf": lambda s=signs, k=key: state[f"magnitude.{k}"] * s,
            "brsf": lambda s=signs, k=key: noise[f"magnitude.{k}"] * s,
            "kp": lambda k=key: state[f"B.{k}"],
            "fa_layers": lambda k=key: state[f"B.{k}"],
        }[name]()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_credits_and_weight_gradients_equal_the_formula(name):
    resolved, params, x, y = case(name)
    state, noise = resolved.state(), resolved.noise(0, 0)
    traced, credits = credits_of(resolved, params, state, noise, x, y)
    expected, gradients = by_hand(resolved, params, feedback_matrices(name, resolved, params, state, noise), x, y)
    for found, right in zip(credits, expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-14)
    made = local.gradients(traced, credits, "output", None, "sum")
    assert tiny.distance({n: made[n] for n in gradients}, gradients) < 1e-10


@pytest.mark.parametrize("name", NAMES)
def test_only_the_top_credit_is_exact(name):
    resolved, params, x, y = case(name)
    _, credits = credits_of(resolved, params, resolved.state(), resolved.noise(0, 0), x, y)
    truth = bp_of(resolved, params, x, y)
    assert torch.equal(credits[-1], truth[-1])
    for found, right in zip(credits[:-1], truth[:-1], strict=True):
        assert (F.cosine_similarity(found, right) < 0.9999).all()


@pytest.mark.parametrize("name", SIGNED)
def test_after_training_the_feedback_has_the_signs_of_the_current_weights(name):
    resolved = tiny.resolved(name, lr=0.03, epochs=4)
    data = resolved.source.load(None)
    start = resolved.params()
    (end,) = tiny.train(Single(resolved, data, tiny.CPU), 4)
    x, y, noise = data.train_x[:16].double(), data.train_y[:16], resolved.noise(3, 5)
    if name == "frsf":
        assert tiny.same_bits(end.state, resolved.state())
    flipped = {
        key: (end.params[f"blocks.{key}.weight"] * start[f"blocks.{key}.weight"] < 0)
        for key, _, _ in keys(resolved.net)
    }
    assert all(signs.sum() >= 3 for signs in flipped.values())
    _, credits = credits_of(resolved, end.params, end.state, noise, x, y)
    now, _ = by_hand(resolved, end.params, feedback_matrices(name, resolved, end.params, end.state, noise), x, y)
    then, _ = by_hand(resolved, end.params, feedback_matrices(name, resolved, start, end.state, noise), x, y)
    for layer in range(resolved.net.depth):
        torch.testing.assert_close(credits[layer], now[layer], rtol=1e-9, atol=1e-14)
        assert (credits[layer] - then[layer]).norm() > 0.1 * credits[layer].norm()


@pytest.mark.parametrize("name", NAMES)
def test_feedback_has_its_shape_and_the_same_rms_for_all_rules(name):
    """Root mean square 1/sqrt(fan_out), so that a Linear preserves the length of a random credit on average."""
    net, rule = Wide(input_shape=(3,), classes=4, depth=3), RULES.get(name)()
    params = net.init(torch.Generator().manual_seed(0))
    state = rule.init(net, torch.Generator().manual_seed(1))
    noise = rule.draw(net, 8, torch.Generator().manual_seed(2))
    sizes = {"usf": (0, 0), "frsf": (6, 0), "brsf": (0, 6), "kp": (6, 0), "fa_layers": (6, 0)}
    assert sizes[name] == (len(state), len(noise))
    for layer, (key, fan_in, fan_out) in zip(net.layers, keys(net), strict=True):
        weight = params[f"blocks.{key}.weight"]
        matrix = rule.feedback(layer, weight, state, noise)
        assert matrix.shape == (fan_in, fan_out)
        rms = (matrix**2).mean().sqrt().item()
        assert rms == pytest.approx(fan_out**-0.5, rel=1e-6 if name == "usf" else 4 / math.sqrt(2 * matrix.numel()))
        concordant = (matrix * weight.mT > 0).double().mean().item()
        assert (
            concordant == 1 if name in SIGNED else concordant == pytest.approx(0.5, abs=2 / math.sqrt(matrix.numel()))
        )


def test_frsf_stores_its_magnitudes_and_brsf_redraws_them_each_step():
    fixed, fresh = tiny.resolved("frsf"), tiny.resolved("brsf")
    assert fixed.noise(0, 0) == {}
    assert fresh.state() == {}
    first, again, next_step, next_epoch = (fresh.noise(*when) for when in [(0, 0), (0, 0), (0, 1), (1, 0)])
    assert tiny.same_bits(first, again)
    for name, leaf in first.items():
        assert (leaf >= 0).all()
        assert not torch.equal(leaf, next_step[name])
        assert not torch.equal(leaf, next_epoch[name])
    assert all((leaf >= 0).all() for leaf in fixed.state().values())


@pytest.mark.parametrize("name", NAMES)
def test_it_is_refused_where_blocks_have_no_linears_and_at_the_input_site(name):
    reason = RULES.get(name)().refuses(NoLinears(input_shape=(3,), classes=4))
    assert reason is not None
    assert "Linears" in reason
    with pytest.raises(InputError, match="site=output only"):
        tiny.resolved(f"{name}:site=input")
    with pytest.raises(InputError, match="scale"):
        tiny.resolved(f"{name}:scale=unit_error")


def drivers(resolved_runs, data):
    return [Fleet(resolved_runs, data, tiny.CPU), Single(resolved_runs[0], data, tiny.CPU)]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_kp_feedback_that_starts_equal_to_the_weights_stays_equal_and_trains_like_bp(dtype):
    resolved, other = (tiny.resolved("kp", seeds=seed, dtype=dtype, weight_decay=0.3, lr=0.02) for seed in (1, 2))
    data = resolved.source.load(None)
    bp = tiny.resolved("bp", dtype=dtype, weight_decay=0.3, lr=0.02)
    (expected,) = tiny.train(Single(bp, data, tiny.CPU), 2)
    for driver in drivers([resolved, other], data):
        snapshots = driver.snapshots()
        for index, shot in enumerate(snapshots):
            snapshots[index] = replace(shot, state=transposed_weight_state(resolved, shot.params, "kp")[0])
        driver.restore(snapshots)
        end = tiny.train(driver, 2)[0]
        assert not tiny.same_bits(end.params, resolved.params())
        assert tiny.same_bits(end.state, transposed_weight_state(resolved, end.params, "kp")[0])
        if dtype == "float64":
            assert tiny.distance(end.params, expected.params) < 1e-9


def test_the_gap_between_kp_feedback_and_weights_shrinks_by_the_decay_alone():
    resolved, other = (tiny.resolved("kp", seeds=seed, weight_decay=2.0, lr=0.05) for seed in (1, 2))
    data = resolved.source.load(None)
    steps = 2 * (resolved.source.train_size // resolved.config.batch)
    factor = math.prod(
        1 - resolved.config.lr * CosineSchedule().factor(done, steps, 1) * resolved.config.weight_decay
        for done in range(steps)
    )
    assert 0.4 < factor < 0.7
    first, truth = resolved.state(), transposed_weight_state(resolved, resolved.params(), "kp")[0]
    for driver in drivers([resolved, other], data):
        end = tiny.train(driver, 2)[0]
        now = transposed_weight_state(resolved, end.params, "kp")[0]
        for name in first:
            torch.testing.assert_close(
                end.state[name] - now[name], factor * (first[name] - truth[name]), rtol=1e-9, atol=1e-12
            )


def test_kp_feedback_of_frozen_blocks_does_not_move():
    frozen, free = (tiny.resolved(text, weight_decay=0.5, lr=0.1) for text in ("kp:shell=method", "kp"))
    data = frozen.source.load(None)
    in_fleet, moved = tiny.train(Fleet([frozen, free], data, tiny.CPU), 2)
    (alone,) = tiny.train(Single(frozen, data, tiny.CPU), 2)
    assert tiny.same_bits(alone.state, frozen.state())
    assert tiny.same_bits(in_fleet.state, frozen.state())
    assert not any(torch.equal(leaf, moved.state[name]) for name, leaf in frozen.state().items())


def test_follow_applies_decay_and_increment():
    draws = torch.Generator().manual_seed(0)
    feedback, before, increment = (torch.randn(4, 6, generator=draws, dtype=torch.float64) for _ in range(3))
    decay = torch.tensor(0.02, dtype=torch.float64)
    after = (1 - decay) * before + increment
    torch.testing.assert_close(follow(feedback, before, after, decay), (1 - decay) * feedback + increment)
    assert torch.equal(follow(feedback, before, before, decay), feedback)
    # A weight is frozen only as a whole: single entries may happen not to move.
    increment[1, 2] = decay * before[1, 2]
    after = (1 - decay) * before + increment
    after[1, 2] = before[1, 2]
    torch.testing.assert_close(follow(feedback, before, after, decay), (1 - decay) * feedback + increment)


def test_fresh_magnitudes_of_frsf_are_not_used_as_a_null():
    """They still have the signs of the weights, so they align as well as the stored ones and give no chance level."""
    resolved = tiny.resolved("frsf")
    subject = NetworkSubject(resolved.net, resolved.params(), resolved.rule, resolved.state())
    assert subject.fresh_state(0) is None
    assert any(sentence.startswith("fresh feedback: ") for sentence in subject.skipped)
    own = NetworkSubject(resolved.net, resolved.params(), tiny.resolved("kp").rule, tiny.resolved("kp").state())
    assert own.fresh_state(0) is not None
    assert own.skipped == ()

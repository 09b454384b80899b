"""Properties of every credit rule on every network where it is defined."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.func import grad

import tiny
from walkback.core.errors import InputError
from walkback.credit import RULES, local
from walkback.credit.rule import PER_SAMPLE, CreditRule, Credits
from walkback.credit.trace import Trace, trace
from walkback.data.feed import Feed
from walkback.measure.subject import NetworkSubject
from walkback.nets.network import Leaves
from walkback.training.resolved_run import ResolvedRun

PAIRS = pytest.mark.parametrize(("rule", "net"), tiny.pairs())
EXACT_RULES = [rule for rule in RULES.names() if set(RULES.get(rule)().labels(2)) == {"exact"}]
"""Rules whose credit is the gradient at every layer by construction."""


def first_batch(resolved: ResolvedRun) -> tuple[torch.Tensor, torch.Tensor]:
    feed = Feed(resolved.source.load(None), resolved.config.batch, resolved.augment, resolved.dtype, tiny.CPU)
    return feed.take({name: values[0] for name, values in feed.order(resolved.config.seed, 0).items()})


def bound(resolved: ResolvedRun) -> CreditRule:
    return resolved.rule.bind({k: torch.tensor(v, dtype=resolved.dtype) for k, v in resolved.rule.knobs().items()})


def noise_of(resolved: ResolvedRun, count: int) -> Leaves:
    """One step's noise for the first `count` samples."""
    return {n: leaf[:count] if n.startswith(PER_SAMPLE) else leaf for n, leaf in resolved.noise(0, 0).items()}


def make_trace(resolved: ResolvedRun, params: Leaves, state: Leaves, x: torch.Tensor, y: torch.Tensor) -> Trace:
    linears = resolved.rule.linears(resolved.net, state, noise_of(resolved, len(y)))
    return trace(resolved.net, params, x, y, linears, with_input=resolved.rule.through_blocks)


def credits_of(resolved: ResolvedRun, params: Leaves, state: Leaves, x: torch.Tensor, y: torch.Tensor) -> Credits:
    traced = make_trace(resolved, params, state, x, y)
    return bound(resolved).credit(resolved.net, params, state, traced, noise_of(resolved, len(y)))[0]


def forms(resolved: ResolvedRun) -> list[ResolvedRun]:
    """The run with its network as it is measured, and as a training step runs it where that differs."""
    training = resolved.net.in_training()
    return [resolved] if training == resolved.net else [resolved, replace(resolved, net=training)]


def perturbed(resolved: ResolvedRun) -> Leaves:
    """Random parameters without the special initial values (zero biases, unit norms, small W2)."""
    draws = torch.Generator().manual_seed(5)
    start = resolved.params()
    leaves = {n: v + 0.3 * torch.randn(v.shape, generator=draws, dtype=v.dtype) for n, v in start.items()}
    return leaves | resolved.net.statistics(leaves, first_batch(resolved)[0])


@PAIRS
def test_there_is_one_credit_for_each_state_with_its_shape(rule, net):
    resolved = tiny.resolved(rule, arch=tiny.arch(net))
    x, y = first_batch(resolved)
    credits = credits_of(resolved, resolved.params(), resolved.state(), x, y)
    assert [tuple(credit.shape) for credit in credits] == [(len(y), *resolved.net.state_shape)] * (
        resolved.net.depth + 1
    )
    assert all(credit.isfinite().all() for credit in credits)


@PAIRS
def test_credit_is_deterministic_and_does_not_modify_its_inputs(rule, net):
    resolved = tiny.resolved(rule, arch=tiny.arch(net))
    x, y = first_batch(resolved)
    params, state = perturbed(resolved), resolved.state()
    kept = [{n: v.clone() for n, v in leaves.items()} for leaves in (params, state, {"x": x, "y": y})]
    first = credits_of(resolved, params, state, x, y)
    second = credits_of(resolved, params, state, x, y)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    for before, after in zip(kept, (params, state, {"x": x, "y": y}), strict=True):
        assert tiny.same_bits(before, after)


@PAIRS
def test_a_samples_credit_does_not_depend_on_the_rest_of_its_batch(rule, net):
    resolved = tiny.resolved(rule, arch=tiny.arch(net))
    x, y = first_batch(resolved)
    params, state = perturbed(resolved), resolved.state()
    whole = credits_of(resolved, params, state, x, y)
    other = x.flip(0) * 3
    mixed = credits_of(resolved, params, state, torch.cat([x[:5], other[5:]]), y)
    alone = credits_of(resolved, params, state, x[:1], y[:1])
    # A credit by relaxation is a difference of states divided by beta, which multiplies rounding errors.
    close = {"rtol": 1e-8, "atol": 1e-11} if rule.startswith("ep") else {"rtol": 1e-12, "atol": 1e-14}
    for credit, in_mixed, single in zip(whole, mixed, alone, strict=True):
        torch.testing.assert_close(credit[:5], in_mixed[:5], **close)
        torch.testing.assert_close(credit[:1], single, **close)


@PAIRS
def test_the_state_is_determined_by_the_seed(rule, net):
    resolved = tiny.resolved(rule, arch=tiny.arch(net))
    other = tiny.resolved(rule, arch=tiny.arch(net), seeds=2)
    assert tiny.same_bits(resolved.state(), resolved.state())
    for name, leaf in resolved.state().items():
        if leaf.unique().numel() > 1:  # Biases may start at zero.
            assert not torch.equal(leaf, other.state()[name])


SCALED = [(rule, net) for rule, net in tiny.defined() if "b_scale" in RULES.get(rule)().knobs()]


@pytest.mark.parametrize(("rule", "net"), SCALED)
def test_b_scale_multiplies_the_feedback_and_changes_nothing_else_of_the_draw(rule, net):
    """Bit for bit if the factor is a power of two; the default 1 changes nothing."""
    drawn = tiny.resolved(rule, arch=tiny.arch(net), dtype="float32").state()
    assert tiny.same_bits(tiny.resolved(f"{rule}:b_scale=1", arch=tiny.arch(net), dtype="float32").state(), drawn)
    for factor in (0.0625, 8.0):
        scaled = tiny.resolved(f"{rule}:b_scale={factor}", arch=tiny.arch(net), dtype="float32").state()
        assert tiny.same_bits(scaled, {name: factor * leaf for name, leaf in drawn.items()})
    tenth = tiny.resolved(f"{rule}:b_scale=0.1", arch=tiny.arch(net), dtype="float32").state()
    for name, leaf in drawn.items():
        torch.testing.assert_close(tenth[name], 0.1 * leaf, rtol=1e-6, atol=0)


@pytest.mark.parametrize("rule", sorted({rule for rule, _ in SCALED}))
def test_models_with_different_b_scale_share_a_fleet(rule):
    arch = tiny.network_for(rule)
    assert tiny.resolved(rule, arch=arch).fleet_key() == tiny.resolved(f"{rule}:b_scale=0.1", arch=arch).fleet_key()
    with pytest.raises(InputError, match=r"b_scale is 0\.0.*more than 0"):
        tiny.resolved(f"{rule}:b_scale=0", arch=arch)


def test_rules_with_fixed_random_feedback_have_b_scale():
    assert {"dfa", "drtp", "fa", "frsf", "kp", "sdfa"} <= {rule for rule, _ in SCALED}


@PAIRS
def test_the_head_and_the_top_credit_are_exact(rule, net):
    """Head and terminal norm get the true mean loss's gradient; the trace's `top` is each sample's own gradient."""
    resolved = tiny.resolved(rule, arch=tiny.arch(net))
    x, y = first_batch(resolved)
    params = perturbed(resolved)
    traced = make_trace(resolved, params, resolved.state(), x, y)

    def mean_loss(leaves: Leaves) -> torch.Tensor:
        return tiny.sample_losses(resolved.net.forward(params | leaves, x), y).mean()

    truth = grad(mean_loss)({n: v for n, v in params.items() if n.startswith("head.")})
    found = {f"head.{n}": v for n, v in traced.head_gradient.items()}
    assert tiny.distance(found, truth) < 1e-10

    top = traced.states[-1].clone().requires_grad_()
    tiny.sample_losses(resolved.net.forward_from(resolved.net.depth, params, top), y).sum().backward()
    torch.testing.assert_close(traced.top, top.grad, rtol=1e-10, atol=1e-14)


EXACT_PAIRS = [(rule, tiny.arch(net)) for rule, net in tiny.defined() if rule in EXACT_RULES]
EXACT_PAIRS += [(rule, tiny.arch("resmlp", "terminal_norm=false")) for rule in EXACT_RULES]


@pytest.mark.parametrize(("rule", "arch"), EXACT_PAIRS)
def test_exact_rules_equal_autograd_through_the_local_loss(rule, arch):
    for resolved in forms(tiny.resolved(rule, arch=arch)):
        x, y = first_batch(resolved)
        params = perturbed(resolved)

        def mean_loss(leaves: Leaves, resolved: ResolvedRun = resolved, x=x, y=y) -> torch.Tensor:
            return tiny.sample_losses(resolved.net.forward(leaves, x), y).mean()

        truth = grad(mean_loss)(params)
        traced = make_trace(resolved, params, {}, x, y)
        credits = credits_of(resolved, params, {}, x, y)
        assert tiny.distance(local.gradients(traced, credits, "output", None, "sum"), truth) < 1e-10


@pytest.mark.parametrize(("rule", "arch"), EXACT_PAIRS)
def test_exact_rules_give_the_gradient_of_the_summed_loss_in_every_state(rule, arch):
    """Each sample's own gradient, plus its effect on the other losses where a training step couples the samples."""
    for resolved in forms(tiny.resolved(rule, arch=arch)):
        x, y = first_batch(resolved)
        params = perturbed(resolved)
        credits = credits_of(resolved, params, {}, x, y)
        traced = make_trace(resolved, params, {}, x, y)
        for layer, state in enumerate(traced.states):
            h = state.clone().requires_grad_()
            losses = tiny.sample_losses(resolved.net.forward_from(layer, params, h), y)
            losses.sum().backward()
            torch.testing.assert_close(credits[layer], h.grad, rtol=1e-10, atol=1e-13)


@PAIRS
def test_a_layer_is_labelled_exact_where_its_credit_is_the_gradient_and_nowhere_else(rule, net):
    resolved = tiny.resolved(rule, arch=tiny.arch(net))
    x, y = first_batch(resolved)
    params, state = perturbed(resolved), resolved.state()
    credits = credits_of(resolved, params, state, x, y)
    reference = NetworkSubject(resolved.net, params).run(x, y).reference
    labels = resolved.rule.labels(resolved.net.depth)
    assert len(labels) == resolved.net.depth + 1
    for label, credit, gradient in zip(labels, credits, reference, strict=True):
        assert torch.allclose(credit, gradient, rtol=1e-9, atol=1e-13) == (label == "exact")


@PAIRS
def test_local_gradients_are_those_of_the_local_loss(rule, net):
    """Against the formula written out with autograd, at both sites, with both penalty reductions.

    Per-Linear rules also transport credit between the Linears of a block, so the rule's own Linears are used.
    """
    for resolved in forms(tiny.resolved(rule, arch=tiny.arch(net))):
        check_local_gradients(resolved)


def check_local_gradients(resolved: ResolvedRun) -> None:
    x, y = first_batch(resolved)
    params, state = perturbed(resolved), resolved.state()
    credits = credits_of(resolved, params, state, x, y)
    traced = make_trace(resolved, params, state, x, y)
    linears = resolved.rule.linears(resolved.net, state, noise_of(resolved, len(y)))
    penalty = torch.tensor(0.7, dtype=resolved.dtype)
    features = math.prod(resolved.net.state_shape)
    for site in resolved.rule.sites:
        for reduction, divisor in (("sum", 1), ("mean", features)):
            found = local.gradients(traced, credits, site, penalty, reduction)

            def loss(leaves: Leaves, site: str = site, divisor: int = divisor) -> torch.Tensor:
                total = (resolved.net.stem(sub(leaves, "stem"), x) * credits[0]).sum()
                for index in range(resolved.net.depth):
                    f = resolved.net.branch(sub(leaves, f"blocks.{index}"), traced.states[index], linears[index])
                    total = total + (f * credits[index + (site == "output")]).sum() + 0.7 * (f**2).sum() / divisor
                return total / len(y)

            own = {n: v for n, v in params.items() if not n.startswith("head.")}
            truth = grad(loss)(own)
            assert tiny.distance({n: found[n] for n in truth}, truth) < 1e-10


def sub(leaves: Leaves, prefix: str) -> Leaves:
    return {n.removeprefix(prefix + "."): v for n, v in leaves.items() if n.startswith(prefix + ".")}


@pytest.mark.parametrize("rule", RULES.names())
def test_a_resolved_rule_is_reproduced_from_its_text_and_has_its_docstring_facts(rule):
    resolved = tiny.resolved(rule, arch=tiny.network_for(rule))
    assert tiny.resolved(str(resolved.method), arch=tiny.network_for(rule)) == resolved
    facts = {entry.name: entry.facts for entry in RULES.entries()}[rule]
    assert {"Citation", "Feedback", "State"} <= facts.keys()

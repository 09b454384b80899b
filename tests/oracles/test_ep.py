"""Equilibrium propagation against its definition: the energy written out, the limit in which it is backprop, large
states, and step sizes that are halved for single samples."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

import tiny
from walkback.core.errors import InputError
from walkback.credit import RULES
from walkback.credit.losses import sample_losses
from walkback.credit.rule import transport
from walkback.credit.rules import ep
from walkback.credit.trace import one_hot, trace
from walkback.nets.network import part, plain_linear

EP, SHORT = RULES.get("ep"), RULES.get("ep_short")


def perturbed(params, scale=0.3):
    draws = torch.Generator().manual_seed(5)
    return {n: v + scale * torch.randn(v.shape, generator=draws, dtype=v.dtype) for n, v in params.items()}


def case(arch=None, count=12, dtype="float64", **settings):
    resolved = tiny.resolved("bp", arch=arch or tiny.arch("resmlp"), dtype=dtype, **settings)
    data = resolved.source.load(None)
    return resolved.net, resolved.params(), data.train_x[:count].to(resolved.dtype), data.train_y[:count]


def trace_of(net, params, x, y):
    return trace(net, params, x, y, [plain_linear] * net.depth, with_input=True)


def credits_of(rule, net, params, x, y):
    traced = trace_of(net, params, x, y)
    return *rule.credit(net, params, {}, traced, {}), transport(traced)


def cosines(credits, truth):
    """[layers, samples], in float64 and without an epsilon."""
    pairs = [(a.double().flatten(1), g.double().flatten(1)) for a, g in zip(credits, truth, strict=True)]
    return torch.stack([(a * g).sum(-1) / a.norm(dim=-1) / g.norm(dim=-1) for a, g in pairs])


def ratios(credits, truth):
    pairs = zip(credits, truth, strict=True)
    return torch.stack([a.double().flatten(1).norm(dim=-1) / g.double().flatten(1).norm(dim=-1) for a, g in pairs])


def written_out(rule, net, params, x, y, *, halving=False):
    """The definition with autograd on the states: credits, and energies [steps, n] of +beta.

    Step halving only on request and for one sample. Accurate in float64 only: the errors are differences of whole
    states.
    """

    def energies(states, beta):
        target = net.stem(part(params, "stem"), x)
        total = beta * F.cross_entropy(net.head(part(params, "head"), states[-1]), y, reduction="none")
        for index, h in enumerate(states):
            total = total + 0.5 * (h - target).flatten(1).square().sum(-1)
            if index < net.depth:
                target = h + net.branch(part(params, f"blocks.{index}"), h)
        return total

    def slope(states, layer, beta):
        leaves = [h.detach().requires_grad_() for h in states]
        return torch.autograd.grad(energies(leaves, beta).sum(), leaves[layer])[0]

    def errors(states):
        above = [net.stem(part(params, "stem"), x)]
        above += [h + net.branch(part(params, f"blocks.{i}"), h) for i, h in enumerate(states[:-1])]
        return [h - f for h, f in zip(states, above, strict=True)]

    ends, history = [], []
    for beta in (rule.beta, -rule.beta):
        states = [net.stem(part(params, "stem"), x)]
        for index in range(net.depth):
            states.append(states[-1] + net.branch(part(params, f"blocks.{index}"), states[-1]))
        kept, lowest, eta = states, torch.inf, rule.eta
        for _ in range(rule.steps):
            energy = energies(states, beta)
            if beta > 0:
                history.append(energy)
            if halving and energy > lowest:
                states, eta = kept, eta / 2
                continue
            kept, lowest, states = states, energy, list(states)
            if rule.sweep == "simultaneous":
                slopes = [slope(states, layer, beta) for layer in range(net.depth + 1)]
                states = [h - eta * s for h, s in zip(states, slopes, strict=True)]
            else:
                for layer in reversed(range(net.depth + 1)):
                    states[layer] = states[layer] - eta * slope(states, layer, beta)
        ends.append(errors(kept if halving and energies(states, beta) > lowest else states))
    return [-(up - down) / (2 * rule.beta) for up, down in zip(*ends, strict=True)], torch.stack(history)


@pytest.mark.parametrize("rule", [EP(steps=6, eta=0.3), SHORT(steps=6), SHORT(steps=4, beta=0.2)])
@pytest.mark.parametrize("net_name", ["resmlp", "student_net"])
def test_the_credit_is_that_of_the_energy_written_out(rule, net_name):
    net, params, x, y = case(tiny.arch(net_name))
    params = perturbed(params, 0.1)
    credits, _, _ = credits_of(rule, net, params, x, y)
    expected, energies = written_out(rule, net, params, x, y)
    assert (energies.diff(dim=0) <= 0).all(), "this case must need no step halving"
    for found, wanted in zip(credits, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


def test_converged_with_small_beta_it_is_backprop():
    net, params, x, y = case("resmlp:d=8,depth=2", count=8)
    credits, logs, truth = credits_of(EP(beta=1e-3, steps=250), net, perturbed(params, 0.1), x, y)
    assert cosines(credits, truth).min() >= 0.999
    assert (ratios(credits, truth) - 1).abs().max() < 0.01
    assert logs["ep_residual"] < 1e-6
    assert logs["ep_ratio"].item() == pytest.approx(1, abs=0.01)
    assert logs["ep_zero"] == 0


def test_the_bias_of_a_converged_relaxation_is_of_order_beta_squared():
    net, params, x, y = case("resmlp:d=8,depth=2", count=8)
    params = perturbed(params, 0.1)
    errors = []
    for beta in (0.2, 0.1, 0.05):
        credits, logs, truth = credits_of(EP(beta=beta, steps=250), net, params, x, y)
        assert logs["ep_residual"] < 1e-6
        errors.append(torch.stack([(a - g).norm() / g.norm() for a, g in zip(credits, truth, strict=True)]))
    orders = torch.stack(errors).log2().diff(dim=0).neg()
    assert ((orders > 1.9) & (orders < 2.1)).all(), orders


def test_with_default_settings_it_is_close_to_backprop_at_initialisation():
    """Expected: cosine at least 0.98 (by construction), norm ratio 0.6 to 0.86."""
    net, params, x, y = case("resmlp:d=64", count=128, data="prototypes", batch=128, dtype="float32")
    credits, logs, truth = credits_of(EP(), net, params, x, y)
    assert cosines(credits, truth).mean(-1).min() >= 0.98
    means = torch.stack([a.norm(dim=-1).mean() / g.norm(dim=-1).mean() for a, g in zip(credits, truth, strict=True)])
    assert means.min() >= 0.6
    assert means.max() <= 0.86
    assert logs["ep_ratio"] == means[-1]
    assert EP().labels(net.depth) == ("asymptotic",) * (net.depth + 1)


def test_ep_short_keeps_the_direction_and_its_size_shrinks_towards_lower_layers():
    net, params, x, y = case("resmlp:d=64", count=128, data="prototypes", batch=128, dtype="float32")
    credits, logs, truth = credits_of(SHORT(), net, params, x, y)
    sizes = ratios(credits, truth).mean(-1)
    assert (sizes.diff() > 0).all()
    assert sizes[0] < 1e-4
    assert 0.2 < sizes[-1] < 0.5
    assert cosines(credits, truth).mean(-1).min() > 0.98
    assert logs["ep_residual"] > 0.5, "the log must show that it has not converged"


def stiff_and_soft():
    """Sample 0 is near the origin, where LayerNorm is steep; the others are not."""
    net, params, x, y = case(count=4)
    params = perturbed(params, 0.3)
    params["stem.bias"] = torch.zeros_like(params["stem.bias"])
    x = x / x.norm(dim=-1, keepdim=True) * torch.tensor([[0.02], [20.0], [20.0], [20.0]], dtype=x.dtype)
    return net, params, x, y


def test_the_step_is_halved_for_the_sample_whose_energy_rises_and_for_no_other():
    net, params, x, y = stiff_and_soft()
    rule = EP(steps=12)
    plain, energies = written_out(rule, net, params, x, y)
    rises = (energies.diff(dim=0) > 0).any(0)
    assert rises.tolist() == [True, False, False, False], "the planted case"
    credits, _, truth = credits_of(rule, net, params, x, y)
    for found, wanted in zip(credits, plain, strict=True):
        torch.testing.assert_close(found[1:], wanted[1:], rtol=1e-9, atol=1e-12)
        assert not torch.allclose(found[:1], wanted[:1], rtol=1e-2)
    kept, lost = (cosines(c, truth)[-1, 0] for c in (credits, plain))
    assert kept > 0.99, "undoing the steps that raised its energy must help this sample"
    assert lost < 0.5
    alone, _, _ = credits_of(rule, net, params, x[1:], y[1:])
    stiff, _, _ = credits_of(rule, net, params, x[:1], y[:1])
    for both, rest, first in zip(credits, alone, stiff, strict=True):
        torch.testing.assert_close(both[1:], rest, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(both[:1], first, rtol=1e-12, atol=1e-14)


def test_a_step_that_raised_the_energy_is_undone_and_the_next_is_half_as_long():
    net, params, x, y = stiff_and_soft()
    rule = EP(steps=12)
    expected, energies = written_out(rule, net, params, x[:1], y[:1], halving=True)
    assert (energies.diff(dim=0) > 0).any(), "the planted case"
    credits, _, _ = credits_of(rule, net, params, x[:1], y[:1])
    for found, wanted in zip(credits, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-12)


def test_an_energy_that_changes_by_rounding_errors_alone_halves_no_step():
    """Near the minimum the energy falls by less than float32 resolves; the relaxation must still converge."""
    net, params, x, y = case("resmlp:d=8,depth=2", count=8, dtype="float32")
    params = perturbed(params, 0.1)
    precise, rounded = (
        credits_of(EP(beta=0.01, steps=100, precision=precision), net, params, x, y)
        for precision in ("float64", "network")
    )
    assert precise[1]["ep_residual"] < 1e-4
    assert rounded[1]["ep_residual"] < 1e-4
    for found, wanted in zip(rounded[0], precise[0], strict=True):
        assert (found - wanted).norm() < 1e-4 * wanted.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_rise_of_a_few_roundings_is_none_and_one_of_thousands_is(dtype):
    before = torch.tensor([1.0, -1.0, 1e6, torch.inf], dtype=dtype)
    few, many = (before + count * torch.finfo(dtype).eps * before.abs() for count in (16, 4096))
    assert not ep._rose(before, before).any()
    assert not ep._rose(before, few).any()
    assert ep._rose(before[:3], many[:3]).all()
    assert not ep._rose(before[:3], before[:3] - 1).any()
    assert not ep._rose(before[3:], torch.ones(1, dtype=dtype)).any(), "the first energy is no rise"
    assert ep._rose(before, torch.full_like(before, torch.nan)).all()


def test_a_nan_sample_does_not_affect_the_others():
    net, params, x, y = stiff_and_soft()
    clean, _, _ = credits_of(EP(steps=6), net, params, x, y)
    x = x.clone()
    x[0] = torch.nan
    credits, _, _ = credits_of(EP(steps=6), net, params, x, y)
    for found, wanted in zip(credits, clean, strict=True):
        assert torch.equal(found[1:], wanted[1:])


def large_states():
    """A float32 network with |h| near 1e5 at every layer."""
    net, params, x, y = case("resmlp:d=32,w2_std=0.1", count=64, data="prototypes", batch=64, dtype="float32")
    params |= {n: 3e4 * v for n, v in params.items() if n.startswith("stem.")}
    sizes = [h.norm(dim=-1).mean().item() for h in trace_of(net, params, x, y).states]
    assert all(5e4 < size < 2e5 for size in sizes)
    return net, params, x, y


@pytest.mark.parametrize("precision", ["float64", "network"])
def test_credit_is_not_lost_in_rounding_for_states_near_1e5(precision):
    net, params, x, y = large_states()
    zeros, _ = written_out(EP(), net, params, x, y)
    assert not any(credit.any() for credit in zeros[:-1]), "without displacements float32 must lose all credit here"
    credits, logs, truth = credits_of(EP(precision=precision), net, params, x, y)
    assert logs["ep_zero"] == 0
    assert cosines(credits, truth).min() > 0.999
    assert 0.6 < logs["ep_ratio"] < 1


def test_confident_samples_keep_their_credit():
    net, params, x, y = case(dtype="float32")
    params = {n: 60 * v if n.startswith("head.out") else v for n, v in perturbed(params, 0.1).items()}
    y = net.forward(params, x).argmax(-1)
    confident = trace_of(net, params, x, y).losses < 1e-6
    assert confident.any()
    credits, _, truth = credits_of(EP(), net, params, x, y)
    assert cosines(credits, truth)[:, confident].min() > 0.98


def test_objection_if_most_samples_have_zero_credit():
    net, params, x, y = case("resmlp:d=64", count=32, data="prototypes", batch=32, dtype="float32")
    params = {n: 1e6 * v if n.endswith("w2.weight") else v for n, v in params.items()}
    _, logs, _ = credits_of(SHORT(), net, params, x, y)
    assert logs["ep_zero"] > 0.9, "so stiff that all steps are undone"
    reason = SHORT().objection({name: value.item() for name, value in logs.items()})
    assert reason is not None
    assert "exactly zero credit" in reason
    assert "more steps" in reason
    assert "precision=float64" in (EP(precision="network").objection({"ep_zero": 0.51}) or "")
    assert EP().objection({"ep_zero": 0.5}) is None


def test_unsupported_networks_and_invalid_settings_are_refused():
    net = case()[0]
    assert EP().refuses(net) is None
    assert SHORT().refuses(net) is None
    deep = replace(net, depth=6)
    assert EP().refuses(deep) is None
    assert "use steps=7" in (SHORT().refuses(deep) or "")
    assert "use steps=7" in (SHORT(steps=6).refuses(deep) or "")
    assert SHORT(steps=7).refuses(deep) is None
    assert EP(eta=1.0).eta == 1, "a full step is allowed"
    cnn = tiny.resolved("bp", arch=tiny.arch("small_cnn")).net
    assert "statistics of the batch" in (EP().refuses(cnn) or "")
    for bad in ("beta=0", "eta=0", "eta=1.5", "steps=0", "precision=float16", "site=input"):
        with pytest.raises(InputError):
            tiny.resolved(f"ep:{bad}")


def test_the_loss_keeps_its_relative_precision():
    logits = torch.tensor([[40.0, 0.0, -3.0], [1.0, 2.0, 3.0], [0.0, 500.0, 0.0]])
    target = one_hot(torch.tensor([0, 2, 0]), 3).float()
    found = sample_losses(logits, target)
    truth = F.cross_entropy(logits.double(), torch.tensor([0, 2, 0]), reduction="none")
    truth[0] = torch.log1p(torch.tensor(-40.0, dtype=torch.float64).exp() + torch.tensor(-43.0).double().exp())
    torch.testing.assert_close(found.double(), truth, rtol=1e-6, atol=0)
    assert F.cross_entropy(logits, torch.tensor([0, 2, 0]), reduction="none")[0] == 0

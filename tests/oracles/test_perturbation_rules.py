"""Node perturbation and forward gradient: single draws, averages over draws, and their noise."""

from __future__ import annotations

import pytest
import torch

import tiny
from walkback.core.errors import InputError
from walkback.credit import RULES
from walkback.credit.perturb import XI
from walkback.credit.rule import transport
from walkback.credit.trace import trace
from walkback.nets.network import plain_linear

NP, FG = RULES.get("node_perturbation"), RULES.get("forward_gradient")
NETS = pytest.mark.parametrize("net", ["resmlp", "student_net", "vit_mini"])


def case(arch, count=12, dtype="float64", **settings):
    resolved = tiny.resolved("bp", arch=arch, dtype=dtype, **settings)
    data = resolved.source.load(None)
    x = data.train_x[:count]
    x = (x.double() / 255 - 0.5 if x.dtype == torch.uint8 else x).to(resolved.dtype)
    draws = torch.Generator().manual_seed(5)
    params = {n: v + 0.1 * torch.randn(v.shape, generator=draws, dtype=v.dtype) for n, v in resolved.params().items()}
    return resolved.net, params, x, data.train_y[:count]


def estimates(rule, net, params, x, y, seed=0):
    """Credits, the gradient, and the directions [n, draws, *state] of each layer."""
    traced = trace(net, params, x, y, [plain_linear] * net.depth, with_input=True)
    noise = {n: v.to(x.dtype) for n, v in rule.draw(net, len(y), torch.Generator().manual_seed(seed)).items()}
    return rule.credit(net, params, {}, traced, noise)[0], transport(traced), noise[XI].unbind(2)


def along(gradient, xi):
    """xi <g, xi>, averaged over draws."""
    rates = (gradient[:, None] * xi).flatten(2).sum(-1)
    return (rates.reshape(*rates.shape, *(1,) * (xi.ndim - 2)) * xi).mean(1)


@NETS
@pytest.mark.parametrize("draws", [1, 3])
def test_forward_gradient_is_the_gradients_component_along_each_direction(net, draws):
    credits, truth, xis = estimates(FG(draws=draws), *case(tiny.arch(net)))
    for credit, gradient, xi in zip(credits, truth, xis, strict=True):
        assert xi.shape[1] == draws
        torch.testing.assert_close(credit, along(gradient, xi), rtol=1e-9, atol=1e-12)


@NETS
def test_node_perturbation_becomes_the_forward_gradient_as_its_step_goes_to_zero(net):
    made = case(tiny.arch(net))
    exact, _, _ = estimates(FG(draws=2), *made)
    gaps = []
    for sigma in (1e-2, 1e-3, 1e-4):
        credits, _, _ = estimates(NP(sigma=sigma, draws=2), *made)
        gaps.append(torch.stack([(a - b).norm() / b.norm() for a, b in zip(credits, exact, strict=True)]))
    orders = torch.stack(gaps).log10().diff(dim=0).neg()
    assert ((orders > 0.9) & (orders < 1.1)).all(), "a single draw's error is of first order"
    assert gaps[-1].max() < 1e-3


def test_the_first_order_error_is_odd_and_cancels_in_the_average():
    """Averaged over xi and -xi, the error of node perturbation is of second order; for one draw, of first order."""
    net, params, x, y = case(tiny.arch("resmlp"))
    traced = trace(net, params, x, y, [plain_linear] * net.depth, with_input=True)
    xi = NP().draw(net, len(y), torch.Generator().manual_seed(0))[XI].double()
    both = {XI: torch.cat([xi, -xi], 1)}
    exact, _ = FG(draws=2).credit(net, params, {}, traced, both)
    gaps = []
    for sigma in (1e-1, 1e-2):
        credits, _ = NP(sigma=sigma, draws=2).credit(net, params, {}, traced, both)
        gaps.append(torch.stack([(a - b).norm() / b.norm() for a, b in zip(credits, exact, strict=True)]))
    order = (gaps[0] / gaps[1]).log10()
    assert ((order > 1.8) & (order < 2.2)).all(), order


@pytest.mark.parametrize("rule", [FG, lambda draws: NP(draws=draws, sigma=1e-4)])
@pytest.mark.parametrize("draws", [16, 64, 256])
def test_the_average_over_draws_is_unbiased_with_the_predicted_noise(rule, draws):
    """Along g it has length 1 on average, its square is 1 + (d + 1)/N, and its cosine 1 / sqrt(1 + (d + 1)/N)."""
    net, params, x, y = case("resmlp:d=32,depth=2", count=96)
    d = 32
    credits, truth, _ = estimates(rule(draws=draws), net, params, x, y)
    a, g = torch.cat(credits), torch.cat(truth)
    scale = g.norm(dim=-1)
    share, square = (a * g).sum(-1) / scale**2, (a.norm(dim=-1) / scale) ** 2
    cosine = (a * g).sum(-1) / a.norm(dim=-1) / scale

    def error(values):
        return 4 * values.std() / len(values) ** 0.5

    assert (share.mean() - 1).abs() < error(share)
    assert (square.mean() - (1 + (d + 1) / draws)).abs() < error(square)
    # The law is a ratio of averages; the average of ratios differs from it by a term of order 1/N and 1/d.
    law = (1 + (d + 1) / draws) ** -0.5
    assert (cosine.mean() - law).abs() < error(cosine) + law / min(d, draws) / 2
    # The component orthogonal to the gradient averages out over samples: it has no preferred direction.
    rest = (a - share[:, None] * g) / scale[:, None]
    assert rest.mean(0).norm() < 4 * (rest.norm(dim=-1).square().mean() / len(rest)) ** 0.5


def test_the_perturbation_is_not_lost_in_rounding_of_large_states():
    """With |h| near 1e5 in float32 the relative step still measures the slope; an absolute one measures nothing."""
    net, params, x, y = case("resmlp:d=32", count=64, dtype="float32", data="prototypes", batch=64)
    params |= {n: 3e4 * v for n, v in params.items() if n.startswith("stem.")}
    traced = trace(net, params, x, y, [plain_linear] * net.depth, with_input=True)
    assert all(3e4 < h.norm(dim=-1).mean() < 3e5 for h in traced.states)
    exact, _, _ = estimates(FG(), net, params, x, y)
    credits, _, _ = estimates(NP(), net, params, x, y)
    for credit, wanted in zip(credits, exact, strict=True):
        assert (credit - wanted).norm() / wanted.norm() < 0.1
    size = traced.states[0].square().mean().sqrt().item()
    lost, _, _ = estimates(NP(sigma=1e-3 / size), net, params, x, y)
    assert all((a - b).norm() / b.norm() > 1 for a, b in zip(lost, exact, strict=True))


def test_confident_samples_keep_their_credit_in_float32():
    net, params, x, y = case(tiny.arch("resmlp"), dtype="float32")
    params = {n: 60 * v if n.startswith("head.out") else v for n, v in params.items()}
    y = net.forward(params, x).argmax(-1)
    confident = trace(net, params, x, y, [plain_linear] * net.depth, with_input=True).losses < 1e-6
    assert confident.any()
    credits, _, _ = estimates(NP(sigma=1e-3), net, params, x, y)
    exact, _, _ = estimates(FG(), net, params, x, y)
    for credit, wanted in zip(credits, exact, strict=True):
        gaps = (credit - wanted).norm(dim=-1) / wanted.norm(dim=-1)
        assert gaps[confident].median() < 0.05


def test_a_state_of_zeros_is_perturbed_too():
    net, params, x, y = case(tiny.arch("resmlp"))
    params |= {n: torch.zeros_like(v) for n, v in params.items() if n.startswith("stem.")}
    credits, _, _ = estimates(NP(sigma=1e-6), net, params, x, y)
    assert all(credit.isfinite().all() and (credit != 0).any() for credit in credits)


@pytest.mark.parametrize("name", ["node_perturbation", "forward_gradient"])
def test_unsupported_networks_and_invalid_settings_are_refused(name):
    with pytest.raises(InputError, match="statistics of the batch"):
        tiny.resolved(name, arch=tiny.arch("small_cnn"))
    for bad in ("draws=0", *(["sigma=0", "sigma=-1"] if name == "node_perturbation" else [])):
        with pytest.raises(InputError, match=name):
            tiny.resolved(f"{name}:{bad}")

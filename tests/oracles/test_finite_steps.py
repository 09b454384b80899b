"""Finite steps: correlations and nudges with known values, their controls, and their summary statistics."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny
import walkback
from walkback.auditing.measure_run import RunMeasurer
from walkback.core.errors import InputError
from walkback.core.measurements import Measurements
from walkback.credit import RULES
from walkback.judge.finite_steps import functional_deep, functional_layers, kendall_tau, random_std, train_loss_change
from walkback.measure import finite_steps
from walkback.measure.finite_steps import correlations, differences, measure_functional, nudged
from walkback.measure.inputs import Groups, regroup
from walkback.measure.subject import NetworkSubject
from walkback.runs import store
from walkback.training.single import Single

DATA = "prototypes:train=256,test=256,dim=8,prototypes=16,labels=4"
D = 32


@cache
def trained(method="bp", net=f"resmlp:d={D},depth=2"):
    """A small network after a few epochs, with its rule, and its test samples in groups."""
    resolved = tiny.resolved(method, arch=net, data=DATA, dtype="float32", batch=32, lr=0.01)
    data = resolved.source.load(None)
    (snapshot,) = tiny.train(Single(resolved, data, tiny.CPU), 4)
    subject = NetworkSubject(resolved.net, snapshot.params, resolved.rule, snapshot.state)
    return resolved, subject, regroup([(data.test_x, data.test_y)])


def credits_at_cosine(frozen_pass, cos, seed=0):
    """Credits at exactly this cosine with the gradient, of any length."""
    draws = torch.Generator().manual_seed(seed)
    credits = []
    for g in frozen_pass.reference:
        along = F.normalize(g.flatten(1), dim=1)
        other = torch.randn(along.shape, generator=draws, dtype=g.dtype)
        other = F.normalize(other - (other * along).sum(1, keepdim=True) * along, dim=1)
        lengths = torch.rand(len(g), 1, generator=draws, dtype=g.dtype) + 0.1
        credits.append((lengths * (cos * along + math.sqrt(1 - cos**2) * other)).reshape(g.shape))
    return credits


def quadratic_losses(features=6, count=5, seed=0):
    """Losses that are quadratic in the state: w'h + h'Ah/2, with their gradient at h."""
    draws = torch.Generator().manual_seed(seed)
    h, w = torch.randn(2, count, features, generator=draws, dtype=torch.float64)
    root = torch.randn(features, features, generator=draws, dtype=torch.float64)
    curve = root @ root.T
    gradient = w + h @ curve

    def losses(at):
        return (at * w[:, None]).sum(-1) + ((at @ curve) * at).sum(-1) / 2

    v = F.normalize(torch.randn(count, 40, features, generator=draws, dtype=torch.float64), dim=-1)
    return losses, h, v, gradient


def test_on_a_quadratic_loss_the_central_difference_is_the_slope_at_any_step():
    losses, h, v, gradient = quadratic_losses()
    slopes = (v @ gradient[:, :, None])[..., 0]
    for step in (1e-3, 1.0):
        central, one_sided = differences(losses, h, v, step)
        torch.testing.assert_close(central, slopes, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(
            correlations(central, slopes), torch.ones(5, dtype=torch.float64), rtol=0, atol=1e-12
        )
    # At a step as long as the state, the one-sided difference is half curvature.
    assert correlations(one_sided, slopes).max() < 0.99


def test_the_one_sided_difference_is_the_forward_one():
    losses, h, v, gradient = quadratic_losses()
    slopes, curvatures = (v @ gradient[:, :, None])[..., 0], losses(v) + losses(-v)
    for step in (1e-3, 1.0):
        _, one_sided = differences(losses, h, v, step)
        # By Taylor's theorem: w'v + v'Ah + delta v'Av / 2, with a plus sign only for a step forward.
        expected = slopes + step * h.norm(dim=1, keepdim=True) * curvatures / 2
        torch.testing.assert_close(one_sided, expected, rtol=1e-9, atol=1e-9)


def test_a_nudge_on_a_quadratic_loss_changes_it_as_computed_by_hand():
    losses, h, _, gradient = quadratic_losses()
    along = 3 * gradient.flip(0)
    move = 0.01 * h.norm(dim=1, keepdim=True) * F.normalize(along, dim=1)
    expected = (losses((h - move)[:, None]) - losses(h[:, None]))[:, 0]
    torch.testing.assert_close(nudged(losses, h, along, 0.01), expected, rtol=1e-10, atol=1e-12)


def test_the_central_difference_errs_by_the_square_of_the_step_and_the_one_sided_by_the_step():
    _, subject, groups = trained()
    subject64 = subject.double()
    frozen_pass = subject64.run(*groups[0])
    h, gradient = frozen_pass.states[1], frozen_pass.reference[1]
    v = F.normalize(torch.randn(len(h), 16, D, dtype=h.dtype, generator=torch.Generator().manual_seed(0)), dim=-1)
    losses = finite_steps._losses(subject64, 1, h, frozen_pass.y, "all")
    slopes = (v @ gradient[:, :, None])[..., 0]
    with torch.no_grad():
        rates = [differences(losses, h, v, step) for step in (1e-1, 1e-2, 1e-3)]
    errors = [[(rate - slopes).norm().item() for rate in both] for both in rates]
    orders = -np.diff(np.log10(errors), axis=0)
    np.testing.assert_allclose(orders[1], [2, 1], atol=0.05)


def test_controls_on_a_trained_network():
    _, subject, groups = trained()
    measured = measure_functional(subject, groups)
    layers = functional_layers(measured)
    assert len(layers) == 3
    for layer in layers:
        assert layer.rho_gradient.mean.known > 0.997
        assert layer.rho_gradient.n == 256
        assert abs(layer.rho_random.mean.known) < 4 * layer.random_std.known
    # Each sample has its own random vector; the spread over samples is random_std.
    spread = measured.arrays["rho_random"].var()
    assert spread == pytest.approx(random_std(1, 64, D) ** 2, rel=4 * math.sqrt(2 / measured.arrays["rho_random"].size))


@pytest.mark.parametrize(("features", "directions"), [(16, 64), (256, 64), (64, 16), (1024, 8)])
def test_the_width_of_the_random_control_is_not_that_of_the_directions_alone(features, directions):
    draws = torch.Generator().manual_seed(0)
    count = 3000
    found = []
    for _ in range(10):
        a, g = torch.randn(2, count // 10, features, generator=draws)
        v = F.normalize(torch.randn(count // 10, directions, features, generator=draws), dim=-1)
        found.append(correlations((v @ g[:, :, None])[..., 0].double(), (v @ a[:, :, None])[..., 0].double()))
    spread = torch.cat(found).var().item()
    assert spread == pytest.approx(random_std(1, directions, features) ** 2, rel=4 * math.sqrt(2 / count))
    assert random_std(count, directions, features) == pytest.approx(random_std(1, directions, features) / count**0.5)


@pytest.mark.parametrize("cos", [-0.6, 0.0, 0.3, 0.9])
def test_to_first_order_correlation_and_efficiency_are_the_cosine(cos):
    _, subject, groups = trained()
    measured = measure_functional(
        subject, groups, credit=lambda frozen_pass: credits_at_cosine(frozen_pass, cos), nudge=1e-6
    )
    np.testing.assert_allclose(measured.arrays["credit_cos"], cos, atol=1e-9)
    for layer in functional_layers(measured):
        # A correlation of K pairs has sd (1 - c^2)/sqrt(K - 1) and is short by c (1 - c^2)/(2K).
        sd = (1 - cos**2) / math.sqrt(63 * 256)
        assert layer.rho.mean.known == pytest.approx(cos, abs=4 * sd + abs(cos) * (1 - cos**2) / 128)
        assert layer.efficiency.mean.known == pytest.approx(cos, abs=1e-4)


def test_a_step_against_the_gradient_lowers_the_loss_and_one_with_it_raises_it():
    _, subject, groups = trained()
    measured = measure_functional(subject, groups, credit=lambda frozen_pass: [-g for g in frozen_pass.reference])
    assert (measured.arrays["nudge_gradient"].mean(1) < 0).all()
    assert (measured.arrays["nudge_credit"].mean(1) > 0).all()
    assert (measured.arrays["rho"] < -0.99).all()


def test_the_gradient_as_credit_has_an_efficiency_of_exactly_one():
    _, subject, groups = trained()
    measured = measure_functional(subject, groups, credit=lambda frozen_pass: frozen_pass.reference)
    for layer in (*functional_layers(measured), functional_deep(measured)):
        assert layer.efficiency.mean.known == 1
        assert layer.efficiency.interval == (1, 1)
    np.testing.assert_array_equal(measured.arrays["rho"], measured.arrays["rho_gradient"])


@given(st.integers(-250, 250))
@settings(max_examples=6, deadline=None)
def test_the_length_of_the_credit_does_not_matter(power):
    _, subject, groups = trained()
    few = groups[:1]
    # Powers of two, so that scaling rounds nothing.
    scale = 2.0**power
    plain = measure_functional(
        subject, few, credit=lambda frozen_pass: credits_at_cosine(frozen_pass, 0.4), directions=8
    )
    other = measure_functional(
        subject, few, credit=lambda frozen_pass: [a * scale for a in credits_at_cosine(frozen_pass, 0.4)], directions=8
    )
    for name in ("rho", "rho_one_sided", "nudge_credit", "rho_pooled"):
        np.testing.assert_allclose(other.arrays[name], plain.arrays[name], rtol=1e-9, atol=1e-13, err_msg=name)

    def uneven(frozen_pass):
        return [a * torch.logspace(-3, 3, len(a), dtype=a.dtype)[:, None] for a in credits_at_cosine(frozen_pass, 0.4)]

    # A sample's own values do not depend on its length either; the pooled correlation weights samples by it.
    uneven_lengths = measure_functional(subject, few, credit=uneven, directions=8)
    for name in ("rho", "rho_one_sided", "nudge_credit"):
        np.testing.assert_allclose(uneven_lengths.arrays[name], plain.arrays[name], rtol=1e-9, atol=1e-13, err_msg=name)
    assert np.abs(uneven_lengths.arrays["rho_pooled"] - plain.arrays["rho_pooled"]).max() > 0.01


def test_samples_do_not_depend_on_batch_sizes(monkeypatch):
    _, subject, groups = trained()
    x, y = torch.cat([x for x, _ in groups]), torch.cat([y for _, y in groups])
    whole = measure_functional(subject, groups, directions=8)
    monkeypatch.setitem(finite_steps.CHUNK, "cpu", 2 * 8 * D * 7)
    cuts = [(x[a:b], y[a:b]) for a, b in itertools.pairwise([0, 3, 100, 101, 256])]
    again = measure_functional(subject, Groups(cuts), directions=8)
    first = measure_functional(subject, groups[:1], directions=8)
    for name in ("rho", "rho_one_sided", "rho_gradient", "rho_random", "nudge_credit", "nudge_gradient", "loss"):
        np.testing.assert_allclose(again.arrays[name], whole.arrays[name], rtol=1e-7, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(
            first.arrays[name], whole.arrays[name][..., :128], rtol=1e-7, atol=1e-12, err_msg=name
        )
    np.testing.assert_allclose(again.arrays["rho_pooled"], whole.arrays["rho_pooled"], rtol=1e-7)


def test_directions_depend_on_seed_layer_and_sample():
    like = torch.empty(0, 7, dtype=torch.float64)
    drawn = finite_steps._draw(0, 1, [4, 5], 3, like)
    torch.testing.assert_close(drawn.norm(dim=-1), torch.ones(2, 4, dtype=torch.float64))
    assert torch.equal(finite_steps._draw(0, 1, [5], 3, like)[0], drawn[1])
    for other in (finite_steps._draw(1, 1, [4, 5], 3, like), finite_steps._draw(0, 2, [4, 5], 3, like), drawn.flip(0)):
        assert (other - drawn).abs().amax(-1).min() > 0.01


def test_the_pooled_correlation_is_that_of_all_pairs_at_once():
    losses, h, v, gradient = quadratic_losses()
    central, _ = differences(losses, h, v, 1e-3)
    credit = gradient.roll(1, 1)
    found = finite_steps._layer_arrays(
        finite_steps._measure_layer(losses, h, gradient, credit, torch.cat([v, v[:, :1]], 1), 1e-3, 0.01)
    )
    expected = np.corrcoef(central.flatten(), (v @ credit[:, :, None])[..., 0].flatten())[0, 1]
    assert float(found["rho_pooled"]) == pytest.approx(expected, abs=1e-12)


def test_samples_without_a_credit_are_excluded_and_counted():
    _, subject, groups = trained()

    def credits_with_gaps(frozen_pass):
        credits = credits_at_cosine(frozen_pass, 0.5)
        credits[1][3] = 0
        credits[1][4] = torch.nan
        credits[2] = torch.zeros_like(credits[2])
        return credits

    measured = measure_functional(subject, groups, credit=credits_with_gaps, directions=8)
    _, middle, top = functional_layers(measured)
    per_group = 2
    assert (middle.rho.n, middle.rho.excluded) == (256 - 2 * per_group, 2 * per_group)
    assert (middle.efficiency.n, middle.efficiency.excluded) == (256 - 2 * per_group, 2 * per_group)
    assert middle.rho_pooled.ok
    assert middle.rho_gradient.excluded == 0
    assert top.rho.mean.status == top.efficiency.mean.status == top.rho_pooled.status == "invalid"
    assert functional_deep(measured).rho.mean.status == "invalid"


def test_a_state_of_length_zero_and_a_flat_loss_are_not_measured():
    losses, h, v, gradient = quadratic_losses()
    h[0] = 0
    central, one_sided = differences(losses, h, v, 1e-3)
    assert central[0].isnan().all()
    assert one_sided[0].isnan().all()
    assert nudged(losses, h, gradient, 0.01).isnan().tolist() == [True, False, False, False, False]
    flat, _ = differences(lambda at: torch.ones(at.shape[:2], dtype=at.dtype), h, v, 1e-3)
    assert correlations(flat, central).isnan().all()


def test_differences_of_confident_samples_are_not_rounded_away():
    """Where logsumexp - logit rounds the loss to exactly 0, its change is still computed."""
    resolved, subject, groups = trained()
    params = dict(subject._params)
    for leaf in ("head.out.weight", "head.out.bias"):
        params[leaf] = params[leaf] * 12
    confident_subject = NetworkSubject(resolved.net, params, resolved.rule, {})
    measured = measure_functional(confident_subject, groups)
    plain = torch.cat([confident_subject.double().run(*group).losses for group in groups]).numpy()
    confident = plain == 0
    assert confident.sum() > 20
    assert (measured.arrays["rho_gradient"][:, confident] > 0.9).all()
    assert (measured.arrays["nudge_gradient"][:, confident] < 0).all()


def test_with_a_cls_token_only_that_token_is_moved():
    resolved = tiny.resolved("dfa", arch=tiny.arch("vit_mini"))
    data = resolved.source.load(None)
    x, y = data.train_x.double() / 255 - 0.5, data.train_y
    subject = NetworkSubject(resolved.net, resolved.params(), resolved.rule, resolved.state())
    measured = measure_functional(subject, Groups([(x, y)]), directions=8)
    assert measured.facts["pool"] == "cls"
    assert measured.facts["features"] == 8
    frozen_pass = subject.double().run(x, y)
    state, gradient = frozen_pass.states[1], frozen_pass.reference[1]
    moved = state.clone()
    moved[:, 0] -= 0.01 * state[:, 0].norm(dim=1, keepdim=True) * F.normalize(gradient[:, 0], dim=1)
    with torch.no_grad():
        logits = resolved.net.forward_from(1, resolved.params(), moved)
    expected = F.cross_entropy(logits, y, reduction="none") - frozen_pass.losses
    np.testing.assert_allclose(measured.arrays["nudge_gradient"][1], expected, rtol=1e-6, atol=1e-12)
    layers = functional_layers(measured)
    assert layers[0].rho.mean.status == layers[0].efficiency.mean.status == "invalid"
    assert layers[1].rho_gradient.mean.known > 0.99


def test_maps_are_moved_as_a_whole():
    resolved = tiny.resolved("dfa", arch=tiny.arch("small_cnn"))
    data = resolved.source.load(None)
    x, y = data.train_x.double() / 255 - 0.5, data.train_y
    subject = NetworkSubject(resolved.net, resolved.params(), resolved.rule, resolved.state())
    measured = measure_functional(subject, Groups([(x, y)]), directions=8)
    assert measured.facts["features"] == math.prod(resolved.net.state_shape)
    assert measured.arrays["rho"].shape == (3, len(y))
    assert measured.arrays["rho_gradient"].mean() > 0.99


def test_without_a_rule_the_gradient_and_the_controls_are_still_measured():
    resolved, subject, groups = trained()
    measured = measure_functional(NetworkSubject(resolved.net, subject._params), groups, directions=8)
    deep = functional_deep(measured)
    assert deep.rho_gradient.mean.known > 0.99
    assert deep.nudge_gradient.mean.known < 0
    assert {deep.rho.mean.status, deep.rho_pooled.status, deep.efficiency.mean.status} == {"missing"}


def test_too_few_directions_are_refused():
    _, subject, groups = trained()
    with pytest.raises(InputError, match="2 directions were asked for"):
        measure_functional(subject, groups, directions=2)


def test_deep_means_leave_out_what_is_exact():
    resolved, subject, groups = trained("fa")
    labels = resolved.rule.labels(2)
    assert labels == ("none", "none", "exact")
    measured = measure_functional(subject, groups, labels=labels, site="output", directions=8)
    layers, deep = functional_layers(measured), functional_deep(measured)
    assert deep == layers[1]
    assert layers[2].efficiency.mean.known == pytest.approx(1, abs=1e-9)
    both = functional_deep(replace(measured, facts={**measured.facts, "labels": None}))
    for name in ("rho", "nudge_credit", "efficiency"):
        each = [getattr(layer, name).mean.known for layer in layers[1:]]
        assert getattr(both, name).mean.known == pytest.approx(np.mean(each), abs=1e-12)
    assert both.random_std.known == pytest.approx(layers[1].random_std.known / math.sqrt(2))
    facts = {**measured.facts, "site": "input"}
    assert functional_deep(replace(measured, facts={**facts, "labels": ("none", "exact", "exact")})) == layers[0]
    assert functional_deep(replace(measured, facts={**facts, "labels": ("exact",) * 3})).rho.mean.status == "missing"


def test_intervals_are_those_of_samples_and_of_a_ratio():
    draws = np.random.default_rng(0)
    gradient = -1 - 0.3 * draws.standard_normal((1, 400))
    credit = 0.3 * gradient + 0.2 * draws.standard_normal((1, 400))
    facts = {
        "layers": 1,
        "samples": 400,
        "groups": 3,
        "labels": None,
        "site": "output",
        "directions": 64,
        "features": 8,
    }
    (layer,) = functional_layers(Measurements({"nudge_credit": credit, "nudge_gradient": gradient}, facts))
    low, high = layer.nudge_credit.interval
    assert (high - low) / 2 == pytest.approx(1.9659 * credit.std(ddof=1) / 20, rel=1e-4)
    assert layer.efficiency.mean.known == pytest.approx(credit.mean() / gradient.mean(), rel=1e-12)
    ratios = [np.delete(credit, i).mean() / np.delete(gradient, i).mean() for i in range(400)]
    jackknife = math.sqrt(399 / 400 * np.sum((ratios - np.mean(ratios)) ** 2))
    low, high = layer.efficiency.interval
    assert (high - low) / 2 == pytest.approx(1.9659 * jackknife, rel=0.01)
    (other,) = functional_layers(Measurements({"nudge_credit": credit, "nudge_gradient": -gradient}, facts))
    assert "does not lower the loss" in other.efficiency.mean.reason


def test_the_controls_limits_are_inclusive_and_a_gradient_without_effect_has_no_efficiency():
    facts = {"layers": 1, "samples": 2, "groups": 0, "labels": None, "site": "output", "directions": 64, "features": 8}
    for control, caveat in ((0.99, False), (0.98, True)):
        arrays = {name: np.full((1, 2), control) for name in ("rho", "rho_gradient")}
        (layer,) = functional_layers(Measurements(arrays, facts))
        assert bool(layer.rho.mean.reason) == caveat
    arrays = {"nudge_credit": -np.ones((1, 2)), "nudge_gradient": np.zeros((1, 2))}
    (layer,) = functional_layers(Measurements(arrays, facts))
    assert layer.efficiency.mean.status == "invalid"


def test_a_step_that_is_not_small_gives_a_caveat():
    _, subject, groups = trained()
    measured = measure_functional(subject, groups, step=2.0, directions=8)
    deep = functional_deep(measured)
    assert deep.rho_gradient.mean.known < 0.99
    assert "the step is not small here" in deep.rho.mean.reason


def test_train_loss_change_is_the_last_epochs_loss_less_the_firsts():
    rows = [{"epoch": 1, "loss": 2.3}, {"epoch": 2, "loss": 1.0}, {"epoch": 3, "loss": 0.8}]
    assert train_loss_change(rows).known == pytest.approx(-1.5)
    assert train_loss_change(rows[::-1]).known == pytest.approx(-1.5)
    assert train_loss_change(rows[:1]).status == "missing"
    assert train_loss_change([*rows, {"epoch": 4, "loss": None}]).status == "invalid"


def test_kendalls_tau_has_its_known_values():
    assert kendall_tau([1, 2, 3, 4], [10, 20, 30, 40]).known == 1
    assert kendall_tau([1, 2, 3, 4], [4, 3, 2, 1]).known == -1
    assert kendall_tau([1, 2, 3, 4, 5], [3, 4, 1, 2, 5]).known == pytest.approx(0.2)
    # With ties on both sides: 2 pairs agree, 6 do not, 8 are untied on the one side and 9 on the other.
    assert kendall_tau([12, 2, 1, 12, 2], [1, 4, 7, 1, 0]).known == pytest.approx(-4 / math.sqrt(8 * 9))
    assert kendall_tau([1, 1], [1, 2]).status == "invalid"
    assert kendall_tau([1, math.nan], [1, 2]).status == "invalid"
    assert kendall_tau([1], [1]).status == "missing"
    with pytest.raises(InputError, match="1 and 2 entries"):
        kendall_tau([1], [1, 2])


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(-1e300, 1e300)), min_size=2, max_size=9))
def test_kendalls_tau_is_the_count_of_pairs(pairs):
    agree = differ = tied_left = tied_right = 0
    for (a, b), (c, d) in itertools.combinations(pairs, 2):
        tied_left += a == c
        tied_right += b == d
        if a != c and b != d:
            agree += (a < c) == (b < d)
            differ += (a < c) != (b < d)
    total = len(pairs) * (len(pairs) - 1) // 2
    left, right = zip(*pairs, strict=True)
    found = kendall_tau(left, right)
    if tied_left == total or tied_right == total:
        assert found.status == "invalid"
    else:
        expected = (agree - differ) / math.sqrt((total - tied_left) * (total - tied_right))
        assert found.known == pytest.approx(expected, abs=1e-12)
        assert kendall_tau(right, left).known == pytest.approx(expected, abs=1e-12)
        assert kendall_tau([-a for a in left], right).known == pytest.approx(-expected, abs=1e-12)


def test_stored_runs_are_measured_and_saved(tmp_path):
    (result,) = walkback.train(["dfa"], arch="resmlp:d=8,depth=2", data=DATA, seeds=[1], epochs=2, out=tmp_path)
    run = store.open_run(tmp_path / result.run)
    measurer = RunMeasurer(None, tiny.CPU)
    resolved = measurer.resolved(run)
    measured = measurer.measure_functional(run, resolved)
    assert measured.arrays["rho"].shape == (3, 256)
    assert measured.facts["labels"] == list(RULES.get("dfa")().labels(2))
    assert measured.facts["site"] == resolved.shared_options.site
    measured.save(tmp_path / "functional.npz")
    again = Measurements.load(tmp_path / "functional.npz")
    assert functional_deep(again) == functional_deep(measured)
    np.testing.assert_array_equal(measurer.measure_functional(run, resolved).arrays["rho"], measured.arrays["rho"])
    assert not np.array_equal(measurer.measure_functional(run, resolved, seed=1).arrays["rho"], measured.arrays["rho"])
    # The credit is the one whose cosine is in the run's other measurements.
    cosines = measurer.measure(run, resolved).arrays["credit_cos"]
    np.testing.assert_allclose(measured.arrays["credit_cos"], cosines, atol=1e-9)
    assert train_loss_change(run.log()).ok

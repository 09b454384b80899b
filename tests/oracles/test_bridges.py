"""The bridge rules: equal to backprop with the rest of the network as their map; what they learn; scale invariance."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import grad, grad_and_value

import tiny
import walkback as wb
from walkback.core.errors import InputError
from walkback.credit import RULES, bridge
from walkback.credit.rule import transport
from walkback.credit.rules import credit_bridge, state_bridge
from walkback.credit.trace import trace
from walkback.measure.subject import NetworkSubject
from walkback.nets.network import part, plain_linear
from walkback.training.fleet import Fleet
from walkback.training.optimisers import LeafOptimiser
from walkback.training.single import Single

BRIDGES = pytest.mark.parametrize("name", ["state_bridge", "credit_bridge"])
NETS = pytest.mark.parametrize(
    "arch", [tiny.arch("resmlp"), tiny.arch("resmlp", "terminal_norm=false"), tiny.arch("student_net")]
)


def case(method, arch=None, samples=48, dtype="float64", stem=1.0, head=1.0):
    """A rule with fresh state and a trace of its network; `stem` and `head` multiply those weights."""
    resolved = tiny.resolved(method, arch=arch or tiny.arch("resmlp"), dtype=dtype)
    draws = torch.Generator().manual_seed(5)
    params = {n: v + 0.3 * torch.randn(v.shape, generator=draws).to(v.dtype) for n, v in resolved.params().items()}
    params = {n: v * {"stem": stem, "head": head}.get(n.partition(".")[0], 1.0) for n, v in params.items()}
    data = resolved.source.load(None)
    x, y = data.train_x[:samples].to(resolved.dtype), data.train_y[:samples]
    traced = trace(resolved.net, params, x, y, [plain_linear] * resolved.net.depth, with_input=True)
    return resolved, params, resolved.state(), traced


def rest_of(net, params, layer, h):
    for block in range(layer, net.depth):
        h = h + net.branch(part(params, f"blocks.{block}"), h)
    return h


def own_gradients(resolved, params, state, traced):
    def loss(leaves):
        return resolved.rule.own_loss(resolved.net, params, leaves, traced, {})

    gradients, (value, logs) = grad_and_value(loss, has_aux=True)(state)
    return gradients, {"own_loss": value} | logs


def fit(resolved, params, state, traced, steps, lr=3e-3):
    """Train the bridge alone on a fixed network: its final state, and the logs of all steps."""
    state = {name: leaf.clone() for name, leaf in state.items()}
    optimiser, history = LeafOptimiser(state, 0.0), []
    for _ in range(steps):
        gradients, logs = own_gradients(resolved, params, state, traced)
        optimiser.update(gradients, lr)
        history.append({name: value.item() for name, value in logs.items()})
    return state, history


# --- Identities ---


@NETS
def test_a_state_bridge_whose_map_is_the_rest_of_the_network_is_backprop(arch):
    resolved, params, _, traced = case("state_bridge", arch)
    times = []

    def oracle(states, t):
        times.append(t.flatten().tolist())
        return torch.stack([rest_of(resolved.net, params, layer, h) for layer, h in enumerate(states)])

    credits = state_bridge.credit_through_map(oracle, resolved.net, params, traced)
    for credit, truth in zip(credits, transport(traced), strict=True):
        torch.testing.assert_close(credit, truth, rtol=1e-10, atol=1e-14)
    assert times == [pytest.approx([layer / resolved.net.depth for layer in range(resolved.net.depth + 1)])]


@NETS
def test_a_credit_bridge_whose_map_is_the_rest_of_the_network_is_backprop(arch):
    resolved, params, _, traced = case("credit_bridge", arch)

    def oracle(states, _t):
        logits = [resolved.net.forward_from(layer, params, h) for layer, h in enumerate(states)]
        return torch.stack([F.cross_entropy(z, traced.y, reduction="none") for z in logits])

    credits = credit_bridge.credit_through_value(oracle, resolved.net, traced)
    for credit, truth in zip(credits, transport(traced), strict=True):
        torch.testing.assert_close(credit, truth, rtol=1e-10, atol=1e-14)


@NETS
def test_a_residual_state_bridge_is_exact_at_the_top_layer_only(arch):
    resolved, params, state, traced = case("state_bridge:form=residual", arch)
    credits, _ = resolved.rule.credit(resolved.net, params, state, traced, {})
    same = [torch.allclose(a, g, rtol=1e-12, atol=1e-15) for a, g in zip(credits, transport(traced), strict=True)]
    assert same == [label == "exact" for label in resolved.rule.labels(resolved.net.depth)]
    assert resolved.rule.labels(3) == ("none", "none", "none", "exact")
    assert replace(resolved.rule, form="plain").labels(3) == ("none", "none", "none", "fitted")


def test_state_bridge_credit_is_the_gradient_of_the_loss_after_head_and_bridge():
    """Against an independent computation from the leaves with autograd."""
    resolved, params, state, traced = case("state_bridge")
    credits, _ = resolved.rule.credit(resolved.net, params, state, traced, {})
    size = traced.states[-1].square().mean(-1, keepdim=True).sqrt()
    for layer, value in enumerate(traced.states):
        h = value.clone().requires_grad_()
        t = torch.full((len(h), 1), layer / resolved.net.depth, dtype=h.dtype)
        z = torch.cat([h / h.square().mean(-1, keepdim=True).sqrt(), t], -1)
        for name in ("first", "second"):
            z = F.gelu(F.linear(z, state[f"learned.{name}.weight"], state[f"learned.{name}.bias"]))
        predicted = size * F.linear(z, state["learned.out.weight"], state["learned.out.bias"])
        logits = resolved.net.head(part(params, "head"), predicted)
        F.cross_entropy(logits, traced.y, reduction="sum").backward()
        torch.testing.assert_close(credits[layer], h.grad, rtol=1e-9, atol=1e-14)


# --- The credit bridge's own loss ---


@pytest.mark.parametrize("size", ["hidden", "seen"])
def test_own_gradients_include_second_derivatives_of_the_value(size):
    """Against central differences along random directions of the leaves."""
    resolved, params, state, traced = case(f"credit_bridge:consistency_weight=0,size={size}")
    gradients, logs = own_gradients(resolved, params, state, traced)
    draws = torch.Generator().manual_seed(1)
    for _ in range(4):
        v = {n: torch.randn(leaf.shape, generator=draws, dtype=leaf.dtype) for n, leaf in state.items()}
        ends = [
            resolved.rule.own_loss(resolved.net, params, {n: state[n] + s * v[n] for n in state}, traced, {})[0]
            for s in (1e-5, -1e-5)
        ]
        slope = sum((gradients[n] * v[n]).sum() for n in state)
        torch.testing.assert_close((ends[0] - ends[1]) / 2e-5, slope, rtol=1e-6, atol=1e-9)
    assert logs["own_loss"] > 0


def test_the_value_loss_is_quadratic_in_small_errors_and_linear_in_large_ones():
    resolved, params, state, traced = case("credit_bridge:gradient_weight=0,consistency_weight=0")
    h, t = traced.states[-1], torch.ones(1, 1, dtype=torch.float64)
    values = resolved.rule.value_function(state, traced)(h, t)
    far = replace(traced, losses=values + 1e7)
    near = replace(traced, losses=values - 1e-3)
    assert resolved.rule.own_loss(resolved.net, params, state, far, {})[0].item() == pytest.approx(1e7 - 0.5)
    assert resolved.rule.own_loss(resolved.net, params, state, near, {})[0].item() == pytest.approx(1e-6 / 2)


@pytest.mark.parametrize("form", ["plain", "residual"])
def test_the_logged_prediction_errors_are_those_of_all_states_and_of_the_first(form):
    resolved, params, state, traced = case(f"state_bridge:form={form}")
    predict, top = resolved.rule.predictor(state, traced), traced.states[-1]
    errors = []
    for layer, h in enumerate(traced.states):
        missed = predict(h, torch.tensor(layer / resolved.net.depth, dtype=h.dtype)[None, None]) - top
        errors.append((missed.square().sum(-1) / top.square().sum(-1)).mean())
    loss, logs = resolved.rule.own_loss(resolved.net, params, state, traced, {})
    torch.testing.assert_close(loss, torch.stack(errors).mean())
    torch.testing.assert_close(logs["prediction_error"], torch.stack(errors).mean().sqrt())
    torch.testing.assert_close(logs["prediction_error_h0"], errors[0].sqrt())


def test_the_consistency_loss_compares_each_value_with_the_constant_one_above():
    resolved, params, state, traced = case("credit_bridge:value_weight=0,gradient_weight=0")
    states = torch.stack(traced.states)
    t = bridge.layer_times(resolved.net, states)
    targets = resolved.rule.value_function(state, traced)(states, t)[1:]

    def loss(leaves):
        return F.smooth_l1_loss(resolved.rule.value_function(leaves, traced)(states, t)[:-1], targets)

    assert tiny.distance(own_gradients(resolved, params, state, traced)[0], grad(loss)(state)) < 1e-12


@given(st.integers(0, 2**31), st.floats(-30, 30))
@settings(max_examples=60, deadline=None)
def test_gradient_mismatch_is_relative_at_any_scale(seed, exponent):
    draws = torch.Generator().manual_seed(seed)
    found, truth = torch.randn(2, 7, 5, generator=draws, dtype=torch.float64)
    r = (found - truth).norm(dim=-1) / truth.norm(dim=-1)
    scale = 10.0**exponent
    torch.testing.assert_close(credit_bridge.gradient_mismatch(found * scale, truth * scale), torch.log1p(r**2).mean())
    torch.testing.assert_close(credit_bridge.gradient_mismatch(found, truth), torch.log1p(r**2).mean())
    torch.testing.assert_close(credit_bridge.gradient_mismatch(0 * found, truth), torch.tensor(2.0).double().log())
    some = truth.clone()
    for count in (2, 1):
        some[count:] = 0
        torch.testing.assert_close(credit_bridge.gradient_mismatch(found, some), torch.log1p(r[:count] ** 2).mean())


@pytest.mark.parametrize(
    ("found", "truth"),
    [(f, t) for f in (0.0, 1e-30, 1.0, 1e30) for t in (0.0, 1e-30, 1e-9, 1e30)] + [(1e-30, 1e-44), (1.0, 1e-44)],
)
def test_gradient_mismatch_and_its_derivative_are_finite_in_float32(found, truth):
    values = torch.tensor([[found, -found, 0.0]])
    slope, value = grad_and_value(credit_bridge.gradient_mismatch)(values, torch.tensor([[truth, truth, -truth]]))
    assert value.isfinite()
    assert value >= -1e-6
    assert slope.isfinite().all()
    assert (value > 0) == (truth > 0)


# --- Scale ---


@given(st.integers(0, 2**31), st.sampled_from([1e-30, 1e-9, 1.0, 1e8, 1e30]))
@settings(max_examples=60, deadline=None)
def test_normalised_states_have_rms_one_at_any_scale_and_zero_stays_zero(seed, scale):
    h = torch.randn(6, 9, generator=torch.Generator().manual_seed(seed)) * scale
    h[3] = 0
    found = bridge.normalised(h)
    sizes = found.square().mean(-1).sqrt()
    assert torch.equal(found[3], torch.zeros(9))
    torch.testing.assert_close(sizes[[0, 1, 2, 4, 5]], torch.ones(5))
    assert grad(lambda z: bridge.normalised(z).square().sum())(h).isfinite().all()


def test_the_normalisation_has_its_true_derivatives():
    h = torch.randn(4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(bridge.normalised, h)
    assert torch.autograd.gradgradcheck(bridge.normalised, h)


@BRIDGES
@pytest.mark.parametrize("scale", [2.0**20, 2.0**-20])
def test_the_fit_does_not_depend_on_the_scale_of_the_states(name, scale):
    """To the bit for powers of two; the credit scales as the gradient does."""
    resolved, params, state, traced = case(name)
    grown = replace(traced, states=tuple(h * scale for h in traced.states), top=traced.top / scale)
    here, there = (fit(resolved, params, state, which, 20) for which in (traced, grown))
    assert tiny.same_bits(here[0], there[0])
    assert here[1] == there[1]
    if name == "credit_bridge":
        credits, far = (resolved.rule.credit(resolved.net, params, here[0], which, {})[0] for which in (traced, grown))
        assert all(torch.equal(a, b * scale) for a, b in zip(credits, far, strict=True))


@pytest.mark.parametrize(
    "name", ["state_bridge", "state_bridge:form=residual", "credit_bridge", "credit_bridge:size=seen"]
)
@NETS
@pytest.mark.parametrize(("stem", "head"), [(1.0, 1.0), (1e10, 1.0), (1e-10, 1.0), (0.0, 1.0), (1.0, 1e4), (1e8, 1e8)])
def test_nothing_becomes_nan_in_float32(name, arch, stem, head):
    """With exploded and vanished states, the zero state, and saturated heads whose error is exactly zero."""
    resolved, params, state, traced = case(name, arch, dtype="float32", stem=stem, head=head)
    credits, _ = resolved.rule.credit(resolved.net, params, state, traced, {})
    gradients, logs = own_gradients(resolved, params, state, traced)
    assert all(value.isfinite().all() for value in (*credits, *gradients.values(), *logs.values()))


@NETS
def test_a_credit_bridge_has_credit_along_the_state_only_with_size_seen(arch):
    for size in ("hidden", "seen"):
        resolved, params, state, traced = case(f"credit_bridge:size={size}", arch)
        credits, _ = resolved.rule.credit(resolved.net, params, state, traced, {})
        for credit, h in zip(credits, traced.states, strict=True):
            cosines = (credit * h).sum(-1) / (credit.norm(dim=-1) * h.norm(dim=-1))
            assert cosines.abs().max() < 1e-12 if size == "hidden" else cosines.abs().min() > 1e-6


@pytest.mark.slow
def test_without_a_terminal_norm_size_seen_fits_the_top_gradient_better():
    arch = tiny.arch("resmlp", "terminal_norm=false")
    hidden, shown = (fit(*case(f"credit_bridge:width=32,size={s}", arch), 150, 1e-2)[1] for s in ("hidden", "seen"))
    assert shown[-1]["gradient_error"] < 0.5 * hidden[-1]["gradient_error"]


# --- What they learn ---


def test_a_state_bridge_learns_to_predict_the_last_state():
    for form in ("plain", "residual"):
        resolved, params, state, traced = case(f"state_bridge:form={form},width=32")
        _, history = fit(resolved, params, state, traced, 100, lr=1e-2)
        assert history[-1]["prediction_error"] < 0.2 * history[0]["prediction_error"]
        assert history[-1]["own_loss"] == pytest.approx(history[-1]["prediction_error"] ** 2)


def test_a_credit_bridge_learns_values_and_gradients_and_without_gradient_weight_only_values():
    matched, values_only = (
        fit(*case(f"credit_bridge:width=32,gradient_weight={weight}"), 150, lr=1e-2)[1] for weight in (1, 0)
    )
    for history in (matched, values_only):
        assert history[0]["gradient_error"] > 0.9
        assert history[-1]["value_error"] < 0.2 * history[0]["value_error"]
        assert history[-1]["consistency_error"] < 0.2 * history[0]["value_error"]
    assert matched[-1]["gradient_error"] < 0.3
    assert values_only[-1]["gradient_error"] > 2 * matched[-1]["gradient_error"]


def trained(name):
    task = "prototypes:train=1024,test=512,dim=6,prototypes=8,labels=4"
    method, sizes = f"{name}:width=32,bridge_lr=0.01", {"arch": "resmlp:d=16,depth=3", "data": task}
    resolved = tiny.resolved(method, **sizes, dtype="float32", epochs=10, batch=64, lr=3e-3)
    data = resolved.source.load(None)
    driver = Single(resolved, data, tiny.CPU)
    logs = [driver.train_epoch(lambda _: None)[0] for _ in range(10)]
    (end,) = driver.snapshots()
    subject = NetworkSubject(resolved.net, end.params, resolved.rule, end.state).double()
    return logs, subject, subject.run(data.test_x, data.test_y)


@pytest.mark.slow
def test_a_state_bridge_predicts_better_as_the_network_trains():
    logs, _, _ = trained("state_bridge")
    assert logs[-1]["prediction_error"] < 0.5 * logs[0]["prediction_error"]
    assert logs[-1]["prediction_error_h0"] < 0.5 * logs[0]["prediction_error_h0"]
    assert logs[-1]["loss"] < 0.5 * logs[0]["loss"]


@pytest.mark.slow
def test_a_trained_credit_bridge_beats_untrained_ones_on_test_samples():
    logs, subject, traced = trained("credit_bridge")

    def deep_cosine(credits):
        pairs = zip(credits[1:-1], traced.reference[1:-1], strict=True)
        return torch.stack([((a * g).sum(-1) / (a.norm(dim=-1) * g.norm(dim=-1))).mean() for a, g in pairs]).mean()

    fresh = torch.stack([deep_cosine(subject.credit_with(traced, subject.fresh_state(draw))) for draw in range(20)])
    assert fresh.mean().abs() < 4 * fresh.std() / 20**0.5
    assert deep_cosine(subject.credit(traced)) > fresh.mean() + 10 * fresh.std()
    assert logs[-1]["gradient_error"] < 0.7 * logs[0]["gradient_error"]


# --- State, settings ---


@BRIDGES
def test_a_fleet_learns_the_bridges_that_its_models_learn_alone(name):
    resolved_runs = [tiny.resolved(name, seeds=seed) for seed in (1, 2)]
    data = resolved_runs[0].source.load(None)
    together = tiny.train(Fleet(resolved_runs, data, tiny.CPU), 2)
    for resolved, found in zip(resolved_runs, together, strict=True):
        (alone,) = tiny.train(Single(resolved, data, tiny.CPU), 2)
        assert tiny.distance(found.state, alone.state) < 1e-11
        assert tiny.distance(found.own_moments, alone.own_moments) < 1e-10
        assert not any(torch.equal(alone.state[n], leaf) for n, leaf in resolved.state().items())


@BRIDGES
def test_a_stored_bridge_gives_the_same_credit_to_the_bit(name, tmp_path):
    resolved = tiny.resolved(name, dtype="float32")
    data = resolved.source.load(None)
    (end,) = tiny.train(Single(resolved, data, tiny.CPU), 2)
    config = {"arch": tiny.arch("resmlp"), "data": tiny.DATA, "seeds": 1, "epochs": 2, "batch": 16, "dtype": "float32"}
    (result,) = wb.train(name, out=tmp_path, driver="single", device="cpu", **config)
    run = wb.load(result.path)
    params, state = ({n: torch.from_numpy(v) for n, v in found.items()} for found in (run.model(), run.rule_state()))
    assert tiny.same_bits(params, end.params)
    assert tiny.same_bits(state, end.state)
    before, after = (
        NetworkSubject(resolved.net, *made)
        for made in ((end.params, resolved.rule, end.state), (params, resolved.rule, state))
    )
    credits = [subject.credit(subject.run(data.test_x, data.test_y)) for subject in (before, after)]
    assert all(torch.equal(a, b) for a, b in zip(*credits, strict=True))


@BRIDGES
@pytest.mark.parametrize("net", ["vit_mini", "small_cnn"])
def test_tokens_and_maps_are_refused(name, net):
    with pytest.raises(InputError, match=f"'{name}'.*'{net}'.*vectors"):
        tiny.resolved(name, arch=tiny.arch(net))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("state_bridge:width=0", "width of state_bridge is 0.*at least 1"),
        ("state_bridge:form=other", "form of the method 'state_bridge'"),
        ("credit_bridge:bridge_lr=0", "bridge_lr of credit_bridge is 0.0.*more than 0"),
        ("credit_bridge:value_weight=-1", "value_weight of credit_bridge is -1.0.*at least 0"),
    ],
)
def test_invalid_settings_of_a_bridge_are_refused(method, message):
    with pytest.raises(InputError, match=message):
        tiny.resolved(method)


@BRIDGES
def test_the_state_has_the_defined_shapes(name):
    resolved = tiny.resolved(f"{name}:width=7")
    d, classes = resolved.net.features, resolved.net.classes
    inputs, outputs = {"state_bridge": (d + 1, d), "credit_bridge": (d + 1 + classes, 1)}[name]
    shapes = {
        n: tuple(leaf.shape) for n, leaf in RULES.get(name)(width=7).init(resolved.net, torch.Generator()).items()
    }
    assert shapes == {
        "learned.first.weight": (7, inputs), "learned.first.bias": (7,),
        "learned.second.weight": (7, 7), "learned.second.bias": (7,),
        "learned.out.weight": (outputs, 7), "learned.out.bias": (outputs,),
    }  # fmt: skip

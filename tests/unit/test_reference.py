"""The reference is the derivative of the forward function, whatever a model's backward pass does; and it is checked."""

from __future__ import annotations

import copy

import foreign_models
import lying_models
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import walkback as wb
from walkback.measure.discontinuities import find_discontinuity
from walkback.measure.discovery import subject_of
from walkback.measure.inputs import regroup
from walkback.measure.options import MeasureOptions
from walkback.measure.restore import measurement_mode
from walkback.measure.snapshot import measure
from walkback.measure.tape import record

BODIES = pytest.mark.parametrize("body", lying_models.BRANCHES)
HONEST = ("checkpoint", "reentrant")
REWRITTEN = ("tensor_hook", "detached", "dfa", "reentrant")
"""Their second backward pass is not comparable: hooks of both passes add up, or no gradient reaches the states."""


def run64(model, x, y, **more):
    """One float64 pass of a model."""
    with measurement_mode(model):
        return subject_of(model, "auto", x, y, None).double().run(x, y, **more)


def autograd_gradients(model, x, y):
    """The gradients of a plain model at its states, by autograd."""
    model = copy.deepcopy(model).double()
    logits, hiddens = model(x.double(), return_hidden=True)
    return torch.autograd.grad(F.cross_entropy(logits, y, reduction="sum"), hiddens, allow_unused=True)


def relative(found, expected):
    return float((found - expected).norm() / expected.norm())


@BODIES
@pytest.mark.parametrize("lie", lying_models.LIES)
def test_the_reference_is_that_of_a_plain_copy_and_the_own_backward_is_the_credit(body, lie):
    model = lying_models.make(body, lie)
    x, y = lying_models.batch(body, 64)
    seen = run64(model, x, y, backward=True)
    for found, expected in zip(seen.reference, autograd_gradients(lying_models.plain_copy(model), x, y), strict=True):
        assert relative(found, expected) < 1e-9
    if lie not in REWRITTEN:
        for found, expected in zip(seen.backward, autograd_gradients(model, x, y), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    differs = [relative(a, g) > 1e-3 for a, g in zip(seen.backward, seen.reference, strict=True)]
    assert any(differs) == (lie not in HONEST)
    assert not differs[-1]


@BODIES
def test_the_credit_of_direct_feedback_by_hooks_is_the_projected_error(body):
    model = lying_models.make(body, "dfa")
    x, y = lying_models.batch(body, 64)
    seen = run64(model, x, y, backward=True)
    for matrix, found in zip(model.feedback[:-1], seen.backward, strict=False):
        expected = seen.error @ matrix.double()
        if body == "transformer":
            expected = (expected / lying_models.TOKENS)[:, None].expand_as(found)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("body", "lie"),
    [
        pytest.param(body, lie, marks=() if body == "mlp" or lie == "function" else pytest.mark.slow)
        for body in lying_models.BRANCHES
        for lie in lying_models.LIES
    ],
)
def test_a_diagnosis_measures_the_own_backward_and_leaves_the_model_as_it_was(body, lie):
    model = lying_models.make(body, lie)
    model.train()
    before = copy.deepcopy(model.state_dict())
    hooks = [len(module._forward_hooks) + len(module._backward_hooks) for module in model.modules()]
    report = wb.diagnose(model, [lying_models.batch(body)])
    facts = report.measurements.facts
    assert facts["credit"] == (None if lie in HONEST else "the model's own backward")
    assert any("model's own backward" in line for line in report.to_json()["limits"]) == (lie not in HONEST)
    errors = np.nanmedian(report.measurements.arrays["reference_error"], axis=1)
    assert (errors < 1e-5).all()
    assert all(layer.direction.status == "valid" for layer in report.quantities.layers)
    if lie not in HONEST:
        assert facts["labels"][-1] == "exact"
        cosines = report.measurements.arrays["credit_cos"]
        assert np.nan_to_num(cosines[1]).mean() < 0.999
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert hooks == [len(module._forward_hooks) + len(module._backward_hooks) for module in model.modules()]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_plain_model_has_no_credit_unless_its_backward_is_asked_for():
    model, data = lying_models.make("mlp", None), [lying_models.batch("mlp")]
    assert wb.diagnose(model, data).measurements.get("credit_cos") is None
    asked = wb.diagnose(model, data, credit="backward").measurements
    np.testing.assert_allclose(asked.arrays["credit_cos"], 1.0, atol=1e-12)
    assert set(asked.facts["labels"]) == {"exact"}


class QuantisedBlock(nn.Module):
    def __init__(self, operation, residual):
        super().__init__()
        self.linear, self.operation, self.residual = nn.Linear(8, 8), operation, residual

    def forward(self, h):
        f = self.linear(h).tanh()
        if self.operation is not None:
            f = f + (self.operation(f) - f).detach()
        return h + f if self.residual else f


class Quantised(nn.Module):
    """A network whose second block has an operation without a useful derivative, in a straight-through estimator."""

    def __init__(self, operation, residual=True):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, 4)
        self.blocks = nn.ModuleList(QuantisedBlock(operation if i == 1 else None, residual) for i in range(3))

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


OPERATIONS = {
    "round": lambda f: (4 * f).round() / 4,
    "sign": torch.sign,
    "floor": lambda f: (4 * f).floor() / 4,
    "gt": lambda f: torch.where(f > 0, 1.0, -1.0).to(f.dtype),
    "_to_copy": lambda f: (4 * f).int().to(f.dtype) / 4,
    "argmax": lambda f: F.one_hot(f.argmax(-1), f.shape[-1]).to(f.dtype),
}


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_straight_through_estimator_is_invalid_and_the_operation_is_named(name, residual):
    model = Quantised(OPERATIONS[name], residual)
    x, y = torch.randn(260, 6), torch.randint(4, (260,))
    report = wb.diagnose(model, [(x, y)])
    layers = report.quantities.layers
    assert [layer.direction.status for layer in layers] == ["invalid", "invalid", "valid", "valid"]
    assert f"'{name}'" in layers[0].direction.reason
    if report.quantities.has_credit:
        assert not layers[0].credit.cos.ok
    assert report.claims["alignment"].outcome != "stands"


def discontinuity(function, x):
    with torch.enable_grad(), record() as tape:
        leaf = x.clone()
        start = tape.number(leaf)
        loss = function(leaf).sum()
    return find_discontinuity(tape, start, tape.find(loss))


def test_sampling_is_named():
    assert discontinuity(lambda h: torch.bernoulli(h.sigmoid()) * h, torch.randn(3, 4)) == "bernoulli"


@pytest.mark.parametrize(
    "function",
    [
        F.relu,
        lambda h: F.max_pool2d(h[None], 2),
        lambda h: h.gather(1, h.argmax(1, keepdim=True)),
        lambda h: h.max(1).values,
        lambda h: h.topk(2).values,
        lambda h: h[torch.arange(len(h)), h.argmax(1)],
        lambda h: F.dropout(h, 0.5, training=False),
        lambda h: torch.where(torch.isnan(h), 0.0, h),
        lambda h: h * (torch.ones_like(h) > 0),
        lambda h: h + torch.rand_like(h),
        lambda h: F.scaled_dot_product_attention(h[None], h[None], h[None]),
    ],
)
def test_useful_derivatives_are_allowed(function):
    assert discontinuity(function, torch.randn(4, 4)) is None


def test_a_value_copied_into_a_buffer_in_place_keeps_its_discontinuity():
    def function(h):
        buffer = torch.zeros(4, 8)
        buffer[:, :4].copy_(h.round())
        return buffer

    assert discontinuity(function, torch.randn(4, 4)) == "round"


class Numpy(nn.Module):
    """A model that leaves torch on its way, so that the recorded operations miss a part of the function."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.head = nn.Linear(6, 8), nn.Linear(8, 4)
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(h * torch.from_numpy(1 + h.detach().numpy() ** 2))


def test_a_reference_that_misses_a_part_of_the_function_is_invalid():
    x, y = torch.randn(260, 6), torch.randint(4, (260,))
    report = wb.diagnose(Numpy(), [(x, y)])
    bad = [layer for layer in report.quantities.layers if layer.direction.status == "invalid"]
    assert bad
    assert f"h_{bad[0].index}" in bad[0].direction.reason


def test_a_given_reference_is_used_and_not_checked():
    model, data = lying_models.make("mlp", "function"), [lying_models.batch("mlp")]
    report = wb.diagnose(model, data, reference=lambda seen: [2 * g for g in seen.reference])
    assert report.measurements.facts["reference"] == "given by reference="
    assert "reference_error" not in report.measurements.arrays
    assert any("given by reference=" in line for line in report.to_json()["limits"])
    with pytest.raises(wb.InputError, match="reference has shapes"):
        wb.diagnose(model, data, reference=lambda seen: seen.reference[:-1])


class Float32Block(nn.Module):
    """Computes its norm in float32 in any case, as many transformers do."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, h):
        scale = h.float().pow(2).mean(-1, keepdim=True).add(1e-5).rsqrt().to(h.dtype)
        return h + self.linear(h * scale)


def test_casts_inside_the_model_are_lifted_in_float64():
    x, y = torch.randn(260, 6), torch.randint(4, (260,))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), *(Float32Block() for _ in range(3)), nn.Linear(8, 4))
    report = wb.diagnose(model, [(x, y)])
    errors = np.nanmedian(report.measurements.arrays["reference_error"], axis=1)
    assert (errors < 1e-6).all()


def test_the_check_finds_a_gradient_that_is_wrong_by_a_percent():
    model = lying_models.make("mlp", None)
    x, y = lying_models.batch("mlp")
    with measurement_mode(model):
        subject = subject_of(model, "auto", x, y, None)
        derivative = type(subject)._derivative
        type(subject)._derivative = lambda self, *given: _scaled(derivative(self, *given))
        try:
            found = measure(subject, regroup([(x, y)]), MeasureOptions(credit=None))
        finally:
            type(subject)._derivative = derivative
    np.testing.assert_allclose(np.median(found.arrays["reference_error"], axis=1), 0.01 / 1.01, rtol=1e-3)


def _scaled(derivative):
    return type(derivative)(
        tuple(1.01 * g for g in derivative.states), derivative.parameters, derivative.replayed, derivative.leaves
    )


def test_a_failing_backward_is_named_and_the_rest_is_measured():
    model = lying_models.make("mlp", None)
    model.blocks[1].register_full_backward_hook(lambda module, inputs, outputs: (outputs[0][:, :3],))
    report = wb.diagnose(model, [lying_models.batch("mlp")])
    assert any("own backward pass fails" in each for each in report.measurements.facts["skipped"])
    assert all(layer.direction.status == "valid" for layer in report.quantities.layers)


class Clipped(nn.Linear):
    """Changes its weight in place in every forward pass, as weight clipping does."""

    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-0.1, 0.1)
        return super().forward(x)


def test_a_weight_that_the_forward_pass_changes_is_measured_and_restored():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), Clipped(8, 8), Clipped(8, 8), Clipped(8, 8), nn.Linear(8, 4))
    before = copy.deepcopy(model.state_dict())
    report = wb.diagnose(model, [(torch.randn(260, 6), torch.randint(4, (260,)))], credit="backward")
    np.testing.assert_allclose(report.measurements.arrays["credit_cos"], 1.0, atol=1e-9)
    assert np.isfinite(report.measurements.arrays["update_cos"]).all()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_torchs_own_transformer_layers_are_checked(pooling):
    """Without gradients they take another way through one fused operation."""
    torch.manual_seed(0)
    ids, y = torch.randint(11, (260, 7)), torch.randint(4, (260,))
    found = wb.diagnose(foreign_models.Tokens(pooling), [(ids, y)]).measurements.arrays["reference_error"]
    assert (np.median(found, axis=1) < 1e-5).all()

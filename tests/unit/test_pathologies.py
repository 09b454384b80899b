"""Known failures are diagnosed correctly, in models in the style of several libraries and in walkback networks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import foreign_models as models
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tiny
import walkback as wb
from walkback.core.measurements import GROUP
from walkback.judge.editions import decide
from walkback.judge.evidence import Evidence
from walkback.judge.report import judge
from walkback.measure.inputs import regroup
from walkback.measure.snapshot import measure
from walkback.measure.subject import NetworkSubject

COUNT = 2 * GROUP


def draw(*shape):
    return torch.randn(COUNT, *shape, generator=torch.Generator().manual_seed(0))


def labels(classes=4):
    return torch.randint(classes, (COUNT,), generator=torch.Generator().manual_seed(1))


def vectors():
    return draw(6), labels()


def images():
    return draw(3, 8, 8), labels()


def tokens():
    return draw(5, 6), labels()


def ids():
    drawn = torch.randint(50, (COUNT, 6), generator=torch.Generator().manual_seed(0))
    return {"input_ids": drawn, "attention_mask": torch.ones(COUNT, 6), "labels": labels()}


@dataclass(frozen=True)
class Case:
    make: Any
    """terminal_norm -> model."""
    batch: Any
    blocks: Any
    head: str | None
    """The name of the last Linear in the model with a terminal norm."""
    norm: str | None
    """The terminal norm's name."""

    def model(self, terminal_norm: bool = True) -> nn.Module:
        torch.manual_seed(0)
        return self.make(terminal_norm)


def walkback_network(terminal_norm):
    resolved = tiny.resolved(
        arch=f"resmlp:d=16,depth=3,w2_std=0.1,terminal_norm={str(terminal_norm).lower()}", dtype="float32"
    )
    return models.NetworkModule(resolved.net, resolved.params())


CASES = {
    "resmlp": Case(walkback_network, vectors, lambda m: m.blocks, None, None),
    "vit, cls": Case(lambda t: models.VisionTransformer("token", t), images, lambda m: m.blocks, "head", "norm"),
    "vit, mean": Case(lambda t: models.VisionTransformer("avg", t), images, lambda m: m.blocks, "head", "norm"),
    "gpt2": Case(models.GPT2Classifier, ids, lambda m: m.transformer.h, "score", "transformer.ln_f"),
    "encoder": Case(models.Encoder, tokens, lambda m: m.encoder.layers, "head", "encoder.norm"),
    "resnet": Case(models.ResNet, images, lambda m: [*m.layer1, *m.layer2, *m.layer3], "fc", "final"),
    "sequential": Case(models.plain, vectors, lambda m: m[1:4], "5", "4"),
}
WITH_HEAD = [name for name, case in CASES.items() if case.head]
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def with_running_statistics(model, case):
    """The model in evaluation mode, with BatchNorm's running statistics computed from its own states."""
    if any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = None
                module.reset_running_stats()
        model.train()
        with torch.no_grad():
            model(case.batch()[0])
    return model.eval()


def exploded(case, terminal_norm, factor=1e9):
    model = case.model(terminal_norm)
    blocks = list(case.blocks(model))
    # Without residuals every block multiplies the growth of the previous ones.
    each_factor = 1e4 if isinstance(model, nn.Sequential) else factor
    models.explode(blocks, [each_factor] * len(blocks))
    return with_running_statistics(model, case)


def shrink(model, name, factor):
    with torch.no_grad():
        for parameter in model.get_submodule(name).parameters():
            parameter.mul_(factor)


def diagnosed(model, batch, **named):
    return wb.diagnose(model, [batch], 0.5, 0.4, protocol="three", **named)


@each
def test_a_healthy_network_passes_all_checks(case):
    report = diagnosed(with_running_statistics(case.model(), case), case.batch())
    assert (report.flags["D1"].status, report.flags["D2"].status) == ("clear", "clear")
    assert all(layer.direction.status == "valid" for layer in report.quantities.layers)
    assert {mode.id for mode in report.modes} == set()
    # By its checks: before training a network may give one answer to all samples, which cannot be judged.
    assert decide("three", report.flags, baseline_given=True).outcome == "trustworthy"


@each
def test_an_explosion_before_a_terminal_norm_fails_d1_and_d2(case):
    report = diagnosed(exploded(case, True), case.batch())
    assert (report.flags["D1"].status, report.flags["D2"].status) == ("raised", "raised")
    assert report.flags["D1"].value > 1e3
    assert [mode.id for mode in report.modes] == ["1a", "1b"]
    assert report.verdict == "walked_back"
    # Although it is small, its direction is valid: only the clamp distorts the cosine.
    assert report.quantities.top.direction.status == "valid"
    assert report.quantities.top.clamp.status == "distorted"


@each
def test_an_explosion_without_a_terminal_norm_fails_d1_only(case):
    report = diagnosed(exploded(case, False), case.batch())
    assert (report.flags["D1"].status, report.flags["D2"].status) == ("raised", "clear")
    assert report.verdict == "trustworthy"
    assert report.rejudge(protocol="four").verdict == "walked_back"


def test_d1_names_the_block_that_grows():
    case = CASES["vit, cls"]
    model = case.model()
    models.explode(list(model.blocks), [1.0, 1e6, 1.0])
    flag = diagnosed(model, case.batch()).flags["D1"]
    assert (flag.status, flag.layer) == ("raised", 2)


@pytest.mark.parametrize("terminal_norm", [True, False])
@pytest.mark.parametrize("factor", [1.0, 1e9])
def test_a_walkback_network_measures_the_same_as_an_nn_module(terminal_norm, factor):
    resolved = tiny.resolved(arch=f"resmlp:d=16,depth=3,terminal_norm={str(terminal_norm).lower()}", dtype="float32")
    params = {
        name: leaf * factor if name.startswith("blocks.") and ".w2." in name else leaf
        for name, leaf in resolved.params().items()
    }
    subject = NetworkSubject(resolved.net, params)
    report = judge(measure(subject, regroup([vectors()])), Evidence.of(0.5, 0.4))
    raised = "raised" if factor > 1 else "clear"
    assert report.flags["D1"].status == raised
    assert report.flags["D2"].status == (raised if terminal_norm else "clear")
    as_module = diagnosed(models.NetworkModule(resolved.net, params), vectors())
    for name in ("hidden_norm", "grad_norm", "grad_norm64", "group_cos"):
        np.testing.assert_allclose(
            as_module.measurements.arrays[name], report.measurements.arrays[name], rtol=1e-4, err_msg=name
        )


@pytest.mark.parametrize("case", [CASES[name] for name in WITH_HEAD], ids=WITH_HEAD)
def test_half_precision_underflow_is_reported(case):
    """Every weight is representable in float16, but the gradient at h_L is smaller than float16's smallest number."""
    model = with_running_statistics(case.model(), case)
    shrink(model, case.head, 3e-4)
    shrink(model, case.norm, 1e-5)
    report = diagnosed(model.half(), case.batch())
    assert f"float16 underflow: {COUNT} of {COUNT} gradients" in " ".join(str(report).split())
    assert report.quantities.top.direction.status == "noise"
    assert (report.flags["D2"].status, report.flags["D2"].value) == ("raised", 0)
    # In float32 the same weights have a gradient, and no underflow is reported.
    again = diagnosed(model.float(), case.batch())
    assert again.quantities.top.direction.status == "valid"
    assert "underflow" not in str(again)


def test_an_overflow_of_half_precision_is_an_explosion():
    model = exploded(CASES["encoder"], True, 2e5).half()
    report = diagnosed(model, tokens())
    flag = report.flags["D1"]
    assert flag.status == "raised"
    assert all(word in flag.reason for word in ("h_1", "infinite", "float16"))
    assert report.flags["D2"].invalid
    assert report.quantities.top.clamp.status == "missing"


def with_cancellation(case):
    model = case.model()
    holder, _, name = case.head.rpartition(".")
    setattr(model.get_submodule(holder), name, models.Cancelling(model.get_submodule(case.head)))
    return model


@pytest.mark.parametrize("name", ["vit, cls", "vit, mean", "encoder", "resnet"])
def test_a_direction_that_float32_rounds_away_is_noise(name):
    case = CASES[name]
    model = with_running_statistics(with_cancellation(case), case)
    report = diagnosed(model, case.batch(), credit=lambda seen: seen.reference)
    top = report.quantities.top
    assert top.direction.status == "noise"
    assert report.flags["D2"].status == "clear"
    assert top.credit.cos.status == "invalid"
    assert (report.claims["alignment"].outcome, report.claims["alignment"].name) == ("walked_back", "noise")
    # In float64 the same weights have a valid direction.
    again = diagnosed(model.double(), case.batch(), credit=lambda seen: seen.reference)
    assert again.quantities.top.direction.status == "valid"
    assert again.quantities.top.credit.cos.known == pytest.approx(1)


@pytest.mark.parametrize("case", [CASES[name] for name in WITH_HEAD], ids=WITH_HEAD)
def test_a_tiny_gradient_that_float64_reproduces_is_valid_and_clamped(case):
    model = with_running_statistics(case.model(), case)
    shrink(model, case.head, 1e-12)
    report = diagnosed(model, case.batch(), credit=lambda seen: seen.reference)
    top = report.quantities.top
    assert report.flags["D2"].status == "raised"
    assert (top.direction.status, top.clamp.status) == ("valid", "distorted")
    assert top.credit.cos.known == pytest.approx(1, abs=1e-5)
    assert abs(top.credit.clamped.known) < 1e-6
    assert "distorted" in top.credit.clamped.reason
    shown = " ".join(str(report).split())
    assert re.search(rf"layer {report.quantities.depth} cosine: \+1\.000 .*\+0\.000", shown)
    assert "the direction is real although it is small" in shown
    assert report.claims["alignment"].outcome == "stands"


@pytest.fixture(scope="module")
def fitted():
    """A network that has memorised its samples."""
    torch.manual_seed(0)
    model, (x, y) = models.Reference(d=32), vectors()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(400):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    with torch.no_grad():
        assert model(x).argmax(1).eq(y).all()
    return model


def test_a_fitted_network_is_no_collapse(fitted):
    x, y = vectors()
    trained = diagnosed(fitted, (x, y))
    assert trained.quantities.error_norm.known < 0.1
    with torch.no_grad():
        logits = fitted(x)
        worst = (logits.gather(1, y[:, None]) - logits.scatter(1, y[:, None], -torch.inf)).amin()
        # The least certain sample gets an error of e^-25.
        for parameter in fitted.out_head.parameters():
            parameter.mul_(25 / worst)
    report = diagnosed(fitted, (x, y))
    assert report.flags["D2"].status == "raised"
    assert report.quantities.error_norm.known < 1e-9
    assert report.quantities.grad_over_error.known > trained.quantities.grad_over_error.known
    assert "a fitted network, no collapse" in report.flags["D2"].reason
    assert [mode.id for mode in report.modes] == []
    assert "reference collapse" not in str(report)
    assert report.verdict == "trustworthy"
    # The same small gradient with a large error is a collapse.
    wrong = diagnosed(exploded(CASES["resmlp"], True), vectors())
    assert "no collapse" not in wrong.flags["D2"].reason
    assert wrong.modes[-1].name == "reference collapse"

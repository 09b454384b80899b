"""Measurements of walkback networks and of any nn.Module equal their definitions computed by hand."""

from __future__ import annotations

import copy
import itertools
import random

import foreign_models
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tiny
from walkback.core.errors import InputError
from walkback.core.measurements import Measurements
from walkback.judge.card import CORE_CHECKS
from walkback.judge.evidence import Evidence
from walkback.judge.report import judge
from walkback.measure.discovery import subject_of
from walkback.measure.inputs import Groups, regroup
from walkback.measure.options import MeasureOptions
from walkback.measure.restore import measurement_mode
from walkback.measure.snapshot import measure
from walkback.measure.subject import NetworkSubject
from walkback.measure.vectors import clamped_cosines, cosines, haar_std, norms, units


def samples(count=300, shape=(6,), classes=4, seed=0):
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(count, *shape, generator=draws)
    return x, torch.randint(classes, (count,), generator=draws)


def seeded(make):
    torch.manual_seed(0)
    return make().eval()


def measured(model, batches, **named):
    groups = regroup(batches)
    blocks, step_fn = named.pop("blocks", "auto"), named.pop("step_fn", None)
    with measurement_mode(model):
        return measure(subject_of(model, blocks, *groups[0], step_fn), groups, MeasureOptions(**named))


def by_hand(model, x, y):
    """States and gradients of the reference model, computed directly."""
    h = model.embed(x)
    states = [h]
    for block in model.blocks:
        h = h + block(h)
        states.append(h)
    losses = F.cross_entropy(model.out_head(model.out_ln(h)), y, reduction="none")
    return states, torch.autograd.grad(losses.sum(), states), losses


def test_norms_and_gradients_are_those_written_out_by_hand():
    model = seeded(foreign_models.Reference).double()
    x, y = samples()
    found = measured(model, [(x, y)])
    states, gradients, losses = by_hand(model, x.double(), y)
    for layer, (h, g) in enumerate(zip(states, gradients, strict=True)):
        np.testing.assert_allclose(found.arrays["hidden_norm"][layer], h.detach().norm(dim=1), rtol=1e-12)
        np.testing.assert_allclose(found.arrays["grad_norm"][layer], g.norm(dim=1), rtol=1e-9)
    np.testing.assert_allclose(found.arrays["loss"], losses.detach(), rtol=1e-12)
    assert found.facts["layers"] == 4
    assert found.facts["samples"] == 300
    assert found.facts["groups"] == 2
    means = F.normalize(torch.stack([gradients[-1][:128].mean(0), gradients[-1][128:256].mean(0)]), dim=1)
    np.testing.assert_allclose(found.arrays["group_cos"], [means[0] @ means[1]], rtol=1e-9)


def test_a_walkback_network_measures_as_its_trace():
    resolved = tiny.resolved("dfa", dtype="float32")
    data = resolved.source.load(None)
    subject = NetworkSubject(resolved.net, resolved.params(), resolved.rule, resolved.state())
    found = measure(subject, Groups([(data.train_x, data.train_y)]))
    replay = subject.double()
    frozen_pass = replay.run(data.train_x.double(), data.train_y)
    for layer, (a, g) in enumerate(zip(replay.credit(frozen_pass), frozen_pass.reference, strict=True)):
        np.testing.assert_allclose(
            found.arrays["credit_cos"][layer], F.cosine_similarity(a, g, dim=1, eps=0), rtol=1e-9
        )
        np.testing.assert_allclose(found.arrays["credit_norm"][layer], a.norm(dim=1), rtol=1e-12)
        np.testing.assert_allclose(found.arrays["grad_cos64"][layer], 1, atol=1e-9)
    assert found.arrays["null_fresh"].shape == (4, 20)


@given(st.lists(st.integers(1, 150), min_size=1, max_size=6), st.integers(0, 3))
@settings(max_examples=15, deadline=None)
def test_measurements_do_not_depend_on_batch_sizes(sizes, seed):
    model = seeded(foreign_models.Reference)
    x, y = samples(300, seed=seed)
    whole = measured(model, [(x, y)])
    cuts, start = [], 0
    for size in [*sizes, 300]:
        if start < 300:
            cuts.append((x[start : start + size], y[start : start + size]))
        start += size
    again = measured(model, cuts)
    assert again.facts == whole.facts
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array, err_msg=name)


@given(st.integers(-12, 12))
@settings(max_examples=13, deadline=None)
def test_a_scaled_loss_scales_norms_and_keeps_directions(power):
    model = seeded(foreign_models.Reference)
    x, y = samples()

    def loss(scale):
        return lambda model, batch: scale * F.cross_entropy(model(batch[0]), batch[1], reduction="none")

    def credit(frozen_pass):
        return [g.flip(-1) + g for g in frozen_pass.reference]

    plain = measured(model, [(x, y)], step_fn=loss(1.0), credit=credit)
    other = measured(model, [(x, y)], step_fn=loss(10.0**power), credit=credit)
    np.testing.assert_allclose(other.arrays["grad_norm"], plain.arrays["grad_norm"] * 10.0**power, rtol=1e-6)
    for name in ("grad_cos64", "group_cos", "credit_cos", "hidden_norm", "null_haar_std", "credit_group_cos"):
        np.testing.assert_allclose(other.arrays[name], plain.arrays[name], atol=1e-6, rtol=1e-6, err_msg=name)


def judged(measurements):
    return judge(measurements, Evidence.of(0.5, 0.4))


def statements(report):
    """The conclusions of a report, without its numbers."""
    return (
        report.verdict,
        {name: verdict.outcome for name, verdict in report.verdicts.items()},
        {name: flag.status for name, flag in report.flags.items()},
        {name: (claim.outcome, claim.name) for name, claim in report.claims.items()},
        [layer.direction.status for layer in report.quantities.layers],
    )


def mixed_credit(frozen_pass):
    return [g.flip(-1) + g for g in frozen_pass.reference]


def scaled_blocks(factor):
    """A healthy network, or one whose residual stream explodes before the terminal norm."""
    model = seeded(foreign_models.Reference)
    foreign_models.explode(model.blocks, [factor] * 3)
    return model


@pytest.mark.parametrize("factor", [1.0, 1e9])
@given(st.lists(st.integers(1, 150), min_size=1, max_size=6))
@settings(max_examples=8, deadline=None)
def test_the_verdict_does_not_depend_on_batch_sizes(factor, sizes):
    model = scaled_blocks(factor)
    x, y = samples(300)
    cuts = list(zip(x.split(sizes_to(sizes)), y.split(sizes_to(sizes)), strict=True))
    whole, again = (judged(measured(model, batches, credit=mixed_credit)) for batches in ([(x, y)], cuts))
    assert statements(again) == statements(whole)
    assert again.flags == whole.flags
    assert again.claims == whole.claims
    assert whole.flags["D1"].status == ("clear" if factor == 1 else "raised")


def sizes_to(sizes, count=300):
    """The sizes as far as they fit into `count`, and the rest."""
    kept = [size for size, total in zip(sizes, itertools.accumulate(sizes), strict=True) if total < count]
    return [*kept, count - sum(kept)]


@pytest.mark.parametrize("factor", [1.0, 1e9])
@given(st.floats(-12, 12))
@settings(max_examples=8, deadline=None)
def test_only_d2_depends_on_the_scale_of_the_loss(factor, power):
    model, scale = scaled_blocks(factor), 10.0**power

    def scaled(scale):
        def step_fn(model, batch):
            return scale * F.cross_entropy(model(batch[0]), batch[1], reduction="none")

        return judged(measured(model, [samples()], step_fn=step_fn, credit=mixed_credit))

    plain, other = scaled(1.0), scaled(scale)
    d2, d2_plain = other.flags["D2"], plain.flags["D2"]
    assert d2.value == pytest.approx(scale * d2_plain.value, rel=1e-6)
    assert d2.status == ("raised" if scale * d2_plain.value < 1e-7 else "clear")
    for name in set(CORE_CHECKS) - {"D2"}:
        assert other.flags[name].status == plain.flags[name].status, name
        assert other.flags[name].value == pytest.approx(plain.flags[name].value, rel=1e-6, abs=1e-6), name
    assert statements(other)[3:] == statements(plain)[3:]
    assert {layer.direction.status for layer in other.quantities.layers} == {"valid"}
    # If D2 is unchanged, so is every edition; the default one needs D1 to fail as well.
    if d2.status == d2_plain.status or factor == 1:
        assert other.verdict == plain.verdict


def test_the_gradient_aligns_with_itself_however_small_it_is():
    model = seeded(foreign_models.Reference)
    x, y = samples()

    def tiny_loss(model, batch):
        return 1e-30 * F.cross_entropy(model(batch[0]).double(), batch[1], reduction="none")

    found = measured(model, [(x, y)], step_fn=tiny_loss, credit=lambda frozen_pass: frozen_pass.reference)
    assert found.arrays["grad_norm64"].max() < 1e-28
    np.testing.assert_allclose(found.arrays["credit_cos"], 1, atol=1e-12)
    # The usual, clamping function gives almost zero.
    assert np.abs(found.arrays["credit_cos_clamped"]).max() < 1e-10


def test_the_clamped_cosine_is_that_of_the_models_own_credit_and_gradient():
    """It is what code without a float64 replay prints, so nothing of the replay may enter it."""
    model = seeded(foreign_models.Reference).bfloat16()
    x, y = samples(260)
    own = []

    def credit(frozen_pass):
        if frozen_pass.reference[0].dtype != torch.float64:
            own.append(frozen_pass.reference)
        return mixed_credit(frozen_pass)

    found = measured(model, [(x.bfloat16(), y)], credit=credit)
    assert np.median(1 - found.arrays["grad_cos64"]) > 1e-6, "bfloat16 must round the gradient here"
    for layer, parts in enumerate(zip(*own, strict=True)):
        gradient = torch.cat(parts)
        assert len(gradient) == len(x)
        given = gradient.flip(-1) + gradient
        expected = F.cosine_similarity(given.double() / 128, gradient.double() / 128, dim=-1)
        np.testing.assert_allclose(found.arrays["credit_cos_clamped"][layer], expected, atol=1e-9)


def test_zero_and_unfinite_samples_are_excluded_not_imputed():
    a = torch.tensor([[3.0, 4.0], [0.0, 0.0], [torch.inf, 1.0], [torch.nan, 1.0], [1e-200, 0.0], [1e200, 1e200]])
    b = torch.ones(6, 2, dtype=torch.float64)
    a = a.double()
    a[4, 0], a[5] = 1e-200, 1e200
    found = cosines(a, b)
    assert found.isnan().tolist() == [False, True, True, True, False, False]
    assert found[4] == pytest.approx(2**-0.5)
    assert norms(a)[[0, 1, 4]].tolist() == pytest.approx([5, 0, 1e-200])
    assert norms(a)[2] == torch.inf
    assert norms(a)[3].isnan()
    assert norms(a)[5] == pytest.approx(2**0.5 * 1e200)


def test_a_clamped_cosine_shrinks_with_each_norm_that_is_under_the_clamp_at_128_samples():
    lengths = torch.tensor([[1.0, 1.0], [1e-7, 1.0], [1.0, 1e-7], [1e-7, 1e-7], [2e-6, 2e-6]], dtype=torch.float64)
    a, g = torch.tensor([[1.0, 0.0], [0.6, 0.8]], dtype=torch.float64)
    found = clamped_cosines(lengths[:, :1] * a, lengths[:, 1:] * g, 128)
    kept = (lengths / 128 / 1e-8).clamp_max(1).prod(1)
    assert kept.tolist()[4] == 1, "above the clamp of 1.28e-6"
    torch.testing.assert_close(found, 0.6 * kept, rtol=1e-9, atol=0)


def test_the_haar_null_has_the_width_that_drawn_rotations_have():
    draws = torch.Generator().manual_seed(0)
    # Credit and gradient of a sample are both made from its few coefficients, as with a shared B: the width is then far
    # larger than the 1/sqrt(n d) of independent samples.
    coefficients = torch.randn(200, 3, generator=draws, dtype=torch.float64)
    a, g = (coefficients @ torch.randn(3, 10, generator=draws, dtype=torch.float64) for _ in range(2))
    q, r = torch.linalg.qr(torch.randn(4000, 10, 10, generator=draws, dtype=torch.float64))
    turned = a @ (q * r.diagonal(dim1=1, dim2=2).sign()[:, None]).mT
    means = (units(turned) * units(g)).sum(-1).mean(-1).numpy()
    assert np.mean(means) == pytest.approx(0, abs=4 * np.std(means) / 4000**0.5)
    assert haar_std(a, g) == pytest.approx(np.std(means), rel=0.05)
    assert haar_std(a, g) > 2 / (200 * 10) ** 0.5


CASES = {
    "branches": (foreign_models.Reference, (6,), 4, ("3 blocks (blocks)", "branch")),
    "sequential": (foreign_models.sequential, (6,), 4, ("3 blocks (3 x Whole)", "next state")),
    "two stages": (
        foreign_models.Convolutions,
        (3, 5, 5),
        5,
        ("4 blocks (4 x ConvBlock)", "next state"),
    ),
}


@pytest.mark.parametrize(("make", "shape", "layers", "words"), CASES.values(), ids=CASES)
def test_blocks_are_found_and_named(make, shape, layers, words):
    found = measured(seeded(make), [samples(260, shape)])
    (text,) = found.facts["found"]
    assert all(word in text for word in words)
    assert found.facts["layers"] == layers
    assert (found.arrays["grad_cos64"] > 0.999).all()


@pytest.mark.parametrize(("pooling", "pool"), [("cls", "cls"), ("mean", "all")])
def test_tokens_are_pooled_as_the_head_reads_them(pooling, pool):
    ids = torch.cartesian_prod(*[torch.arange(4)] * 5)[:300]
    found = measured(seeded(lambda: foreign_models.Tokens(pooling)), [(ids, ids[:, 0] % 4)])
    assert found.facts["pool"] == pool
    assert found.facts["layers"] == 3


def test_keyword_inputs_tuple_blocks_and_output_objects():
    x, y = samples(260)
    found = measured(seeded(foreign_models.Dicts), [{"pixel_values": x, "labels": y}])
    (text,) = found.facts["found"]
    assert "3 x TupleBlock" in text
    same = measured(seeded(foreign_models.Dicts), [{"pixel_values": x, "labels": y}], blocks="encoder.layer")
    np.testing.assert_array_equal(same.arrays["grad_norm"], found.arrays["grad_norm"])


def test_a_compiled_or_parallel_model_is_unwrapped():
    model = seeded(foreign_models.Reference)
    x, y = samples(260)
    plain = measured(model, [(x, y)])
    wrapped = measured(nn.DataParallel(model), [(x, y)])
    np.testing.assert_array_equal(wrapped.arrays["grad_norm"], plain.arrays["grad_norm"])
    assert "DataParallel" in wrapped.facts["found"][0]


@pytest.mark.parametrize(
    ("make", "named", "sentence"),
    [
        (foreign_models.InPlace, {}, "in place"),
        (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)), {}, "were not found"),
        (foreign_models.Reference, {"blocks": "nothing"}, "no such module"),
        (foreign_models.Reference, {"blocks": []}, "is empty"),
        (foreign_models.Reference, {"blocks": ["blocks.0", "blocks.9"]}, "'blocks.9'"),
        (foreign_models.Reference, {"blocks": ["embed", "out_ln"]}, "neither"),
        (foreign_models.Reference, {"step_fn": lambda model, batch: model(batch[0]).mean()}, "one loss for each"),
        (
            foreign_models.Reference,
            {"credit": lambda frozen_pass: frozen_pass.reference[:-1]},
            "one for each hidden state",
        ),
    ],
)
def test_models_that_cannot_be_measured_are_refused(make, named, sentence):
    with pytest.raises(InputError, match=sentence):
        measured(seeded(make), [samples(260)], **named)


def test_batches_that_do_not_fit_are_refused():
    model = seeded(foreign_models.Reference)
    x, y = samples(260)
    for batches, sentence in (
        ([(x, y), (x[:, :3], y)], "do not fit together"),
        ([(x, y[:5])], "260 samples but 5 labels"),
        ([(x, y + 4)], "whole numbers from 0 to 3"),
    ):
        with pytest.raises(InputError, match=sentence):
            measured(model, batches)


def state_of(model):
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    return {
        "parameters": [p.detach().clone() for p in model.parameters()],
        "wants": [p.requires_grad for p in model.parameters()],
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "buffers": [b.clone() for b in model.buffers()],
        "modes": [m.training for m in model.modules()],
        "hooks": hooks,
        "streams": [torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()],
    }


def same(left, right):
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right) or torch.allclose(left, right, rtol=0, atol=0, equal_nan=True)
    if isinstance(left, dict):
        return all(same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


@pytest.mark.parametrize("raises", [False, True])
def test_the_models_state_is_restored(raises):
    model = seeded(foreign_models.Convolutions).train()
    model.stage1.eval()
    model.head.weight.requires_grad_(False)
    model.stem.weight.grad = torch.ones_like(model.stem.weight)
    before = copy.deepcopy(state_of(model))

    def credit(frozen_pass):
        torch.rand(3), np.random.rand(), random.random()
        if raises:
            raise ZeroDivisionError
        return frozen_pass.reference

    try:
        measured(model, [samples(260, (3, 5, 5))], credit=credit)
    except ZeroDivisionError:
        assert raises
    assert same(before, state_of(model))


def test_measurements_are_saved_and_loaded(tmp_path):
    found = measured(seeded(foreign_models.Reference), [samples(260)], credit=lambda frozen_pass: frozen_pass.reference)
    found.save(tmp_path / "measurements.npz")
    again = Measurements.load(tmp_path / "measurements.npz")
    assert again.facts == found.facts
    assert again.arrays.keys() == found.arrays.keys()
    for name, array in found.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
    (tmp_path / "measurements.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match="Measure the run again"):
        Measurements.load(tmp_path / "measurements.npz")

"""Alignment of what is used: the credit where it is used, the parameter gradients, and their nulls."""

from __future__ import annotations

import lying_models
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tiny
import walkback as wb
from walkback.judge.alignment_facts import fresh_critical
from walkback.judge.report import judge
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.measure.inputs import regroup
from walkback.measure.module_subject import ModuleSubject
from walkback.measure.options import MeasureOptions
from walkback.measure.snapshot import measure
from walkback.measure.subject import LocalLoss, NetworkSubject
from walkback.measure.updates import FRESH_GROUPS, part_cosine, rotate
from walkback.measure.vectors import haar_std
from walkback.nets.network import part


def double(leaves):
    return {name: leaf.double() for name, leaf in leaves.items()}


def data_for(made, count=260):
    draws = torch.Generator().manual_seed(3)
    x = torch.randn(count, *made.net.input_shape, generator=draws, dtype=torch.float64)
    return x, torch.randint(made.net.classes, (count,), generator=draws)


def measured(text, net="resmlp", site=None, params=None, penalty=None, count=260):
    """The measurements of an untrained network under a rule, in float64."""
    made = tiny.resolved(text, arch=tiny.arch(net))
    shared = made.shared_options
    site = site or shared.site
    loss = LocalLoss(site, shared.penalty if penalty is None else penalty, shared.penalty_reduction)
    params = double(made.params()) if params is None else params
    subject = NetworkSubject(made.net, params, made.rule, double(made.state()), loss)
    options = MeasureOptions(labels=made.rule.labels(made.net.depth), site=site)
    return made, subject, measure(subject, regroup([data_for(made, count)]), options)


def cosine(left, right):
    a, b = (torch.cat([value.flatten() for value in each]) for each in (left, right))
    return float(a @ b / (a.norm() * b.norm()))


def by_hand(made, credits, site, x, y, penalty=0.0):
    """update_cos of one batch by plain autograd: local losses of the blocks, and the mean loss."""
    net = made.net.in_training()
    params = {name: leaf.clone().requires_grad_() for name, leaf in double(made.params()).items()}
    mean_loss = F.cross_entropy(net.forward(params, x), y)
    true = torch.autograd.grad(mean_loss, params.values(), allow_unused=True, materialize_grads=True)
    true = dict(zip(params, true, strict=True))
    found, h = [], net.stem(part(params, "stem"), x).detach()
    for block in range(net.depth):
        own = {name: leaf for name, leaf in params.items() if name.startswith(f"blocks.{block}.")}
        f = net.branch(part(params, f"blocks.{block}"), h)
        credit = credits[block if site == "input" else block + 1]
        loss = ((f * credit).flatten(1).sum(1) + penalty * f.flatten(1).square().sum(1)).mean()
        gradients = torch.autograd.grad(loss, own.values(), allow_unused=True, materialize_grads=True)
        found.append(cosine(gradients, [true[name] for name in own]))
        h = (h + f).detach()
    return found


@pytest.mark.parametrize("net", ["resmlp", "vit_mini", "small_cnn"])
@pytest.mark.parametrize("text", ["dfa", "dfa:site=input", "fa", "bp"])
def test_update_cos_of_own_rules_is_that_of_plain_autograd(text, net):
    made, _, found = measured(text, net, penalty=0.05)
    x, y = (each[:128] for each in data_for(made))
    # As in training: a norm that uses the batch's statistics does so.
    subject = NetworkSubject(made.net.in_training(), double(made.params()), made.rule, double(made.state()))
    credits = subject.credit(subject.run(x, y))
    for name, penalty in (("update_cos", 0.0), ("update_cos_full", 0.05)):
        expected = by_hand(made, credits, made.shared_options.site, x, y, penalty)
        np.testing.assert_allclose(found.arrays[name][:, 0], expected, atol=1e-10)


def test_used_cos_is_taken_where_the_blocks_output_lands():
    for site in ("output", "input"):
        made, subject, found = measured("dfa", site=site)
        seen = subject.run(*data_for(made))
        credits = subject.credit(seen)
        for block in range(made.net.depth):
            used = credits[block + 1] if site == "output" else credits[block]
            expected = F.cosine_similarity(used, seen.reference[block + 1], dim=-1)
            np.testing.assert_allclose(found.arrays["used_cos"][block], expected, atol=1e-10)
            ratio = used.norm(dim=1) / seen.reference[block + 1].norm(dim=1)
            np.testing.assert_allclose(found.arrays["credit_ratio"][block], ratio, rtol=1e-10)


def test_exact_credit_at_the_input_is_aligned_by_its_cosine_but_not_where_it_is_used():
    made = tiny.resolved("bp")
    params = {n: leaf * (6 if ".w" in n or "blocks" in n else 1) for n, leaf in double(made.params()).items()}
    _, _, found = measured("bp", site="input", params=params)
    np.testing.assert_allclose(found.arrays["credit_cos"], 1.0, atol=1e-12)
    assert found.arrays["used_cos"].mean() < 0.95
    assert found.arrays["update_cos"].mean() < 0.95
    _, _, at_output = measured("bp", params=params)
    np.testing.assert_allclose(at_output.arrays["used_cos"], 1.0, atol=1e-12)
    np.testing.assert_allclose(at_output.arrays["update_cos"], 1.0, atol=1e-12)


def gradients(model, x, y):
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    return found


@pytest.mark.parametrize(
    ("body", "lie"),
    [
        pytest.param(body, lie, marks=() if body == "mlp" or lie == "function" else pytest.mark.slow)
        for body in lying_models.BRANCHES
        for lie in ("function", "full_hook", "tensor_hook", "dfa")
    ],
)
def test_update_cos_of_foreign_code_is_that_of_its_grad(body, lie):
    model = lying_models.make(body, lie).double()
    x, y = lying_models.batch(body)
    report = wb.diagnose(model, [(x, y)])
    first = x[:128].double(), y[:128]
    made, true = gradients(model, *first), gradients(lying_models.plain_copy(model).double(), *first)
    expected = [
        cosine(*([each[n] for n in true if n.startswith(f"blocks.{block}.")] for each in (made, true)))
        for block in range(3)
    ]
    np.testing.assert_allclose(report.measurements.arrays["update_cos"][:, 0], expected, atol=1e-9)
    assert (report.measurements.arrays["null_update_std"] > 0).all()


def foreign(body, lie="function", count=512):
    """A module whose backward pass is not the derivative, as a subject, with its groups."""
    model, (x, y) = lying_models.make(body, lie).double(), lying_models.batch(body, count)
    subject = ModuleSubject(model, [f"blocks.{block}" for block in range(3)], "branch")
    return subject, regroup([(x.double(), y)])


SUBJECTS = {
    **{f"{text} on {net}": (text, net) for text, net in (("usf", "resmlp"), ("fa", "resmlp"), ("fa", "small_cnn"))},
    "fa_layers on vit_mini": ("fa_layers", "vit_mini"),
    **{f"foreign {body}": body for body in ("mlp", "batchnorm", "transformer")},
}


def subject_of(name, count=512):
    if name.startswith("foreign"):
        return foreign(SUBJECTS[name], count=count)
    made, subject, _ = measured(*SUBJECTS[name])
    return subject, regroup([data_for(made, count)])


@pytest.mark.parametrize("name", SUBJECTS)
def test_push_is_the_transpose_of_pull(name):
    subject, groups = subject_of(name, 256)
    found = subject.run(*groups[0], backward=True, updates=True)
    draws = torch.Generator().manual_seed(5)
    for block in range(len(found.states) - 1):
        credit = torch.randn(found.states[block + 1].shape, generator=draws, dtype=torch.float64)
        own = [leaf for leaf, part in found.updates.parts.items() if part == block]
        direction = {leaf: torch.randn_like(found.updates.true[leaf]) for leaf in own}
        pulled = found.updates.maps.pull(block, credit)
        left = sum((pulled[leaf] * direction[leaf]).sum() for leaf in own)
        right = (credit * found.updates.maps.push(block, direction)).sum()
        assert float(left) == pytest.approx(float(right), rel=1e-6)


@pytest.mark.parametrize(
    "name", [n if n in ("usf on resmlp", "foreign mlp") else pytest.param(n, marks=pytest.mark.slow) for n in SUBJECTS]
)
def test_the_null_of_updates_has_the_width_of_rotated_credits_over_all_groups(name, monkeypatch):
    """Against what it replaces: every rotated credit sent back through the block, the same rotation in all groups."""
    subject, groups = subject_of(name)
    monkeypatch.setattr(NetworkSubject, "fresh_state", lambda self, draw: None)
    found = measure(subject, groups, MeasureOptions(site="output", lesions=False))
    passes = [subject.run(*group, backward=True, updates=True) for group in groups]
    credits = [seen.backward or subject.credit(seen) for seen in passes]
    space = subject.rotation_space
    for block, width in enumerate(found.arrays["null_update_std"]):
        names = [leaf for leaf, part in passes[0].updates.parts.items() if part == block]
        means = []
        for draw in range(150):
            turned = [rotate(credit[block + 1], space, torch.Generator().manual_seed(draw)) for credit in credits]
            cosines = [
                part_cosine(seen.updates.maps.pull(block, each), seen.updates.true, names)
                for seen, each in zip(passes, turned, strict=True)
            ]
            means.append(torch.stack(cosines).mean())
        assert width == pytest.approx(float(torch.stack(means).square().mean().sqrt()), rel=0.25)


@pytest.mark.parametrize("net", ["resmlp", pytest.param("vit_mini", marks=pytest.mark.slow)])
def test_the_null_of_updates_follows_fresh_credits_sent_back(net):
    made, subject, found = measured("dfa", net, count=512)
    groups = list(regroup([data_for(made, 512)]))[:FRESH_GROUPS]
    passes = [subject.run(*group, updates=True) for group in groups]
    for block in range(made.net.depth):
        names = [leaf for leaf, part in passes[0].updates.parts.items() if part == block]
        means = []
        for draw in range(20):
            state = subject.fresh_state(draw)
            sent = [seen.updates.maps.pull(block, subject.credit_with(seen, state)[block + 1]) for seen in passes]
            cosines = [part_cosine(own, seen.updates.true, names) for own, seen in zip(sent, passes, strict=True)]
            means.append(float(torch.stack(cosines).mean()))
        draws = found.arrays["null_update"][block]
        np.testing.assert_allclose(draws, means, atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_the_cosine_of_a_part_is_that_of_one_long_vector(scale):
    draws = torch.Generator().manual_seed(2)
    shapes = {"a": (3, 4), "b": (5,), "zero": (2,)}
    left, right = ({n: torch.randn(s, generator=draws).double() for n, s in shapes.items()} for _ in range(2))
    left["zero"].zero_()
    a, b = (torch.cat([leaves[name].flatten() for name in shapes]) for leaves in (left, right))
    scaled = {name: leaf * scale for name, leaf in left.items()}
    assert float(part_cosine(scaled, right, list(shapes))) == pytest.approx(float(F.cosine_similarity(a, b, dim=0)))
    assert part_cosine(scaled, right, ["zero"]).isnan()
    assert part_cosine({**left, "b": left["b"] * torch.inf}, right, list(shapes)).isnan()
    assert part_cosine({"a": left["a"]}, right, ["a", "b"]).isnan()


def accumulating(parts):
    def update(model, batch):
        x, y = batch
        for index in range(parts):
            F.cross_entropy(model(x[index::parts]), y[index::parts]).div(parts).backward()

    return update


def test_gradient_accumulation_gives_the_same_update_cos():
    model, data = lying_models.make("batchnorm", "function").double(), [lying_models.batch("batchnorm")]
    plain = wb.diagnose(model, data).measurements.arrays["update_cos"]
    for parts in (1, 4):
        found = wb.diagnose(model, data, update=accumulating(parts)).measurements.arrays["update_cos"]
        np.testing.assert_allclose(found, plain, atol=1e-9)
    for name, value in wb.update_alignment(model, lying_models.batch("batchnorm", 128), accumulating(4)).items():
        assert value < 1 + 1e-9, name


def test_an_update_in_training_mode_is_compared_in_training_mode():
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(8)  # It removes its input's mean: a bias before it would have no gradient.
    model = nn.Sequential(nn.Linear(6, 8, bias=False), norm, nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 4)).double()

    def update(module, batch):
        module.train()
        F.cross_entropy(module(batch[0]), batch[1]).backward()

    found = wb.update_alignment(model.eval(), (torch.randn(128, 6), torch.randint(4, (128,))), update)
    np.testing.assert_allclose(list(found.values()), 1.0, atol=1e-9)
    assert not model.training
    assert model[1].num_batches_tracked == 0


def test_models_without_blocks_have_an_update_cos_for_each_parameter():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), lying_models.FeedbackLinear(8, 4))
    found = wb.update_alignment(model, (torch.randn(128, 6), torch.randint(4, (128,))))
    assert set(found) == {name for name, _ in model.named_parameters()}
    assert found["2.weight"] == pytest.approx(1)
    assert abs(found["0.weight"]) < 0.999


def test_an_update_that_steps_is_refused_and_the_model_is_restored():
    model = nn.Linear(6, 4)
    before = model.weight.detach().clone()

    def update(module, batch):
        F.cross_entropy(module(batch[0]), batch[1]).backward()
        torch.optim.SGD(module.parameters(), lr=1).step()

    with pytest.raises(wb.InputError, match="optimiser"):
        wb.update_alignment(model, (torch.randn(128, 6), torch.randint(4, (128,))), update)
    assert torch.equal(model.weight, before)


def test_detached_blocks_have_no_update_of_their_own():
    report = wb.diagnose(lying_models.make("mlp", "detached"), [lying_models.batch("mlp")])
    found = report.measurements.arrays["update_cos"]
    assert np.isfinite(found[-1]).all() or np.isnan(found).all()


TOKENS, FEATURES, CLASSES = 24, 16, 8


def token_gradients(count=256):
    """Gradients of a small causal transformer's loss at one of its states, and the errors of its outputs."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(FEATURES, 2, 32, dropout=0.0, batch_first=True, norm_first=True).double()
    head = nn.Linear(FEATURES, CLASSES).double()
    h = torch.randn(count, TOKENS, FEATURES, dtype=torch.float64, requires_grad=True)
    mask = nn.Transformer.generate_square_subsequent_mask(TOKENS).double()
    logits = head(layer(h, src_mask=mask))
    y = torch.randint(CLASSES, (count, TOKENS))
    loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum")
    error = logits.detach().softmax(-1) - F.one_hot(y, CLASSES)
    return torch.autograd.grad(loss, h)[0], error


def test_the_rotation_null_of_tokens_has_the_width_of_fresh_feedback():
    gradient, error = token_gradients()

    def credit():
        return error @ torch.randn(CLASSES, FEATURES, dtype=torch.float64)

    drawn = torch.stack([F.cosine_similarity(credit().flatten(1), gradient.flatten(1)).mean() for _ in range(400)])
    widths = torch.stack([haar_std(credit(), gradient, "features") for _ in range(20)])
    assert float(widths.mean() / drawn.std()) == pytest.approx(1, abs=0.15)
    # One rotation of tokens and features together is far too narrow.
    assert haar_std(credit(), gradient, "all") < 0.5 * drawn.std()


def test_feedback_that_was_never_trained_exceeds_the_threshold_in_at_most_2_percent():
    gradient, error = token_gradients(128)
    above = 0
    for _ in range(200):
        credit = error @ torch.randn(CLASSES, FEATURES, dtype=torch.float64)
        mean = F.cosine_similarity(credit.flatten(1), gradient.flatten(1)).mean()
        above += bool(mean >= DiagnosticThresholds().null_z * haar_std(credit, gradient, "features"))
    assert above <= 4


@pytest.mark.parametrize("shape", [(40, 6), (40, 5, 6), (40, 6, 3, 3)])
@pytest.mark.parametrize("space", ["features", "all"])
def test_rotations_keep_norms_and_have_the_closed_forms_width(shape, space):
    torch.manual_seed(0)
    credit, gradient = torch.randn(shape).double(), torch.randn(shape).double() + 0.5
    credit = credit + gradient
    drawn = [rotate(credit, space, torch.Generator().manual_seed(draw)) for draw in range(600)]
    torch.testing.assert_close(drawn[0].flatten(1).norm(dim=1), credit.flatten(1).norm(dim=1))
    means = torch.stack([F.cosine_similarity(each.flatten(1), gradient.flatten(1)).mean() for each in drawn])
    assert float(means.std() / haar_std(credit, gradient, space)) == pytest.approx(1, abs=0.12)


def test_the_critical_score_of_fresh_feedback_is_students():
    assert fresh_critical(20, 3) == pytest.approx(3.45, abs=0.01)
    assert fresh_critical(10, 3) == pytest.approx(4.09, abs=0.01)


def test_untrained_feedback_is_carried_by_the_skip_path():
    claim = judge(measured("kp", count=1024)[2]).claims["alignment"]
    assert claim.name == "carried by the skip path", claim.reason
    for model in (lying_models.make("mlp", None), lying_models.make("transformer", None)):
        top = wb.diagnose(
            model,
            [lying_models.batch(model.body, 1024)],
            credit=lambda seen: [seen.reference[-1]] * len(seen.reference),
            exact=[-1],
        )
        assert top.claims["alignment"].name == "carried by the skip path", top.claims["alignment"].reason


@pytest.mark.parametrize("rule", ["usf", "frsf", "brsf"])
def test_untrained_sign_rules_are_aligned_by_construction(rule):
    claim = judge(measured(rule, count=1024)[2]).claims["alignment"]
    assert claim.outcome == "trivial"
    assert "aligned by construction (signs)" in claim.reason


def test_users_can_draw_fresh_feedback():
    model, data = lying_models.make("mlp", None), [lying_models.batch("mlp")]

    def credit_with(generator):
        matrices = [torch.randn(lying_models.CLASSES, lying_models.D, generator=generator) for _ in range(4)]
        return lambda seen: [seen.error @ matrix.to(seen.error.dtype) for matrix in matrices]

    mine = credit_with(torch.Generator().manual_seed(9))
    found = wb.diagnose(model, data, credit=mine, fresh=credit_with).measurements.arrays
    assert found["null_fresh"].shape == (4, 20)
    assert found["null_used_fresh"].shape == (3, 20)
    assert abs(found["null_fresh"].mean()) < 0.1
    assert (found["null_fresh"].std(1) > 0.01).all()


def test_exact_layers_and_labels_of_a_users_credit_are_not_counted():
    model, data = lying_models.make("mlp", None), [lying_models.batch("mlp")]
    given = {"credit": lambda seen: seen.reference}
    assert wb.diagnose(model, data, **given, exact=[3]).quantities.aggregates.deep_layers == (1, 2)
    labels = ["none", "exact", "fitted", "exact"]
    assert wb.diagnose(model, data, **given, labels=labels).quantities.aggregates.deep_layers == (2,)
    with pytest.raises(wb.InputError, match="0 to 3"):
        wb.diagnose(model, data, **given, exact=[7])
    with pytest.raises(wb.InputError, match="sure"):
        wb.diagnose(model, data, **given, labels=["sure"] * 4)
    with pytest.raises(wb.InputError, match="null_space"):
        wb.diagnose(model, data, **given, null_space="tokens")


def test_token_cos_is_the_mean_over_tokens():
    model, data = lying_models.make("transformer", None), [lying_models.batch("transformer")]
    found = wb.diagnose(model, data, credit=lambda seen: [g * torch.rand(1, 5, 1) for g in seen.reference]).measurements
    np.testing.assert_allclose(found.arrays["token_cos"], 1.0, atol=1e-9)
    assert found.arrays["credit_cos"].mean() < 0.999

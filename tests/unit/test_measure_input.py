"""Unusable models and batches are refused with a clear message, and the model's state is restored."""

from __future__ import annotations

import copy
import hashlib

import foreign_models as models
import numpy as np
import pytest
import torch
from test_measure import same, samples, state_of
from torch import nn

import walkback as wb
from walkback.core.measurements import GROUP
from walkback.measure.inputs import regroup


@pytest.fixture
def model():
    torch.manual_seed(0)
    return models.Reference()


def refused(model, batches, sentence, **named):
    """The message of the error that diagnosing raises; the model's state must be unchanged."""
    before = copy.deepcopy(state_of(model))
    with pytest.raises(wb.InputError, match=sentence) as caught:
        wb.diagnose(model, batches, **named)
    assert same(before, state_of(model))
    assert caught.value.exit_code == 3
    return str(caught.value)


def test_fewer_than_two_groups_are_refused_and_fewer_than_eight_give_a_warning(model):
    for count in (1, GROUP, 2 * GROUP - 1):
        refused(model, [samples(count)], rf"{count} samples.*2 groups of 128.*Give 8 groups \(1024")
    few = wb.diagnose(model, [samples(7 * GROUP)])
    assert "Only 7 groups" in str(few)
    assert "Only 8 groups" not in str(wb.diagnose(model, [samples(8 * GROUP)]))


def test_an_empty_batch_is_refused_by_its_index(model):
    x, y = samples(300)
    refused(model, [(x[:200], y[:200]), (x[:0], y[:0]), (x[200:], y[200:])], r"batch 1 \(counted from 0\) is empty")
    refused(model, [], "No evaluation batches")
    refused(model, iter(()), "No evaluation batches")


def test_repeated_samples_are_refused_and_the_first_is_named(model):
    x, y = samples(300)
    again = torch.cat([x, x[5:8]]), torch.cat([y, y[5:8]])
    message = refused(model, [again], "3 of 303 evaluation samples repeat an earlier one")
    assert "sample 300 (group 2) is sample 5 (group 0) again" in message
    assert "give each sample once" in message
    # A loader that starts over.
    refused(model, [(x, y), (x, y)], "300 of 600 .* sample 300 .* is sample 0 ")
    # The same input with another label is another sample.
    wb.diagnose(model, [(torch.cat([x, x[:1]]), torch.cat([y, (y[:1] + 1) % 4]))])


def test_all_inputs_of_a_sample_are_compared_for_repeats():
    one, two = torch.zeros(300, 2), torch.arange(600.0).reshape(300, 2)
    groups = regroup([((one, {"b": two}), torch.zeros(300, dtype=torch.long))])
    assert [len(x[0]) for x, _ in groups] == [128, 128, 44]
    with pytest.raises(wb.InputError, match="299 of 300"):
        regroup([((one, {"b": one}), torch.zeros(300, dtype=torch.long))])
    # Different rows of one data set may be equal.
    assert len(regroup([(one, None)], distinct=True)) == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_every_number_format_is_hashed(dtype):
    x = torch.arange(2 * GROUP * 12).reshape(-1, 12) % 251
    x = (torch.arange(2 * GROUP)[:, None] // 2 ** torch.arange(12) % 2 == 1) if dtype == torch.bool else x.to(dtype)
    groups = regroup([(x, None)], distinct=True)
    changed = x.clone()
    changed[-1, -1] = ~changed[-1, -1] if dtype == torch.bool else 7
    assert groups.sample_hash == regroup([(x[:100], None), (x[100:], None)], distinct=True).sample_hash
    assert groups.sample_hash != regroup([(changed, None)], distinct=True).sample_hash


def test_the_hash_is_that_of_the_raw_bytes_group_by_group():
    x, y = samples(300)
    raw = b"".join(part[start : start + GROUP].numpy().tobytes() for start in (0, 128, 256) for part in (x, y))
    assert regroup([(x, y)]).sample_hash == hashlib.sha256(raw).hexdigest()


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_inputs_that_are_not_finite_are_refused_by_index(model, value):
    x, y = samples(300)
    x[[40, 41], 2] = value
    refused(model, [(x, y)], "2 of 300 evaluation samples hold NaN or infinity; the first is sample 40")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda y: y + 1, "whole numbers from 0 to 3"),
        (lambda y: y - 1, "whole numbers from 0 to 3"),
        (lambda y: y.float(), "whole numbers from 0 to 3"),
        (lambda y: torch.eye(4, dtype=torch.long)[y], r"Labels have shape \(\d+, 4\)"),
        (lambda y: None, "need labels"),
        (lambda y: y[:-1], "300 samples but 299 labels"),
    ],
)
def test_labels_that_are_not_classes_are_refused(model, change, sentence):
    x, y = samples(300)
    refused(model, [(x, change(y))], sentence)


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_weights_that_are_not_finite_are_refused_by_name(model, value):
    with torch.no_grad():
        model.blocks[1].net[1].weight[2, 3] = value
    refused(model, [samples()], r"'blocks.1.net.1.weight' holds NaN or infinity in 1 of 144 places")


def test_broken_running_statistics_are_refused_and_masks_are_not():
    model = models.Convolutions()
    model.stage1[0].norm.running_var[1] = torch.nan
    refused(model, [samples(300, (3, 5, 5))], r"'stage1.0.norm.running_var'")
    model = models.Reference()
    model.register_buffer("mask", torch.full((3,), -torch.inf))
    wb.diagnose(model, [samples()])


def test_a_model_on_several_devices_or_without_weights_is_refused(model):
    model.blocks[2].to("meta")
    with pytest.raises(wb.InputError, match=r"'embed.weight' on cpu, 'blocks.2.net.0.weight' on meta.*one device"):
        wb.diagnose(model, [samples()])
    assert model.embed.weight.requires_grad
    assert model.training
    with pytest.raises(wb.InputError, match="has no weights"):
        wb.diagnose(model.to("meta"), [samples()])


def test_a_model_of_whole_numbers_is_refused():
    class Integers(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Identity() for _ in range(3))
            self.weight = nn.Parameter(torch.ones(6, 4, dtype=torch.int8), requires_grad=False)

        def forward(self, x):
            return x @ self.weight.float()

    refused(Integers(), [samples()], r"no floating-point parameters \(only int8\).*quantised")
    refused(nn.Sequential(nn.Flatten()), [samples()], "none at all")


class WrongReturnHidden(models.Reference):
    """A model whose `return_hidden` gives wrong values."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x, return_hidden=False):
        output = super().forward(x, return_hidden)
        return self.answer(*output) if return_hidden else output


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda logits, hiddens: logits, r"returns a tensor of shape \(128, 4\); expected \(logits, \[h_0"),
        (lambda logits, hiddens: (logits, None), "returns .*NoneType"),
        (lambda logits, hiddens: (logits, hiddens[1:]), "returns 3 hidden states with 3 blocks.*, 4"),
        (lambda logits, hiddens: (logits, hiddens[::-1]), "another h_0 than the one that block 0 gets"),
        (lambda logits, hiddens: (logits, [*hiddens[:3], hiddens[3] * 2]), "neither"),
        (lambda logits, hiddens: (logits, [nn.functional.normalize(h) for h in hiddens]), "another h_0"),
    ],
)
def test_a_wrong_return_hidden_is_refused_unless_blocks_are_named(answer, sentence):
    refused(WrongReturnHidden(answer), [samples()], f"were not found.*{sentence}")
    assert wb.diagnose(WrongReturnHidden(answer), [samples()], blocks="blocks").flags["D1"].status == "clear"


def test_a_single_block_needs_a_model_that_returns_its_states(model):
    report = wb.diagnose(models.Reference(depth=1), [samples()])
    (text,) = report.measurements.facts["found"]
    assert "1 blocks" in text
    assert "branch" in text

    class WithoutReturnHidden(models.Reference):
        def forward(self, x):
            return super().forward(x)

    refused(WithoutReturnHidden(depth=1), [samples()], "single block.*return_hidden=True")


def test_unknown_blocks_are_refused(model):
    refused(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)), [samples()], "were not found.*blocks=")
    refused(model, [samples()], "no such module", blocks="encoder.layers")
    refused(model, [samples()], "neither", blocks=["embed", "out_head"])


def test_batches_the_model_cannot_take_are_refused(model):
    refused(model, [samples(shape=(7,))], r"Reference fails on a batch with inputs of shape \(128, 7\)")
    x, y = samples()
    refused(model, [{"pixels": x, "labels": y}], "unexpected keyword argument 'pixels'")
    refused(model, [((x, y[:-1]), y)], r"hold \[299, 300\] samples")
    refused(
        model,
        [(x, y)],
        "step_fn returned float; expected a tensor",
        step_fn=lambda model, batch: model(batch[0]).mean().item(),
    )

    class Fixed(models.Reference):
        def forward(self, x, return_hidden=False):
            return super().forward(x.view(128, 6), return_hidden)

    refused(Fixed(), [(x, y)], "of any number of samples")


class BatchStatistics(nn.Module):
    """A model with batch statistics also in evaluation, in the stem or in the head."""

    def __init__(self, where, tracked=False):
        super().__init__()
        self.stem, self.head = nn.Linear(6, 12), nn.Linear(12, 4)
        self.layers = nn.ModuleList(models.Whole(12) for _ in range(3))
        self.norms = nn.ModuleDict({where: nn.BatchNorm1d(12, track_running_stats=tracked)})

    def forward(self, x):
        h = self.stem(x)
        h = self.norms["stem"](h) if "stem" in self.norms else h
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norms["head"](h) if "head" in self.norms else h)


@pytest.mark.parametrize(("where", "what"), [("stem", "h_0"), ("head", "output")])
def test_batch_statistics_are_refused(where, what):
    message = refused(BatchStatistics(where), [samples()], f"a sample's {what} changes when other samples")
    assert "track_running_stats=True" in message
    wb.diagnose(BatchStatistics(where, tracked=True), [samples()])


def test_attention_over_samples_is_refused():
    torch.manual_seed(0)
    message = refused(models.Encoder(), [samples()], "a sample's h_1 changes when other samples")
    assert "batch_first=True" in message
    refused(models.Encoder(batch_first=False), [samples(shape=(5, 6))], "a sample's h_1 changes")


@pytest.mark.parametrize("weight", [0.1, 1e-3])
def test_a_weak_influence_between_samples_is_refused(weight):
    class Mixing(models.Reference):
        def forward(self, x, return_hidden=False):
            return super().forward(x + weight * x.mean(0), return_hidden)

    torch.manual_seed(0)
    refused(Mixing(), [samples()], "a sample's h_0 changes when other samples", blocks="blocks")


def test_states_whose_first_axis_is_not_the_sample_are_refused():
    class Transposed(models.Encoder):
        def forward(self, x):
            return self.head(self.encoder(self.stem(x).transpose(0, 1)).mean(0))

    refused(Transposed(batch_first=False), [samples(shape=(5, 6))], r"state of shape \(5, 128, 16\) for 128 samples")


def test_a_model_that_is_random_in_evaluation_is_refused():
    class Noisy(models.Reference):
        def forward(self, x, return_hidden=False):
            return super().forward(nn.functional.dropout(x, 0.3, training=True), return_hidden)

    refused(Noisy(), [samples()], "random in evaluation mode", blocks="blocks")


def test_a_model_that_cannot_run_in_float64_is_measured_without_a_replay(model):
    class AlwaysFloat32(models.Reference):
        def forward(self, x, return_hidden=False):
            return super().forward(x.float(), return_hidden)

    report = wb.diagnose(AlwaysFloat32(), [samples()], 0.5, 0.4)
    assert report.quantities.top.direction.status == "missing"
    assert "float64 replay: the model cannot run in float64" in report.measurements.facts["skipped"][-1]


def test_a_buffer_that_the_model_replaces_is_restored():
    class Counting(models.Reference):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x, return_hidden=False):
            self.seen = self.seen + len(x)
            return super().forward(x, return_hidden)

    model = Counting()
    before = model.seen
    wb.diagnose(model, [samples()])
    assert model.seen is before
    np.testing.assert_array_equal(model.seen, 0)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_diagnosing_works_inside_no_grad(model, mode):
    plain = wb.diagnose(model, [samples()])
    with mode():
        batch = tuple(part.clone() for part in samples())
        inside = wb.diagnose(model, [batch])
    assert inside.flags == plain.flags

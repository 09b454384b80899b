"""Models and inputs of odd kinds: measured, or refused with one sentence."""

from __future__ import annotations

import warnings
from itertools import pairwise

import lying_models
import numpy as np
import pytest
import torch
from torch import nn

import walkback as wb

X, Y = lying_models.batch("mlp")


def model():
    return lying_models.make("mlp", None)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.int8, torch.uint8])
def test_labels_of_any_integer_type_are_labels(dtype):
    expected = wb.diagnose(model(), [(X, Y)]).measurements
    found = wb.diagnose(model(), [(X, Y.to(dtype))]).measurements
    np.testing.assert_array_equal(found.arrays["grad_norm"], expected.arrays["grad_norm"])


def test_boolean_labels_are_0_and_1():
    found = wb.diagnose(model(), [(X, Y > 1)]).measurements
    expected = wb.diagnose(model(), [(X, (Y > 1).long())]).measurements
    np.testing.assert_array_equal(found.arrays["loss"], expected.arrays["loss"])


def test_labels_that_are_not_whole_numbers_are_refused():
    with pytest.raises(wb.InputError, match="0 to 3"):
        wb.diagnose(model(), [(X, Y.float())])


class Ending(nn.Module):
    """A model whose output is changed at the end."""

    def __init__(self, change):
        super().__init__()
        self.inner, self.change = model(), change
        self.blocks = self.inner.blocks

    def forward(self, x):
        return self.change(self.inner(x))


def test_a_detached_output_is_measured_without_a_backward_of_its_own():
    expected = wb.diagnose(model(), [(X, Y)]).measurements
    found = wb.diagnose(Ending(torch.detach), [(X, Y)]).measurements
    np.testing.assert_allclose(found.arrays["grad_norm64"], expected.arrays["grad_norm64"])
    assert any("no gradient" in each for each in found.facts["skipped"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda out: torch.quantize_per_tensor(out, 0.1, 0, torch.qint8), "logits"),
        (lambda out: out.round().long(), "logits"),
        (lambda out: out.detach().numpy(), "logits"),
        (lambda out: torch.from_numpy(out.detach().numpy().copy()), "torch operations"),
    ],
)
def test_outputs_without_a_derivative_are_refused(change, words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(wb.InputError, match=words):
            wb.diagnose(Ending(change), [(X, Y)])


def test_a_model_under_inference_mode_is_measured():
    class Inference(Ending):
        def forward(self, x):
            with torch.inference_mode():
                return self.inner(x)

    found = wb.diagnose(Inference(None), [(X, Y)]).measurements
    expected = wb.diagnose(model(), [(X, Y)]).measurements
    np.testing.assert_allclose(found.arrays["grad_norm64"], expected.arrays["grad_norm64"])


def test_a_caller_in_inference_mode_gets_the_same():
    expected = wb.diagnose(model(), [(X, Y)]).measurements
    given = model()
    with torch.inference_mode():
        found = wb.diagnose(given, [(X.clone(), Y.clone())]).measurements
    np.testing.assert_array_equal(found.arrays["grad_norm"], expected.arrays["grad_norm"])


def test_a_model_made_in_inference_mode_is_refused():
    with torch.inference_mode(), pytest.raises(wb.InputError, match="inference mode"):
        wb.diagnose(model(), [(X, Y)])


def test_a_script_module_is_refused_with_a_sentence():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)))
        with pytest.raises(wb.InputError, match="ScriptModule"):
            wb.diagnose(scripted, [(X, Y)])


def test_blocks_none_means_that_they_are_found():
    assert wb.diagnose(model(), [(X, Y)], blocks=None).measurements.depth == 3


@pytest.mark.parametrize("blocks", [7, [], [3], object()])
def test_blocks_that_are_no_modules_are_refused(blocks):
    with pytest.raises(wb.InputError, match="blocks"):
        wb.diagnose(model(), [(X, Y)], blocks=blocks)


def test_an_unknown_pool_is_refused():
    with pytest.raises(wb.InputError, match="pool"):
        wb.diagnose(model(), [(X, Y)], pool="x")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x.to_sparse(), "to_dense"),
        (lambda x: x.to("meta"), "meta"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "dequantize"),
    ],
)
def test_inputs_that_are_no_dense_numbers_are_refused(change, words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bad = change(X)
        with pytest.raises(wb.InputError, match=words):
            wb.diagnose(model(), [(bad, Y)])


def test_a_first_block_on_the_raw_input_is_measured():
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3)]
    plain = nn.Sequential(*blocks, nn.Linear(6, 4))
    report = wb.diagnose(plain, [(X, Y)], blocks=["0", "1", "2"])
    assert report.measurements.depth == 3
    errors = np.nanmedian(report.measurements.arrays["reference_error"], axis=1)
    assert (errors < 1e-5).all()


def test_a_plain_mlp_without_residuals_is_measured():
    torch.manual_seed(0)
    widths = (6, 10, 8, 8, 4)
    layers = [nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in pairwise(widths[:-1])]
    report = wb.diagnose(nn.Sequential(*layers, nn.Linear(8, 4)), [(X, Y)])
    assert report.measurements.depth == 3
    assert all(layer.direction.status == "valid" for layer in report.quantities.layers)

"""A first convolution's weight gradient as a matmul with patches."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

import tiny
from walkback.training import fleet
from walkback.training.gpu.patch_convolution import CONV_BACKWARD, MAX_PATCH_SIZE, patch_weight_gradient, use_patches
from walkback.training.gpu.winograd import use_winograd


def drawn(*shapes):
    draws = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=draws, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("groups", [1, 2, 5])
@pytest.mark.parametrize("side", [(8, 8), (7, 10), (3, 4)])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [((3, 3), (2, 2), (1, 1)), ((3, 3), (1, 1), (1, 1)), ((2, 3), (1, 2), (0, 1)), ((1, 1), (1, 1), (0, 0))],
)
def test_the_weight_gradient_equals_torchs(groups, side, kernel, stride, padding):
    x, weight = drawn((4, groups * 3, *side), (groups * 6, 3, *kernel))
    weight.requires_grad_()
    y = F.conv2d(x, weight, stride=stride, padding=padding, groups=groups)
    (credit,) = drawn(tuple(y.shape))
    (expected,) = torch.autograd.grad(y, weight, credit)
    torch.testing.assert_close(patch_weight_gradient(credit, x, kernel, stride, padding, groups), expected)


def backward_pass(x, weight, credit, mask=(False, True, True), groups=3, dilation=(1, 1)):
    back = CONV_BACKWARD(
        credit, x, weight, [len(weight)], [2, 2], [1, 1], list(dilation), False, [0, 0], groups, list(mask)
    )
    return [gradient for gradient, wanted in zip(back, mask, strict=True) if wanted]


def sizes(inner=3, groups=3):
    return drawn((2, groups * inner, 8, 8), (groups * 4, inner, 3, 3), (2, groups * 4, 4, 4))


@pytest.mark.parametrize("mask", [(False, True, True), (False, True, False)])
def test_a_program_is_rewritten_including_the_biass_gradient(mask):
    inputs = sizes()
    program = make_fx(lambda *given: backward_pass(*given, mask))(*inputs)
    assert use_patches(program) == 1
    assert not [node for node in program.graph.nodes if "convolution" in str(node.target)]
    for ours, theirs in zip(program(*inputs), backward_pass(*inputs, mask), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("inputs", "settings"),
    [
        (sizes(), {"mask": (True, True, True)}),
        (sizes(), {"mask": (False, False, True)}),
        (sizes(groups=1), {"groups": 1}),
        (sizes(inner=MAX_PATCH_SIZE // 9 + 1), {}),
        (drawn((2, 9, 8, 8), (12, 3, 3, 3), (2, 12, 3, 3)), {"dilation": (2, 2)}),
    ],
    ids=["input's gradient", "no gradient", "one model", "large patches", "dilated"],
)
def test_other_backward_passes_are_not_rewritten(inputs, settings):
    program = make_fx(lambda *given: backward_pass(*given, **settings))(*inputs)
    assert use_patches(program) == 0
    for ours, theirs in zip(program(*inputs), backward_pass(*inputs, **settings), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("method", ["bp", "dfa:shell=method"])
def test_a_fleets_step_is_the_same_with_patches_in_the_stem(method, monkeypatch):
    resolved_runs = [tiny.resolved(method, arch=tiny.arch("small_cnn"), seeds=seed) for seed in (1, 2, 3)]
    traced = []
    trace_program = fleet.trace_program

    def keep_program(function, inputs):
        traced.append((trace_program(function, inputs), inputs))
        return traced[-1][0]

    monkeypatch.setattr(fleet, "trace_program", keep_program)
    driver = fleet.Fleet(resolved_runs, resolved_runs[0].source.load(None), tiny.CPU)
    driver.train_epoch(lambda _steps: None)
    ((program, inputs),) = traced
    expected = tree_leaves(program(*inputs))
    use_winograd(program)
    assert use_patches(program) == 1
    remaining = [node for node in program.graph.nodes if "convolution" in str(node.target)]
    assert len(remaining) == 1, "only the stem's forward pass is still a convolution"
    for ours, theirs in zip(tree_leaves(program(*inputs)), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)

"""Winograd's algorithm computes the same convolutions as torch, alone and inside a fleet's traced step."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

import tiny
from walkback.training import fleet
from walkback.training.gpu.winograd import (
    batch_chunks,
    convolve,
    input_gradient,
    kernel_transform,
    use_winograd,
    winograd_weight_gradient,
)

SIDE = st.integers(1, 9)
FEW = st.integers(1, 4)
BACKWARD = torch.ops.aten.convolution_backward.default


def passes(x, weight, credit, groups):
    transform = kernel_transform(x.dtype, x.device)
    return (
        convolve(x, weight, groups, transform),
        input_gradient(credit, weight, groups, transform),
        winograd_weight_gradient(credit, x, groups, transform),
    )


def torchs_passes(x, weight, credit, groups):
    plain = ([1, 1], [1, 1], [1, 1], False, [0, 0], groups)
    back = BACKWARD(credit, x, weight, None, *plain, [True, True, False])
    return F.conv2d(x, weight, padding=1, groups=groups), back[0], back[1]


def drawn(batch, groups, inner, out, height, width, seed=0):
    draws = torch.Generator().manual_seed(seed)
    shapes = [
        (batch, groups * inner, height, width),
        (groups * out, inner, 3, 3),
        (batch, groups * out, height, width),
    ]
    return [torch.randn(shape, generator=draws, dtype=torch.float64) for shape in shapes]


def relative_error(ours, theirs):
    """The norm of the difference relative to the norm of `theirs`."""
    assert ours.shape == theirs.shape
    return ((ours - theirs).norm() / theirs.norm().clamp_min(1e-300)).item()


@given(batch=FEW, groups=FEW, inner=FEW, out=FEW, height=SIDE, width=SIDE, seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_all_three_passes_equal_torchs(batch, groups, inner, out, height, width, seed):
    x, weight, credit = drawn(batch, groups, inner, out, height, width, seed)
    ours = passes(x, weight, credit, groups)
    for mine, theirs in zip(ours, torchs_passes(x, weight, credit, groups), strict=True):
        assert mine.is_contiguous()
        # A sum may cancel by chance; what is left is the rounding of its terms.
        scale = max(theirs.norm().item(), 1e-2 * theirs.numel() ** 0.5)
        assert (mine - theirs).norm().item() < 1e-12 * scale


@pytest.mark.parametrize(("batch", "side", "count"), [(24, 16, 4), (24, 15, 4), (6, 32, 2), (5, 32, 1)])
def test_a_batch_split_into_chunks_gives_the_same_results(batch, side, count):
    x, weight, credit = drawn(batch, 3, 2, 3, side, side)
    assert batch_chunks(x, 9, 3) == count
    ours = passes(x, weight, credit, 3)
    for mine, theirs in zip(ours, torchs_passes(x, weight, credit, 3), strict=True):
        assert relative_error(mine, theirs) < 1e-12


@pytest.mark.parametrize(("channels", "side"), [(64, 16), (16, 15), (8, 4)])
def test_float32_is_about_as_accurate_as_torchs(channels, side):
    exact = drawn(8, 2, channels, channels, side, side)
    rough = [tensor.float() for tensor in exact]
    exact = [tensor.double() for tensor in rough]
    references = torchs_passes(*exact, 2)
    for ours, theirs, reference in zip(passes(*rough, 2), torchs_passes(*rough, 2), references, strict=True):
        assert ours.dtype == torch.float32
        assert relative_error(ours.double(), reference) < 8 * relative_error(theirs.double(), reference)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mask", [(True, True, True), (True, False, False), (False, True, True), (False, False, True)])
def test_a_program_is_rewritten_with_its_bias_and_only_the_gradients_it_needs(bias, mask):
    x, weight, credit = drawn(2, 3, 2, 4, 5, 6)
    offset = torch.arange(12, dtype=torch.float64) if bias else None

    def both(x, weight, credit):
        y = F.conv2d(x, weight, offset, padding=1, groups=3)
        back = BACKWARD(credit, x, weight, [12], [1, 1], [1, 1], [1, 1], False, [0, 0], 3, list(mask))
        return y, *[gradient for gradient, wanted in zip(back, mask, strict=True) if wanted]

    program = make_fx(both)(x, weight, credit)
    assert use_winograd(program) == 2
    assert not convolutions(program)
    for ours, theirs in zip(program(x, weight, credit), both(x, weight, credit), strict=True):
        assert relative_error(ours, theirs) < 1e-14
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize(
    ("kernel", "setting", "dtype"),
    [
        (3, {"stride": 2, "padding": 1}, torch.float32),
        (3, {"padding": 0}, torch.float32),
        (3, {"padding": 2, "dilation": 2}, torch.float32),
        (3, {"stride": (1, 2), "padding": 1}, torch.float32),
        (1, {"padding": 1}, torch.float32),
        (5, {"padding": 1}, torch.float32),
        (3, {"padding": 1}, torch.bfloat16),
    ],
)
def test_other_convolutions_are_not_rewritten(kernel, setting, dtype):
    x, weight = torch.ones(2, 4, 8, 8, dtype=dtype), torch.ones(4, 4, kernel, kernel, dtype=dtype)
    program = make_fx(lambda x, weight: F.conv2d(x, weight, **setting))(x, weight)
    before = str(program.graph)
    assert use_winograd(program) == 0
    assert str(program.graph) == before


def test_a_transposed_convolution_is_not_rewritten():
    program = make_fx(lambda x, w: F.conv_transpose2d(x, w, padding=1))(torch.ones(1, 2, 4, 4), torch.ones(2, 2, 3, 3))
    assert use_winograd(program) == 0


def test_input_tiles_are_computed_once_for_the_forward_pass_and_the_weight_gradient():
    x, weight, credit = drawn(2, 1, 2, 2, 6, 6)

    def both(x, weight, credit):
        # As after vmap: each pass reads the same tensor through its own view.
        seen, again = x.permute(0, 1, 2, 3), x.permute(0, 1, 2, 3)
        back = BACKWARD(credit, again, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False])
        return F.conv2d(seen, weight, padding=1), back[1]

    program = make_fx(both)(x, weight, credit)
    assert use_winograd(program) == 2
    joined = [node for node in program.graph.nodes if node.target is torch.ops.aten.cat.default]
    # The input's tiles, the credit's tiles and the output's pixels.
    assert len(joined) == 3
    for ours, theirs in zip(program(x, weight, credit), both(x, weight, credit), strict=True):
        assert relative_error(ours, theirs) < 1e-14


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("bp", marks=pytest.mark.slow),
        "fa:site=input",
        pytest.param("dfa:scale=unit_error,site=input", marks=pytest.mark.slow),
    ],
)
def test_a_fleets_step_is_the_same_with_winograds_convolutions(method, monkeypatch):
    resolved_runs = [tiny.resolved(method, arch=tiny.arch("small_cnn"), seeds=seed) for seed in (1, 2, 3)]
    traced = []

    def keep_program(function, inputs):
        traced.append((make_fx(lambda *given: function(*given))(*inputs), inputs))
        return traced[-1][0]

    monkeypatch.setattr(fleet, "trace_program", keep_program)
    driver = fleet.Fleet(resolved_runs, resolved_runs[0].source.load(None), tiny.CPU)
    driver.train_epoch(lambda _steps: None)
    ((program, inputs),) = traced
    expected = tree_leaves(program(*inputs))

    program.graph.eliminate_dead_code()
    # Two blocks of two convolutions, forward and backward; the stem has a stride of 2.
    assert use_winograd(program) == 8
    assert len(convolutions(program)) == 2
    for ours, theirs in zip(tree_leaves(program(*inputs)), expected, strict=True):
        assert relative_error(ours, theirs) < 1e-11


def convolutions(program):
    return [node for node in program.graph.nodes if "convolution" in str(node.target)]

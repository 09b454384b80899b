"""On a GPU tensor-core matmuls are at least as accurate as cuBLAS, repeat to the bit, and work in a CUDA graph."""

from __future__ import annotations

import pytest
import torch

import tiny
from walkback.training.driver import set_exact_arithmetic
from walkback.training.fleet import Fleet
from walkback.training.gpu.cuda_graph import capture
from walkback.training.gpu.tensorcore_matmul import (
    MIXED,
    SMALL_MATMUL,
    SQUARE,
    TALL,
    TENSORCORE_MATMUL,
    has_kernel,
    kernel_settings,
)

GPU = torch.device("cuda")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
    pytest.mark.skipif(not has_kernel(GPU), reason="needs a GPU of capability 9.0 and Triton"),
]

LAYOUTS = ["nn", "nt", "tn", "tt"]
SIZES = {
    "few": (6, 256, 128, 256),
    "few, odd": (2, 130, 257, 67),
    "some": (40, 128, 256, 192),
    "some, odd": (150, 130, 257, 67),
    "many": (150, 128, 512, 128),
    "many, odd": (150, 100, 257, 67),
}
ERROR = 3e-7
"""Relative error bound against float64; rounding exact results to float32 would give 4e-8."""


@pytest.fixture(autouse=True)
def _exact_arithmetic():
    set_exact_arithmetic(GPU)
    torch.manual_seed(0)


def operands(layout, batch, rows, terms, columns):
    """Random operands; `n` is contiguous along its last axis, `t` (transposed) along the one before."""
    left = torch.randn((batch, rows, terms) if layout[0] == "n" else (batch, terms, rows), device=GPU)
    right = torch.randn((batch, terms, columns) if layout[1] == "n" else (batch, columns, terms), device=GPU)
    return left if layout[0] == "n" else left.mT, right if layout[1] == "n" else right.mT


def error(found, left, right):
    expected = torch.bmm(left.double(), right.double())
    return ((found - expected).norm() / expected.norm()).item()


def test_the_sizes_cover_all_kernel_settings():
    found = {kernel_settings(*operands(layout, *sizes)) for layout in LAYOUTS for sizes in SIZES.values()}
    assert found == {SMALL_MATMUL, SQUARE, TALL, MIXED}


@pytest.mark.parametrize("scales", [(1.0, 1.0), (1e-20, 1e15), (1e15, 1e-20), (1e15, 1e15)])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_matmuls_are_at_least_as_accurate_as_cublas(layout, size, scales):
    left, right = (factor * scale for factor, scale in zip(operands(layout, *SIZES[size]), scales, strict=True))
    assert (left.stride(2) == 1) == (layout[0] == "n")
    assert (right.stride(2) == 1) == (layout[1] == "n")
    found = error(TENSORCORE_MATMUL(left, right), left, right)
    assert found < ERROR
    assert found <= error(torch.bmm(left, right), left, right)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_zeros_give_zeros_and_nan_and_inf_propagate(layout, size):
    left, right = operands(layout, *SIZES[size])
    assert torch.equal(TENSORCORE_MATMUL(left * 0, right), torch.zeros_like(torch.bmm(left, right)))
    left[1, 5, 7], left[1, 6, 7] = torch.nan, torch.inf
    result, expected = TENSORCORE_MATMUL(left, right), torch.bmm(left, right)
    assert torch.equal(result.isnan().all(-1), expected.isnan().all(-1))
    assert torch.equal(result.isfinite(), expected.isfinite())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_matmuls_repeat_to_the_bit_also_in_a_cuda_graph(layout, size):
    left, right = operands(layout, *SIZES[size])
    first = TENSORCORE_MATMUL(left, right)
    assert torch.equal(TENSORCORE_MATMUL(left, right), first)
    graph, result = capture(lambda: TENSORCORE_MATMUL(left, right))
    result.zero_()
    graph.replay()
    assert torch.equal(result, first)


def test_an_operand_shared_by_all_models_and_one_that_is_a_slice():
    left, right = operands("nt", 40, 128, 256, 192)
    shared = left[:1].expand(40, 128, 256)
    assert torch.equal(TENSORCORE_MATMUL(shared, right), TENSORCORE_MATMUL(shared.contiguous(), right))
    wide = torch.randn(128, 40, 259, device=GPU).transpose(0, 1)[:, :, 3:]
    assert torch.equal(TENSORCORE_MATMUL(wide, right), TENSORCORE_MATMUL(wide.contiguous(), right))


@pytest.mark.filterwarnings("ignore")  # torch.compile's advice for developers.
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_compiled_program_computes_the_same_bits_and_does_not_copy_views(layout):
    left, right = (f if s == "n" else f.mT for f, s in zip(operands(layout, *SIZES["many"]), layout, strict=True))

    def function(a, b):
        a, b = a.relu(), b + 1
        mixed = TENSORCORE_MATMUL(a if layout[0] == "n" else a.mT, b if layout[1] == "n" else b.mT)
        return mixed, TENSORCORE_MATMUL(a, a.mT), TENSORCORE_MATMUL(b, b.mT)

    from torch._inductor.utils import run_and_get_code

    options = {"deterministic": True, "fx_graph_cache": False}
    compiled = torch.compile(function, fullgraph=True, dynamic=False, options=options)
    found, (code,) = run_and_get_code(compiled, left, right)
    assert all(map(torch.equal, found, function(left, right)))
    assert code.count("= empty_strided_cuda(") == 2
    graph, results = capture(lambda: compiled(left, right))
    graph.replay()
    assert all(map(torch.equal, results, found))


def test_offsets_beyond_31_bits():
    if torch.cuda.mem_get_info()[0] < 40e9:
        pytest.skip("needs 40 GB of free memory")
    batch, apart = 20_000, 120_000
    left = torch.empty(batch * apart, device=GPU).as_strided((batch, 96, 64), (apart, 64, 1)).normal_()
    right = torch.randn(batch, 64, 1120, device=GPU)
    assert min(batch * apart, batch * 96 * 1120) > 1 << 31
    found = TENSORCORE_MATMUL(left, right)
    for rows in (slice(0, 2), slice(17_890, 17_900), slice(batch - 2, batch)):
        assert error(found[rows], left[rows], right[rows]) < ERROR


def test_a_fleet_that_uses_the_kernel_resumes_from_a_snapshot_to_the_same_bits(monkeypatch):
    monkeypatch.setattr("walkback.training.gpu.graph_program.compiling_pays", lambda program, steps: False)
    settings = {"arch": "resmlp:d=64,depth=2", "data": "prototypes:train=256,test=64,dim=64", "batch": 64}
    resolved_runs = [tiny.resolved("bp", seeds=seed, dtype="float32", epochs=4, **settings) for seed in (1, 2)]
    data = resolved_runs[0].source.load(None)
    through = Fleet(resolved_runs, data, GPU)
    middle = tiny.train(through, 2)
    end = tiny.train(through, 2)
    assert any(node.target is TENSORCORE_MATMUL for node in through._program.graph.nodes)
    again = Fleet(resolved_runs, data, GPU)
    again.restore(middle)
    for left, right in zip(tiny.train(again, 2), end, strict=True):
        assert tiny.same_bits(left.params, right.params)

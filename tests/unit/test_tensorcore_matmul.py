"""Which matmuls use the tensor-core kernel, its launch settings, and that a rewritten program is the same function."""

from __future__ import annotations

import shutil
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

import tiny
from walkback.training import fleet as fleet_module
from walkback.training.driver import matmul_precision
from walkback.training.fleet import Fleet
from walkback.training.gpu import tensorcore_matmul
from walkback.training.gpu.graph_program import optimise_graph, trace_program
from walkback.training.gpu.split_matmul import split_count_for
from walkback.training.gpu.tensorcore_matmul import (
    MIXED,
    SMALL_MATMUL,
    SQUARE,
    TALL,
    TENSORCORE_MATMUL,
    has_kernel,
    kernel_settings,
    uses_kernel,
)
from walkback.training.planning import cost_model
from walkback.training.planning.flop_count import MatmulShape, TensorLayout

BMM = torch.ops.aten.bmm.default


@pytest.fixture
def fake_gpu_kernel(monkeypatch):
    """Pretend that the GPU has the kernel; GPU tensors are fake tensors without values here."""
    monkeypatch.setattr(tensorcore_matmul, "has_kernel", lambda device: device.type == "cuda")


@pytest.fixture
def cpu_as_kernel(monkeypatch):
    """Use the CPU's implementation in place of the kernel."""
    monkeypatch.setattr(tensorcore_matmul, "has_kernel", lambda device: True)


def operands_of(layout, batch, rows, terms, columns, **kind):
    """Random operands; `n` is contiguous along its last axis, `t` (transposed) along the one before."""
    left = torch.randn(batch, rows, terms, **kind) if layout[0] == "n" else torch.randn(batch, terms, rows, **kind).mT
    right = torch.randn(batch, terms, columns, **kind)
    return left, right if layout[1] == "n" else torch.randn(batch, columns, terms, **kind).mT


def stand_ins(*sizes, dtype=torch.float32, device="cuda"):
    with FakeTensorMode():
        return operands_of(*sizes, dtype=dtype, device=device)


def targets(program):
    return [node.target for node in program.graph.nodes if node.target in (BMM, TENSORCORE_MATMUL)]


LARGE = ("nt", 18, 8320, 128, 384)


@pytest.mark.usefixtures("fake_gpu_kernel")
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_large_matmuls_use_the_kernel(layout):
    for sizes in ((128, 128, 3072, 256), (6, 256, 128, 256), (18, 8320, 128, 512), (48, 64, 64, 8192), (1, 64, 64, 64)):
        assert uses_kernel(*stand_ins(layout, *sizes)), sizes


@pytest.mark.usefixtures("fake_gpu_kernel")
@pytest.mark.parametrize(
    "sizes",
    [
        (9216, 65, 32, 65),  # Attention.
        (9216, 65, 65, 32),
        (9216, 65, 64, 65),  # The tiles would be mostly padding.
        (128, 128, 256, 10),  # A classifier head.
        (128, 10, 128, 256),
        (48, 64, 3, 8192),  # Three colour channels.
        (0, 128, 128, 128),
    ],
)
def test_small_matmuls_use_cublas(sizes):
    for layout in ("nn", "nt", "tn", "tt"):
        assert not uses_kernel(*stand_ins(layout, *sizes))


@pytest.mark.usefixtures("fake_gpu_kernel")
def test_other_dtypes_devices_and_layouts_use_cublas():
    assert uses_kernel(*stand_ins(*LARGE))
    for dtype in (torch.float64, torch.bfloat16, torch.complex64):
        assert not uses_kernel(*stand_ins(*LARGE, dtype=dtype))
    assert not uses_kernel(*stand_ins(*LARGE, device="cpu"))
    with FakeTensorMode():
        dense = torch.empty(18, 128, 128, device="cuda")
        scattered = torch.empty_strided((18, 128, 128), (32768, 2, 256), device="cuda")
    assert uses_kernel(dense, dense)
    assert not uses_kernel(scattered, dense)
    assert not uses_kernel(dense, scattered)


@pytest.mark.usefixtures("fake_gpu_kernel")
def test_a_tf32_run_does_not_use_the_kernel():
    with matmul_precision(tiny.resolved("bp", dtype="tf32")):
        assert not uses_kernel(*stand_ins(*LARGE))
    with matmul_precision(tiny.resolved("bp", dtype="float32")):
        assert uses_kernel(*stand_ins(*LARGE))


def test_the_kernel_needs_a_supported_gpu_and_triton(monkeypatch):
    device, uncached = torch.device("cuda"), has_kernel.__wrapped__
    known = ("tf32", "tf32x3", "ieee", "bf16x6")
    compiler = SimpleNamespace(CUDAOptions=SimpleNamespace(allowed_dot_input_precisions=known))
    active = SimpleNamespace(get_current_target=lambda: None)
    found = {
        "triton": ModuleType("triton"),
        "triton.backends": ModuleType("triton.backends"),
        "triton.backends.nvidia": ModuleType("triton.backends.nvidia"),
        "triton.backends.nvidia.compiler": compiler,
        "triton.runtime": SimpleNamespace(driver=SimpleNamespace(active=active)),
    }
    for name, module in found.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert uncached(device)
    assert not uncached(torch.device("cpu"))

    def without(change):
        with monkeypatch.context() as patch:
            change(patch)
            return not uncached(device)

    assert without(lambda patch: patch.setattr(torch.cuda, "is_available", lambda: False))
    assert without(lambda patch: patch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9)))
    assert without(lambda patch: patch.setattr(torch.version, "hip", "6.4"))
    assert without(lambda patch: patch.setitem(sys.modules, "triton.backends.nvidia.compiler", None))
    assert without(lambda patch: patch.setattr(compiler.CUDAOptions, "allowed_dot_input_precisions", ("tf32x3",)))
    assert without(lambda patch: patch.delattr(compiler.CUDAOptions, "allowed_dot_input_precisions"))
    assert without(
        lambda patch: patch.setattr(active, "get_current_target", lambda: 1 / 0)
    )  # For example no C compiler.


def several_matmuls(x, w, q, k, y):
    """Matmuls as in a network's step: forward, input gradient, weight gradient; of attention; in float64."""
    h = torch.bmm(x, w.mT)
    small = torch.bmm(q, k.mT)
    return torch.bmm(h, w), torch.bmm(h.mT, x), torch.softmax(small, -1), torch.bmm(y, y)


def operands(**kind):
    sizes = ((3, 128, 128), (3, 256, 128), (8, 65, 32), (8, 65, 32))
    return [torch.randn(size, **kind) for size in sizes] + [torch.randn(3, 64, 64, dtype=torch.float64, **kind)]


@pytest.mark.usefixtures("fake_gpu_kernel")
def test_only_suitable_matmuls_are_replaced_and_the_function_stays_the_same(monkeypatch):
    monkeypatch.setattr("walkback.training.gpu.graph_program.compiling_pays", lambda program, steps: False)
    with FakeTensorMode():
        program = trace_program(several_matmuls, tuple(operands(device="cuda")))
    before = targets(program)
    optimised = optimise_graph(program, 1)
    assert before == [BMM] * 5
    assert targets(optimised) == [TENSORCORE_MATMUL, BMM, TENSORCORE_MATMUL, TENSORCORE_MATMUL, BMM]
    values = operands()
    for found, expected in zip(optimised(*values), several_matmuls(*values), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.usefixtures("fake_gpu_kernel")
def test_the_parts_of_a_split_matmul_use_the_kernel(monkeypatch):
    monkeypatch.setattr("walkback.training.gpu.graph_program.compiling_pays", lambda program, steps: False)
    sizes = ("tn", 3, 128, 4096, 128)
    assert split_count_for(*sizes[1:]) > 1
    left, right = stand_ins(*sizes)
    with left.fake_mode:
        program = trace_program(lambda a, b: torch.bmm(a, b), (left, right))
    assert targets(optimise_graph(program, 1)) == [TENSORCORE_MATMUL]


@pytest.mark.usefixtures("cpu_as_kernel")
@pytest.mark.parametrize("net", ["resmlp:d=64,depth=2", "vit_mini:d=64,depth=1,heads=2"])
def test_a_fleet_trains_to_the_same_bits_if_the_operation_is_torchs_bmm(net, monkeypatch):
    resolved_runs = [tiny.resolved("bp", arch=net, dtype="float32", batch=64, seeds=seed) for seed in (1, 2)]
    data = resolved_runs[0].source.load(None)
    plain = tiny.train(Fleet(resolved_runs, data, tiny.CPU), 1)
    counts = []

    def rewriting(function, inputs):
        program = trace_program(function, inputs)
        counts.append(tensorcore_matmul.use_tensorcore_matmul(program))
        program.recompile()
        return program

    monkeypatch.setattr(fleet_module, "trace_program", rewriting)
    for left, right in zip(tiny.train(Fleet(resolved_runs, data, tiny.CPU), 1), plain, strict=True):
        assert tiny.same_bits(left.params, right.params)
    assert counts[0] > 0


@pytest.mark.usefixtures("cpu_as_kernel")
def test_the_cost_model_times_the_operation_that_a_fleet_uses(monkeypatch):
    results = []
    monkeypatch.setattr(cost_model, "_seconds", lambda work, device: results.append(work()) or 1.0)
    calls = []
    monkeypatch.setattr(tensorcore_matmul, "TENSORCORE_MATMUL", lambda *pair: calls.append(pair) or torch.bmm(*pair))
    large = MatmulShape("matmul", (TensorLayout((128, 64), (64, 1)), TensorLayout((64, 128), (1, 64))))
    small = MatmulShape("matmul", (TensorLayout((65, 32), (32, 1)), TensorLayout((32, 65), (1, 32))))
    for matmul in (large, small):
        cost_model._time_matmul.__wrapped__(matmul, 3, tiny.CPU, 1)
    assert [tuple(result.shape) for result in results] == [(3, 128, 128), (3, 65, 65)]
    assert [tuple(left.shape) for left, _ in calls] == [(3, 128, 64)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (("nt", 128, 128, 3072, 256), TALL),
        (("nt", 18, 8320, 128, 384), TALL),
        (("nt", 6, 128, 256, 256), SMALL_MATMUL),
        (("nt", 6, 128, 3072, 256), SMALL_MATMUL),
        (("tn", 6, 256, 128, 256), SMALL_MATMUL),
        (("tn", 6, 256, 128, 3072), MIXED),
        (("tn", 128, 256, 128, 256), MIXED),
        (("nn", 128, 128, 256, 256), MIXED),
        (("tt", 128, 128, 256, 256), MIXED),
        (("nn", 48, 64, 64, 8192), MIXED),
        (("nt", 384, 64, 1024, 64), SQUARE),  # A tile of 128 rows would be half padding.
        (("nt", 20, 128, 256, 256), SQUARE),  # 80 tiles of 128 rows would leave multiprocessors idle.
    ],
)
def test_kernel_settings_are_those_measured_to_be_fastest(sizes, expected):
    assert kernel_settings(*stand_ins(*sizes, device="cpu")) == expected


SIZES = st.integers(1, 400)


@given(st.sampled_from(["nn", "nt", "tn", "tt"]), SIZES, SIZES, SIZES, SIZES)
@hypothesis(max_examples=50, deadline=None)
def test_settings_and_choice_depend_only_on_shapes_and_strides(layout, batch, rows, terms, columns):
    pair, again = (stand_ins(layout, batch, rows, terms, columns, device="cpu") for _ in range(2))
    assert kernel_settings(*pair) == kernel_settings(*again)
    assert kernel_settings(*pair) in (SMALL_MATMUL, SQUARE, TALL, MIXED)
    assert tensorcore_matmul._fills_tiles(*pair) == tensorcore_matmul._fills_tiles(*again)
    assert not tensorcore_matmul._fills_tiles(*pair) or min(rows, terms, columns) >= 64


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_the_operation_passes_opcheck_and_equals_bmm(layout):
    torch.library.opcheck(TENSORCORE_MATMUL, operands_of(layout, 2, 5, 7, 3))
    left, right = operands_of(layout, 2, 5, 7, 3)
    assert torch.equal(TENSORCORE_MATMUL(left, right), torch.bmm(left, right))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # torch.compile's advice for developers.
def test_torch_compile_passes_views_without_copies():
    def weight_and_input_gradient(credit, x, w):
        credit, x = credit * 2, x.relu()
        return TENSORCORE_MATMUL(credit.mT, x), TENSORCORE_MATMUL(credit, w), TENSORCORE_MATMUL(x, w.mT)

    from torch._inductor.utils import run_and_get_code

    values = torch.randn(3, 8, 5), torch.randn(3, 8, 4), torch.randn(3, 5, 4)
    options = {"fx_graph_cache": False}
    compiled = torch.compile(weight_and_input_gradient, fullgraph=True, dynamic=False, options=options)
    found, (code,) = run_and_get_code(compiled, *values)
    assert all(map(torch.equal, found, weight_and_input_gradient(*values)))
    assert code.count("= empty_strided_cpu(") == 2  # The credit and the input; the operation allocates its own results.

"""Which products go to our kernel, how it is started, and that the rewritten program is the same program."""

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
from walkback.training import fleet as fleets
from walkback.training.driver import matmul_precision
from walkback.training.fleet import Fleet
from walkback.training.gpu import tensorcore_matmul
from walkback.training.gpu.graph_program import optimise_graph, trace_program
from walkback.training.gpu.split_matmul import parts
from walkback.training.gpu.tensorcore_matmul import (
    MIXED,
    SMALL_MATMUL,
    SQUARE,
    TALL,
    TENSORCORE_MATMUL,
    has_kernel,
    kernel_settings,
    takes,
)
from walkback.training.planning import cost_model
from walkback.training.planning.flop_count import MatmulShape, TensorLayout

BMM = torch.ops.aten.bmm.default


@pytest.fixture
def able(monkeypatch):
    """A GPU with a kernel; such tensors are stand-ins without values here."""
    monkeypatch.setattr(tensorcore_matmul, "has_kernel", lambda device: device.type == "cuda")


@pytest.fixture
def everywhere(monkeypatch):
    """The CPU's implementation stands for the kernel."""
    monkeypatch.setattr(tensorcore_matmul, "has_kernel", lambda device: True)


def factors(layout, batch, rows, terms, columns, **kind):
    """`n` lies along its last axis, `t` along the one before."""
    left = torch.randn(batch, rows, terms, **kind) if layout[0] == "n" else torch.randn(batch, terms, rows, **kind).mT
    right = torch.randn(batch, terms, columns, **kind)
    return left, right if layout[1] == "n" else torch.randn(batch, columns, terms, **kind).mT


def stand_ins(*asked, dtype=torch.float32, device="cuda"):
    with FakeTensorMode():
        return factors(*asked, dtype=dtype, device=device)


def targets(program):
    return [node.target for node in program.graph.nodes if node.target in (BMM, TENSORCORE_MATMUL)]


LARGE = ("nt", 18, 8320, 128, 384)


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_a_fleets_large_products_are_taken(layout):
    for sizes in ((128, 128, 3072, 256), (6, 256, 128, 256), (18, 8320, 128, 512), (48, 64, 64, 8192), (1, 64, 64, 64)):
        assert takes(*stand_ins(layout, *sizes)), sizes


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize(
    "sizes",
    [
        (9216, 65, 32, 65),  # An attention's.
        (9216, 65, 65, 32),
        (9216, 65, 64, 65),  # Its tiles would be empty for the most part.
        (128, 128, 256, 10),  # A head.
        (128, 10, 128, 256),
        (48, 64, 3, 8192),  # Colours.
        (0, 128, 128, 128),
    ],
)
def test_small_products_are_left_to_the_library(sizes):
    for layout in ("nn", "nt", "tn", "tt"):
        assert not takes(*stand_ins(layout, *sizes))


@pytest.mark.usefixtures("able")
def test_other_numbers_and_devices_are_left_to_the_library():
    assert takes(*stand_ins(*LARGE))
    for dtype in (torch.float64, torch.bfloat16, torch.complex64):
        assert not takes(*stand_ins(*LARGE, dtype=dtype))
    assert not takes(*stand_ins(*LARGE, device="cpu"))
    with FakeTensorMode():
        dense = torch.empty(18, 128, 128, device="cuda")
        scattered = torch.empty_strided((18, 128, 128), (32768, 2, 256), device="cuda")
    assert takes(dense, dense)
    assert not takes(scattered, dense)
    assert not takes(dense, scattered)


@pytest.mark.usefixtures("able")
def test_a_tf32_run_keeps_its_own_products():
    with matmul_precision(tiny.resolved("bp", dtype="tf32")):
        assert not takes(*stand_ins(*LARGE))
    with matmul_precision(tiny.resolved("bp", dtype="float32")):
        assert takes(*stand_ins(*LARGE))


def test_there_is_no_kernel_without_a_gpu_that_can(monkeypatch):
    device, asked = torch.device("cuda"), has_kernel.__wrapped__
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
    assert asked(device)
    assert not asked(torch.device("cpu"))

    def without(change):
        with monkeypatch.context() as patch:
            change(patch)
            return not asked(device)

    assert without(lambda patch: patch.setattr(torch.cuda, "is_available", lambda: False))
    assert without(lambda patch: patch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 9)))
    assert without(lambda patch: patch.setattr(torch.version, "hip", "6.4"))
    assert without(lambda patch: patch.setitem(sys.modules, "triton.backends.nvidia.compiler", None))
    assert without(lambda patch: patch.setattr(compiler.CUDAOptions, "allowed_dot_input_precisions", ("tf32x3",)))
    assert without(lambda patch: patch.delattr(compiler.CUDAOptions, "allowed_dot_input_precisions"))
    assert without(lambda patch: patch.setattr(active, "get_current_target", lambda: 1 / 0))  # No C compiler, say.


def mixed(x, w, q, k, y):
    """Products as a network's step has them: forward, backward, of weights; an attention's; in float64."""
    h = torch.bmm(x, w.mT)
    small = torch.bmm(q, k.mT)
    return torch.bmm(h, w), torch.bmm(h.mT, x), torch.softmax(small, -1), torch.bmm(y, y)


def operands(**kind):
    sizes = ((3, 128, 128), (3, 256, 128), (8, 65, 32), (8, 65, 32))
    return [torch.randn(size, **kind) for size in sizes] + [torch.randn(3, 64, 64, dtype=torch.float64, **kind)]


@pytest.mark.usefixtures("able")
def test_a_program_takes_what_it_should_and_stays_the_same_function(monkeypatch):
    monkeypatch.setattr("walkback.training.gpu.graph_program.compiling_pays", lambda program, steps: False)
    with FakeTensorMode():
        program = trace_program(mixed, tuple(operands(device="cuda")))
    before = targets(program)
    quick = optimise_graph(program, 1)
    assert before == [BMM] * 5
    assert targets(quick) == [TENSORCORE_MATMUL, BMM, TENSORCORE_MATMUL, TENSORCORE_MATMUL, BMM]
    values = operands()
    for found, true in zip(quick(*values), mixed(*values), strict=True):
        assert torch.equal(found, true)


@pytest.mark.usefixtures("able")
def test_the_parts_of_a_cut_product_are_taken(monkeypatch):
    monkeypatch.setattr("walkback.training.gpu.graph_program.compiling_pays", lambda program, steps: False)
    asked = ("tn", 3, 128, 4096, 128)
    assert parts(*asked[1:]) > 1
    left, right = stand_ins(*asked)
    with left.fake_mode:
        program = trace_program(lambda a, b: torch.bmm(a, b), (left, right))
    assert targets(optimise_graph(program, 1)) == [TENSORCORE_MATMUL]


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("net", ["resmlp:d=64,depth=2", "vit_mini:d=64,depth=1,heads=2"])
def test_a_fleet_trains_to_the_same_bits_where_the_operation_is_the_librarys(net, monkeypatch):
    resolved_runs = [tiny.resolved("bp", arch=net, dtype="float32", batch=64, seeds=seed) for seed in (1, 2)]
    data = resolved_runs[0].source.load(None)
    plain = tiny.train(Fleet(resolved_runs, data, tiny.CPU), 1)
    taken = []

    def rewriting(function, inputs):
        program = trace_program(function, inputs)
        taken.append(tensorcore_matmul.use_tensorcore_matmul(program))
        program.recompile()
        return program

    monkeypatch.setattr(fleets, "flat_program", rewriting)
    for left, right in zip(tiny.train(Fleet(resolved_runs, data, tiny.CPU), 1), plain, strict=True):
        assert tiny.same_bits(left.params, right.params)
    assert taken[0] > 0


@pytest.mark.usefixtures("everywhere")
def test_a_prediction_times_the_operation_that_a_fleet_does(monkeypatch):
    done = []
    monkeypatch.setattr(cost_model, "_seconds", lambda work, device: done.append(work()) or 1.0)
    asked = []
    monkeypatch.setattr(
        tensorcore_matmul, "TENSORCORE_MATMUL", lambda *factors: asked.append(factors) or torch.bmm(*factors)
    )
    large = MatmulShape("matmul", (TensorLayout((128, 64), (64, 1)), TensorLayout((64, 128), (1, 64))))
    small = MatmulShape("matmul", (TensorLayout((65, 32), (32, 1)), TensorLayout((32, 65), (1, 32))))
    for product in (large, small):
        cost_model._timed_product.__wrapped__(product, 3, tiny.CPU)
    assert [tuple(result.shape) for result in done] == [(3, 128, 128), (3, 65, 65)]
    assert [tuple(left.shape) for left, _ in asked] == [(3, 128, 64)]


@pytest.mark.parametrize(
    ("asked", "expected"),
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
        (("nt", 384, 64, 1024, 64), SQUARE),  # A tile of 128 rows would be half empty.
        (("nt", 20, 128, 256, 256), SQUARE),  # 80 tiles of 128 rows would leave multiprocessors idle.
    ],
)
def test_the_kernel_is_started_as_was_quickest(asked, expected):
    assert kernel_settings(*stand_ins(*asked, device="cpu")) == expected


SIZES = st.integers(1, 400)


@given(st.sampled_from(["nn", "nt", "tn", "tt"]), SIZES, SIZES, SIZES, SIZES)
@hypothesis(max_examples=50, deadline=None)
def test_settings_and_choice_are_functions_of_shapes_and_strides(layout, batch, rows, terms, columns):
    pair, again = (stand_ins(layout, batch, rows, terms, columns, device="cpu") for _ in range(2))
    assert kernel_settings(*pair) == kernel_settings(*again)
    assert kernel_settings(*pair) in (SMALL_MATMUL, SQUARE, TALL, MIXED)
    assert tensorcore_matmul._fills(*pair) == tensorcore_matmul._fills(*again)
    assert not tensorcore_matmul._fills(*pair) or min(rows, terms, columns) >= 64


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_the_operation_is_a_proper_one(layout):
    torch.library.opcheck(TENSORCORE_MATMUL, factors(layout, 2, 5, 7, 3))
    left, right = factors(layout, 2, 5, 7, 3)
    assert torch.equal(TENSORCORE_MATMUL(left, right), torch.bmm(left, right))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch's compiler needs one for C++")
@pytest.mark.filterwarnings("ignore")  # Advice of torch's compiler, to those who write torch.
def test_torchs_compiler_hands_it_views_and_no_copies():
    def weight_and_input_gradient(credit, x, w):
        credit, x = credit * 2, x.relu()
        return TENSORCORE_MATMUL(credit.mT, x), TENSORCORE_MATMUL(credit, w), TENSORCORE_MATMUL(x, w.mT)

    from torch._inductor.utils import run_and_get_code

    values = torch.randn(3, 8, 5), torch.randn(3, 8, 4), torch.randn(3, 5, 4)
    options = {"fx_graph_cache": False}
    compiled = torch.compile(weight_and_input_gradient, fullgraph=True, dynamic=False, options=options)
    found, (code,) = run_and_get_code(compiled, *values)
    assert all(map(torch.equal, found, weight_and_input_gradient(*values)))
    assert code.count("= empty_strided_cpu(") == 2  # The credit and the input; torch.ops allocates its own results.

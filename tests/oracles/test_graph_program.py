"""A traced step rewritten for a GPU is the same function; when it is compiled depends on nothing but the run."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

import tiny
from walkback.training import fleet as fleets
from walkback.training.fleet import Fleet
from walkback.training.gpu.graph_program import compiling_pays, trace_program
from walkback.training.gpu.split_matmul import LEAST_TERMS, TILES, parts, split_matmuls
from walkback.training.gpu.winograd import eligible, operations


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.integers(1, 70), st.sampled_from([7, 512, 1024, 1536, 4097]), st.integers(1, 70))
def test_a_product_cut_into_parts_is_the_same_product(batch, rows, terms, columns):
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(batch, terms, size, generator=generator).double() for size in (rows, columns))
    program = make_fx(lambda a, b: torch.bmm(a.mT, b))(left, right)
    cut = split_matmuls(program)
    program.recompile()
    assert cut == (parts(batch, rows, terms, columns) > 1)
    exact = torch.bmm(left.mT, right)
    assert (program(left, right) - exact).abs().max() <= 1e-12 * exact.abs().max()


@given(st.integers(1, 200), st.integers(1, 1000), st.integers(1, 10_000), st.integers(1, 1000))
def test_parts_divide_the_terms_and_stay_long(batch, rows, terms, columns):
    count = parts(batch, rows, terms, columns)
    assert terms % count == 0
    assert count == 1 or (terms // count >= LEAST_TERMS and count * batch <= TILES)


def test_operands_that_would_be_copied_are_left_alone():
    left, right = torch.randn(2, 8, 4096), torch.randn(2, 8, 4096)
    program = make_fx(lambda a, b: torch.bmm(a, b.mT))(left, right)
    assert parts(2, 8, 4096, 8) > 1
    assert split_matmuls(program) == 0


@pytest.mark.parametrize("net", ["resmlp", "vit_mini"])
def test_a_fleet_with_cut_products_trains_the_same_networks(net, monkeypatch):
    monkeypatch.setattr("walkback.training.gpu.split_matmul.LEAST_TERMS", 2)
    resolved_runs = [tiny.resolved(method, arch=tiny.arch(net)) for method in ("bp", "bp:shell=bp")]
    data = resolved_runs[0].source.load(None)
    plain = tiny.train(Fleet(resolved_runs, data, tiny.CPU), 2)
    cut = []

    def cutting(function, inputs):
        program = trace_program(function, inputs)
        cut.append(split_matmuls(program))
        program.recompile()
        return program

    monkeypatch.setattr(fleets, "flat_program", cutting)
    for left, right in zip(tiny.train(Fleet(resolved_runs, data, tiny.CPU), 2), plain, strict=True):
        assert tiny.distance(left.params, right.params) < 1e-11
    assert cut[0] > 0


def test_compiling_pays_for_many_steps_only():
    program = trace_program(lambda x: ((x * 2).sin() + 1).exp().sum(), (torch.randn(1000),))
    assert not compiling_pays(program, 1)
    assert not compiling_pays(program, 1000)
    assert compiling_pays(program, 10**8)


def test_compiling_pays_sooner_where_convolutions_become_winograds():
    """A library's are slow: what they lose in a step counts as the small operations do."""
    x, kernel = torch.randn(64, 32, 16, 16), torch.randn(32, 32, 3, 3)

    def enough(padding):
        program = trace_program(lambda x, kernel: torch.conv2d(x, kernel, padding=padding).relu(), (x, kernel))
        return next(steps for steps in (10**power for power in range(1, 9)) if compiling_pays(program, steps))

    assert enough(padding=1) < enough(padding=0)


def test_a_direct_convolutions_operations_are_those_counted_by_hand():
    x, kernel = torch.randn(5, 4, 8, 6), torch.randn(3, 4, 3, 3, requires_grad=True)

    def both(x, kernel):
        x = x.detach().requires_grad_()
        y = torch.conv2d(x, kernel, padding=1)
        return torch.autograd.grad(y.sum(), (x, kernel))

    once = 2 * 5 * 3 * 8 * 6 * 4 * 9
    assert [operations(node) for node in eligible(trace_program(both, (x, kernel)))] == [once, 2 * once]


def test_a_program_lacks_what_nothing_needs():
    """A shell's frozen blocks cost no gradients where all models of a fleet are shells."""

    def products(*methods):
        found = []
        resolved_runs = [tiny.resolved(method) for method in methods]
        fleet = Fleet(resolved_runs, resolved_runs[0].source.load(None), tiny.CPU)
        fleet.train_epoch(lambda _: None)
        found = [node for node in fleet._program.graph.nodes if node.target is torch.ops.aten.bmm.default]
        return len(found)

    assert products("dfa:shell=method") < products("dfa") == products("dfa", "dfa:shell=method")

"""A traced step optimised for a GPU is the same function; whether it is compiled depends only on the run."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

import tiny
from walkback.training import fleet as fleet_module
from walkback.training.fleet import Fleet
from walkback.training.gpu.graph_program import compiling_pays, trace_program
from walkback.training.gpu.split_matmul import MAX_TILES, MIN_TERMS, split_count_for, split_matmuls
from walkback.training.gpu.winograd import convolution_flops, eligible_convolutions


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.integers(1, 70), st.sampled_from([7, 512, 1024, 1536, 4097]), st.integers(1, 70))
def test_a_split_matmul_has_the_same_result(batch, rows, terms, columns):
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(batch, terms, size, generator=generator).double() for size in (rows, columns))
    program = make_fx(lambda a, b: torch.bmm(a.mT, b))(left, right)
    split = split_matmuls(program)
    program.recompile()
    assert split == (split_count_for(batch, rows, terms, columns) > 1)
    exact = torch.bmm(left.mT, right)
    assert (program(left, right) - exact).abs().max() <= 1e-12 * exact.abs().max()


@given(st.integers(1, 200), st.integers(1, 1000), st.integers(1, 10_000), st.integers(1, 1000))
def test_the_split_count_divides_the_terms_and_parts_are_not_too_short(batch, rows, terms, columns):
    count = split_count_for(batch, rows, terms, columns)
    assert terms % count == 0
    assert count == 1 or (terms // count >= MIN_TERMS and count * batch <= MAX_TILES)


def test_matmuls_whose_operands_would_be_copied_are_not_split():
    left, right = torch.randn(2, 8, 4096), torch.randn(2, 8, 4096)
    program = make_fx(lambda a, b: torch.bmm(a, b.mT))(left, right)
    assert split_count_for(2, 8, 4096, 8) > 1
    assert split_matmuls(program) == 0


@pytest.mark.parametrize("net", ["resmlp", "vit_mini"])
def test_a_fleet_with_split_matmuls_trains_the_same_networks(net, monkeypatch):
    monkeypatch.setattr("walkback.training.gpu.split_matmul.MIN_TERMS", 2)
    resolved_runs = [tiny.resolved(method, arch=tiny.arch(net)) for method in ("bp", "bp:shell=bp")]
    data = resolved_runs[0].source.load(None)
    plain = tiny.train(Fleet(resolved_runs, data, tiny.CPU), 2)
    counts = []

    def trace_and_split(function, inputs):
        program = trace_program(function, inputs)
        counts.append(split_matmuls(program))
        program.recompile()
        return program

    monkeypatch.setattr(fleet_module, "trace_program", trace_and_split)
    for left, right in zip(tiny.train(Fleet(resolved_runs, data, tiny.CPU), 2), plain, strict=True):
        assert tiny.distance(left.params, right.params) < 1e-11
    assert counts[0] > 0


def test_compiling_pays_for_many_steps_only():
    program = trace_program(lambda x: ((x * 2).sin() + 1).exp().sum(), (torch.randn(1000),))
    assert not compiling_pays(program, 1)
    assert not compiling_pays(program, 1000)
    assert compiling_pays(program, 10**8)


def test_compiling_pays_sooner_if_convolutions_become_winograds():
    """cuDNN's convolutions are slow: the time they lose per step counts like that of the small operations."""
    x, kernel = torch.randn(64, 32, 16, 16), torch.randn(32, 32, 3, 3)

    def steps_needed(padding):
        program = trace_program(lambda x, kernel: torch.conv2d(x, kernel, padding=padding).relu(), (x, kernel))
        return next(steps for steps in (10**power for power in range(1, 9)) if compiling_pays(program, steps))

    assert steps_needed(padding=1) < steps_needed(padding=0)


def test_a_direct_convolutions_flops_match_a_count_by_hand():
    x, kernel = torch.randn(5, 4, 8, 6), torch.randn(3, 4, 3, 3, requires_grad=True)

    def both(x, kernel):
        x = x.detach().requires_grad_()
        y = torch.conv2d(x, kernel, padding=1)
        return torch.autograd.grad(y.sum(), (x, kernel))

    once = 2 * 5 * 3 * 8 * 6 * 4 * 9
    assert [convolution_flops(node) for node in eligible_convolutions(trace_program(both, (x, kernel)))] == [
        once,
        2 * once,
    ]


def test_a_program_does_not_compute_unused_gradients():
    """Frozen blocks cost no gradients if all models of a fleet are frozen baselines."""

    def matmuls(*methods):
        resolved_runs = [tiny.resolved(method) for method in methods]
        fleet = Fleet(resolved_runs, resolved_runs[0].source.load(None), tiny.CPU)
        fleet.train_epoch(lambda _: None)
        found = [node for node in fleet._program.graph.nodes if node.target is torch.ops.aten.bmm.default]
        return len(found)

    assert matmuls("dfa:shell=method") < matmuls("dfa") == matmuls("dfa", "dfa:shell=method")

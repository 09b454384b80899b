"""Removing the matmul behind a LayerNorm's gradients keeps the function, and happens wherever it is possible."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.func import vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

import tiny
from walkback.training import fleet as fleet_module
from walkback.training.fleet import Fleet
from walkback.training.gpu import graph_program as programs
from walkback.training.gpu.norm_gradients import remove_norm_matmuls

DEPTH = {net: tiny.resolved(arch=tiny.arch(net)).net.depth for net in ("resmlp", "vit_mini")}


class TracedError(Exception):
    """Stops a fleet once its program is traced; holds the program and its inputs."""


def traced(monkeypatch, *methods, **settings):
    """A fleet's program before the rewrite, and its inputs with LayerNorm scales and shifts other than 1 and 0."""

    def stop(function, inputs):
        raise TracedError(programs.trace_program(function, inputs), inputs)

    resolved_runs = [tiny.resolved(method, **settings | {"seeds": 1 + row}) for row, method in enumerate(methods)]
    monkeypatch.setattr(programs, "remove_norm_matmuls", lambda _: 0)
    monkeypatch.setattr(fleet_module, "trace_program", stop)
    with pytest.raises(TracedError) as caught:
        Fleet(resolved_runs, resolved_runs[0].source.load(None), tiny.CPU)._step()
    program, (params, *others) = caught.value.args
    return program, (moved(params), *others)


def moved(params):
    generator = torch.Generator().manual_seed(0)
    found = {n: leaf + 0.3 * torch.randn(leaf.shape, generator=generator).to(leaf) for n, leaf in params.items()}
    for name, leaf in found.items():
        if "norm" in name and name.endswith("weight"):
            leaf[:, 1] = 0  # Gradients computed by a division by the scale would not be finite.
    return found


def removed(program, inputs):
    """Rewrite the program, compare its results with those before, and return how many matmuls were removed."""
    before = tree_leaves(program(*inputs))
    count = remove_norm_matmuls(program)
    program.graph.lint()
    after = tree_leaves(program(*inputs))
    for ours, theirs in zip(after, before, strict=True):
        assert ours.shape == theirs.shape
        assert (ours - theirs).norm() <= 1e-12 * theirs.norm()
    return count


def large_matmuls(program):
    """The number of matmuls with more than one row."""
    matmuls = [node for node in program.graph.nodes if node.target is torch.ops.aten.bmm.default]
    return sum(node.meta["val"].shape[1] > 1 for node in matmuls)


@pytest.mark.parametrize(
    ("methods", "blocks", "head"),
    [
        (["bp"] * 2, 0, 0),
        (["fa"] * 3, 1, 0),
        (["dfa:site=input"], 1, 1),
        (["state_bridge"] * 2, 1, 1),
    ],
)
def test_a_residual_network_loses_a_matmul_in_every_block(monkeypatch, methods, blocks, head):
    """And one in the head, if the gradient with respect to the last state is not needed."""
    program, inputs = traced(monkeypatch, *methods)
    before = large_matmuls(program)
    expected = blocks * DEPTH["resmlp"] + head
    assert removed(program, inputs) == expected
    assert large_matmuls(program) == before - expected


@pytest.mark.parametrize(("methods", "blocks", "head"), [(["bp"], 0, 0), (["fa"], 1, 0), (["dfa"] * 2, 1, 1)])
def test_a_transformer_loses_the_matmul_that_propagates_to_a_block_s_input(monkeypatch, methods, blocks, head):
    """Its rows are samples and tokens; a block's second LayerNorm passes the gradient on, so its matmul stays."""
    program, inputs = traced(monkeypatch, *methods, arch=tiny.arch("vit_mini"))
    before = large_matmuls(program)
    expected = blocks * DEPTH["vit_mini"] + head
    assert removed(program, inputs) == expected
    assert large_matmuls(program) == before - expected


def test_frozen_baselines_in_a_mixed_fleet_lose_the_same_matmuls(monkeypatch):
    program, inputs = traced(monkeypatch, "dfa", "dfa:shell=method")
    assert removed(program, inputs) == DEPTH["resmlp"] + 1


def test_every_fleet_is_rewritten(monkeypatch):
    counts = []
    monkeypatch.setattr(programs, "remove_norm_matmuls", lambda program: counts.append(remove_norm_matmuls(program)))
    resolved_runs = [tiny.resolved("dfa")]
    Fleet(resolved_runs, resolved_runs[0].source.load(None), tiny.CPU)._step()
    assert counts == [DEPTH["resmlp"] + 1]


def gradients(between=lambda u: u, rows=(6,), out=4, with_input=False):
    """A program that computes the gradients of LayerNorm, the function `between` and Linear, and its inputs."""
    width = 5
    generator = torch.Generator().manual_seed(1)
    shapes = [(width,), (width,), (out, width), (out,), (*rows, width), (*rows, out)]
    inputs = [torch.randn(2, *shape, generator=generator, dtype=torch.float64) for shape in shapes]

    def one(gamma, beta, weight, bias, x, credit):
        def forward(gamma, beta, weight, bias, x):
            return F.linear(between(F.layer_norm(x, (width,), gamma, beta)), weight, bias)

        found = vjp(forward, gamma, beta, weight, bias, x)[1](credit)
        return found if with_input else found[:-1]

    program = make_fx(lambda *given: vmap(one)(*given))(*inputs)
    program.graph.eliminate_dead_code()
    program.recompile()
    return program, inputs


@pytest.mark.parametrize("rows", [(6,), (2, 3), (2, 1, 3)])
def test_rows_may_have_several_axes(rows):
    assert removed(*gradients(rows=rows)) == 1


def test_a_matmul_needed_for_the_input_s_gradient_stays():
    assert removed(*gradients(with_input=True)) == 0


@pytest.mark.parametrize("between", [torch.relu, lambda u: 2 * u, lambda u: u.flip(-1), lambda u: u.flip(0)])
def test_a_norm_that_does_not_feed_the_linear_directly_is_not_rewritten(between):
    assert removed(*gradients(between)) == 0


def test_matmuls_with_few_rows_are_not_removed():
    assert removed(*gradients(rows=(2,), out=8)) == 1
    assert removed(*gradients(rows=(2,), out=9)) == 0


def test_a_program_with_in_place_writes_is_not_rewritten():
    def writing(*given):
        results = program(*given)
        results[0].mul_(2)
        return results

    program, inputs = gradients()
    assert removed(make_fx(writing)(*inputs), inputs) == 0

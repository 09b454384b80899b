"""A program that spares the product behind a LayerNorm's gradients is the same function, and spares what it can."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.func import vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

import tiny
from walkback.training import fleet as fleets
from walkback.training.fleet import Fleet
from walkback.training.gpu import graph_program as programs
from walkback.training.gpu.norm_gradients import remove_norm_matmuls

DEPTH = {net: tiny.resolved(arch=tiny.arch(net)).net.depth for net in ("resmlp", "vit_mini")}


class TracedError(Exception):
    """Stops a fleet once its program is traced; carries the program and what it was traced with."""


def traced(monkeypatch, *methods, **settings):
    """The program of a fleet without the rewriting, and its inputs with scales and shifts that are not 1 and 0."""

    def stop(function, inputs):
        raise TracedError(programs.trace_program(function, inputs), inputs)

    resolved_runs = [tiny.resolved(method, **settings | {"seeds": 1 + row}) for row, method in enumerate(methods)]
    monkeypatch.setattr(programs, "spare_norm_products", lambda _: 0)
    monkeypatch.setattr(fleets, "flat_program", stop)
    with pytest.raises(TracedError) as caught:
        Fleet(resolved_runs, resolved_runs[0].source.load(None), tiny.CPU)._step()
    program, (params, *others) = caught.value.args
    return program, (moved(params), *others)


def moved(params):
    generator = torch.Generator().manual_seed(0)
    found = {n: leaf + 0.3 * torch.randn(leaf.shape, generator=generator).to(leaf) for n, leaf in params.items()}
    for name, leaf in found.items():
        if "norm" in name and name.endswith("weight"):
            leaf[:, 1] = 0  # Gradients that were divided by the scale would not be finite.
    return found


def spared(program, inputs):
    """How many products; the results are compared on the way."""
    before = tree_leaves(program(*inputs))
    count = remove_norm_matmuls(program)
    program.graph.lint()
    after = tree_leaves(program(*inputs))
    for ours, theirs in zip(after, before, strict=True):
        assert ours.shape == theirs.shape
        assert (ours - theirs).norm() <= 1e-12 * theirs.norm()
    return count


def large_products(program):
    """Products of more than one row."""
    products = [node for node in program.graph.nodes if node.target is torch.ops.aten.bmm.default]
    return sum(node.meta["val"].shape[1] > 1 for node in products)


@pytest.mark.parametrize(
    ("methods", "blocks", "head"),
    [
        (["bp"] * 2, 0, 0),
        (["fa"] * 3, 1, 0),
        (["dfa:site=input"], 1, 1),
        (["state_bridge"] * 2, 1, 1),
    ],
)
def test_a_residual_network_spares_a_product_in_every_block(monkeypatch, methods, blocks, head):
    """And one in the head, where the gradient at the last state is not asked for."""
    program, inputs = traced(monkeypatch, *methods)
    before = large_products(program)
    expected = blocks * DEPTH["resmlp"] + head
    assert spared(program, inputs) == expected
    assert large_products(program) == before - expected


@pytest.mark.parametrize(("methods", "blocks", "head"), [(["bp"], 0, 0), (["fa"], 1, 0), (["dfa"] * 2, 1, 1)])
def test_a_transformer_spares_the_product_that_leads_to_a_block_s_input(monkeypatch, methods, blocks, head):
    """Its rows are samples and tokens; a block's second LayerNorm passes the gradient on, so its product stays."""
    program, inputs = traced(monkeypatch, *methods, arch=tiny.arch("vit_mini"))
    before = large_products(program)
    expected = blocks * DEPTH["vit_mini"] + head
    assert spared(program, inputs) == expected
    assert large_products(program) == before - expected


def test_shells_beside_whole_models_spare_the_same_products(monkeypatch):
    program, inputs = traced(monkeypatch, "dfa", "dfa:shell=method")
    assert spared(program, inputs) == DEPTH["resmlp"] + 1


def test_every_fleet_is_rewritten(monkeypatch):
    seen = []
    monkeypatch.setattr(programs, "spare_norm_products", lambda program: seen.append(remove_norm_matmuls(program)))
    resolved_runs = [tiny.resolved("dfa")]
    Fleet(resolved_runs, resolved_runs[0].source.load(None), tiny.CPU)._step()
    assert seen == [DEPTH["resmlp"] + 1]


def gradients(between=lambda u: u, rows=(6,), out=4, with_input=False):
    """A program with the gradients of LayerNorm, a function and Linear, and its inputs."""
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
    assert spared(*gradients(rows=rows)) == 1


def test_what_is_needed_for_the_input_s_gradient_stays():
    assert spared(*gradients(with_input=True)) == 0


@pytest.mark.parametrize("between", [torch.relu, lambda u: 2 * u, lambda u: u.flip(-1), lambda u: u.flip(0)])
def test_a_norm_that_does_not_feed_the_linear_directly_is_left_alone(between):
    assert spared(*gradients(between)) == 0


def test_few_rows_do_not_pay():
    assert spared(*gradients(rows=(2,), out=8)) == 1
    assert spared(*gradients(rows=(2,), out=9)) == 0


def test_a_program_that_writes_to_its_tensors_is_left_alone():
    def writing(*given):
        results = program(*given)
        results[0].mul_(2)
        return results

    program, inputs = gradients()
    assert spared(make_fx(writing)(*inputs), inputs) == 0

"""Products with few results and many terms, cut into several that are added up.

A batched product [b, m, k] x [b, k, n] is spread over a GPU by its results; with few of them most of the chip waits
while some add up k terms one after the other. A weight gradient is such a product: its terms are all samples and
tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

TILE = 64
"""Results are computed in squares of about this size, each by one multiprocessor."""
TILES = 1200
"""Squares up to which more of them are quicker, on a GPU with 132 multiprocessors."""
LEAST_TERMS = 256
"""Terms below which cutting up costs more than it gains."""

aten = torch.ops.aten


def split_products(program: GraphModule) -> int:
    """Rewrite the program in place; how many products were cut."""
    found = [node for node in program.graph.nodes if node.target is aten.bmm.default]
    return sum(_split(program.graph, node) for node in found)


def parts(batch: int, rows: int, terms: int, columns: int) -> int:
    """Into how many products one is cut: a power of two that divides its terms."""
    tiles = batch * -(-rows // TILE) * -(-columns // TILE)
    count = 1
    while 2 * count * tiles <= TILES and terms % (2 * count) == 0 and terms // (2 * count) >= LEAST_TERMS:
        count *= 2
    return count


def _split(graph: Graph, node: Node) -> bool:
    left, right = node.args
    assert isinstance(left, Node)
    assert isinstance(right, Node)
    (batch, rows, terms), columns = left.meta["val"].shape, right.meta["val"].shape[-1]
    count = parts(batch, rows, terms, columns)
    if count == 1 or not (_is_slow_axis(left, -1) and _is_slow_axis(right, 1)):
        return False
    length = terms // count

    def call(function: Callable[..., Any], *arguments: Any) -> Node:
        new = graph.call_function(function, arguments)
        # The result's shape, for whoever reads the rewritten program.
        new.meta["val"] = function(*(_shape(each) if isinstance(each, Node) else each for each in arguments))
        return new

    with graph.inserting_before(node):
        # [b, m, k] -> [b, count, m, k / count] -> [b * count, ...]
        apart = call(aten.transpose.int, call(aten.reshape.default, left, [batch, rows, count, length]), 1, 2)
        lefts = call(aten.reshape.default, apart, [batch * count, rows, length])
        rights = call(aten.reshape.default, right, [batch * count, length, columns])
        products = call(aten.bmm.default, lefts, rights)
        stacked = call(aten.view.default, products, [batch, count, rows, columns])
        total = call(aten.sum.dim_IntList, stacked, [1])
    node.replace_all_uses_with(total)
    graph.erase_node(node)
    return True


def _is_slow_axis(node: Node, axis: int) -> bool:
    """Whether cutting this axis of [b, ., .] is a mere view. Copies would cost what cutting gains."""
    value: torch.Tensor = node.meta["val"]
    return value.movedim(axis, 1).is_contiguous()


def _shape(node: Node) -> torch.Tensor:
    """A tensor without values that is laid out like the node's result."""
    value: torch.Tensor = node.meta["val"]
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")

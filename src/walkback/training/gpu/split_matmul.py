"""Products with few results and many terms, cut into several that are added up.

A batched product [b, m, k] x [b, k, n] is spread over a GPU by its results; with few of them most of the chip waits
while some add up k terms one after the other. A weight gradient is such a product: its terms are all samples and
tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from walkback.training.gpu.inlining import inlined
from walkback.training.gpu.tensorcore_matmul import tensorcore_matmul

_TILE = 64
"""Results are computed in squares of about this size, each by one multiprocessor."""
TILES = 1200
"""Squares up to which more of them are quicker, on a GPU with 132 multiprocessors."""
LEAST_TERMS = 256
"""Terms below which cutting up costs more than it gains."""


def split_matmuls(program: GraphModule) -> int:
    """Rewrite the program in place; how many products were cut."""
    found = [node for node in program.graph.nodes if node.target is torch.ops.aten.bmm.default]
    return sum(map(_split, found))


def parts(batch: int, rows: int, terms: int, columns: int) -> int:
    """Into how many products one is cut: a power of two that divides its terms."""
    tiles = batch * -(-rows // _TILE) * -(-columns // _TILE)
    count = 1
    while 2 * count * tiles <= TILES and terms % (2 * count) == 0 and terms // (2 * count) >= LEAST_TERMS:
        count *= 2
    return count


def cuts(left: Tensor, right: Tensor) -> int:
    """Into how many products [b, m, k] x [b, k, n] is cut. Where that were no mere view, copies would cost what cutting
    gains: into one."""
    is_view = left.movedim(-1, 1).is_contiguous() and right.is_contiguous()
    (batch, rows, terms), columns = left.shape, right.shape[-1]
    return parts(batch, rows, terms, columns) if is_view else 1


def matmul_in_parts(left: Tensor, right: Tensor, count: int) -> Tensor:
    """The product [b, m, k] x [b, k, n], its terms added up in `count` parts at once: the way a fleet does it."""
    if count == 1:
        return tensorcore_matmul(left, right)
    (batch, rows, terms), columns = left.shape, right.shape[-1]
    # [b, m, k] -> [b, count, m, k / count] -> [b * count, ...]
    lefts = left.reshape(batch, rows, count, terms // count).transpose(1, 2).reshape(batch * count, rows, -1)
    rights = right.reshape(batch * count, terms // count, columns)
    return tensorcore_matmul(lefts, rights).view(batch, count, rows, columns).sum(1)


def _split(node: Node) -> bool:
    left, right = node.args
    assert isinstance(left, Node)
    assert isinstance(right, Node)
    count = cuts(left.meta["val"], right.meta["val"])
    if count == 1:
        return False
    node.replace_all_uses_with(inlined(lambda a, b: matmul_in_parts(a, b, count), node, [left, right]))
    node.graph.erase_node(node)
    return True

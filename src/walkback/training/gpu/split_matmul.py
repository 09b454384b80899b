"""Split-K: matmuls with few results and many terms, split into several whose results are added.

A batched matmul [b, m, k] x [b, k, n] is distributed over a GPU by its results; if these are few, most multiprocessors
are idle while some add k terms one after the other. A weight gradient is such a matmul: its terms are all samples and
tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from walkback.training.gpu.inlining import inline_function
from walkback.training.gpu.tensorcore_matmul import tensorcore_matmul

_TILE = 64
"""Results are computed in square tiles of about this size, each by one multiprocessor."""
MAX_TILES = 1200
"""Number of tiles up to which more tiles are faster, on a GPU with 132 multiprocessors."""
MIN_TERMS = 256
"""Number of terms of a part below which splitting costs more than it gains."""


def split_matmuls(program: GraphModule) -> int:
    """Split the program's matmuls in place where it pays; returns how many were split."""
    found = [node for node in program.graph.nodes if node.target is torch.ops.aten.bmm.default]
    return sum(map(_split, found))


def split_count_for(batch: int, rows: int, terms: int, columns: int) -> int:
    """Number of parts for a matmul of these sizes: a power of two that divides its terms."""
    tiles = batch * -(-rows // _TILE) * -(-columns // _TILE)
    count = 1
    while 2 * count * tiles <= MAX_TILES and terms % (2 * count) == 0 and terms // (2 * count) >= MIN_TERMS:
        count *= 2
    return count


def split_count(left: Tensor, right: Tensor) -> int:
    """Number of parts for [b, m, k] x [b, k, n]; 1 if the parts are not views, since copies would cost what splitting
    gains."""
    is_view = left.movedim(-1, 1).is_contiguous() and right.is_contiguous()
    (batch, rows, terms), columns = left.shape, right.shape[-1]
    return split_count_for(batch, rows, terms, columns) if is_view else 1


def matmul_in_parts(left: Tensor, right: Tensor, count: int) -> Tensor:
    """The matmul [b, m, k] x [b, k, n] as a fleet computes it, with its terms summed in `count` parallel parts."""
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
    count = split_count(left.meta["val"], right.meta["val"])
    if count == 1:
        return False
    node.replace_all_uses_with(inline_function(lambda a, b: matmul_in_parts(a, b, count), node, [left, right]))
    node.graph.erase_node(node)
    return True

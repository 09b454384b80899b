"""A function's operations put into a traced program in the place of one of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx


def inlined(function: Callable[..., Tensor], before: Node, inputs: list[Any]) -> Node:
    """The function's own operations, put into the program's graph before a node."""
    with FakeTensorMode():
        vals = [node.meta["val"] for node in inputs]
        stand_ins = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device) for v in vals]
        piece = make_fx(function)(*stand_ins)
    taken = dict(zip((node for node in piece.graph.nodes if node.op == "placeholder"), inputs, strict=True))
    with before.graph.inserting_before(before):
        result = before.graph.graph_copy(piece.graph, taken)
    assert isinstance(result, Node)
    return result

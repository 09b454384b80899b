"""A function's operations put into a traced program in the place of one of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


Pass = tuple[Callable[..., Tensor], list[Any]]
"""A function, and the nodes it is given."""


def replace_pullback(node: Node, passes: Mapping[int, Pass]) -> None:
    """Do a convolution's pullback by functions of one's own: 0 for the input's gradient, 1 for the weights'.

    The bias's is a sum. Its node is left to whoever removes dead code.
    """
    credit, wanted = arguments(node)[0], arguments(node)[10]
    every: dict[int, Pass] = {**passes, 2: (lambda dy: dy.sum((0, 2, 3)), [credit])}
    for user in list(node.users):
        which = arguments(user)[1]
        if wanted[which]:
            function, inputs = every[which]
            user.replace_all_uses_with(inlined(function, node, inputs))


def arguments(node: Node) -> tuple[Any, ...]:
    return node.args

"""Replaces an operation of a traced program by the operations of a Python function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx


def inline_function(function: Callable[..., Tensor], before: Node, inputs: list[Any]) -> Node:
    """Trace the function and insert its operations into the graph before the node `before`; returns the result node.

    `inputs` are the nodes of its arguments.
    """
    with FakeTensorMode():
        vals = [node.meta["val"] for node in inputs]
        stand_ins = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device=v.device) for v in vals]
        traced = make_fx(function)(*stand_ins)
    placeholders = dict(zip((node for node in traced.graph.nodes if node.op == "placeholder"), inputs, strict=True))
    with before.graph.inserting_before(before):
        result = before.graph.graph_copy(traced.graph, placeholders)
    assert isinstance(result, Node)
    return result


FunctionCall = tuple[Callable[..., Tensor], list[Any]]
"""A function, and the nodes of its arguments."""


def replace_conv_backward(node: Node, gradients: Mapping[int, FunctionCall]) -> None:
    """Replace the results of a `convolution_backward`: `gradients` has 0 for the input's gradient, 1 for the weight's.

    The bias's gradient is a sum. The caller removes the node itself as dead code.
    """
    credit, wanted = arguments(node)[0], arguments(node)[10]
    functions: dict[int, FunctionCall] = {**gradients, 2: (lambda dy: dy.sum((0, 2, 3)), [credit])}
    for user in list(node.users):
        which = arguments(user)[1]
        if wanted[which]:
            function, inputs = functions[which]
            user.replace_all_uses_with(inline_function(function, node, inputs))


def arguments(node: Node) -> tuple[Any, ...]:
    """The node's arguments, typed as Any."""
    return node.args

"""The gradients of a LayerNorm's scale and shift without the matmul that propagates the gradient to its output.

A LayerNorm u = gamma * x + beta of normalised rows x feeds a Linear whose output has the gradient G. Propagated back
through the Linear's matrix W the gradient is G W, [rows, in]; summed over rows i,

    dgamma_j = sum_i x_ij (G W)_ij        dbeta_j = sum_i (G W)_ij        dW = G' u

If a block's input needs no gradient, nothing else reads G W, and it need not be computed: with P = G' x, a matmul of
the size of dW's that replaces it, and with the sum g of G's rows,

    dgamma_j = sum_k W_kj P_kj            dbeta = g W                     dW_kj = P_kj gamma_j + g_k beta_j

W is the matrix the gradient is propagated back through; it need not be the one of the forward pass.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from walkback.training.gpu.inlining import inline_function

_aten = torch.ops.aten
MIN_ROWS_PER_OUTPUT = 0.25
"""Rows per output of the Linear below which the work on matrices of W's size costs more than the matmul."""
_ORDER_KEEPING = (
    _aten.view.default,
    _aten._unsafe_view.default,
    _aten.unsqueeze.default,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
    _aten.clone.default,
)
"""Operations that keep all elements and their row-major order."""


@dataclass(frozen=True)
class _Norm:
    """The output of a LayerNorm: rows * gamma + beta."""

    layer: Node
    rows: Node
    gamma: Node
    beta: Node


@dataclass(frozen=True)
class _RemovableMatmul:
    """A matmul G W that can be removed, and the nodes that are computed from it or together with it."""

    matmul: Node
    credit: Node
    """G, as the weight gradient reads it."""
    weight_gradient: Node
    gamma_gradient: Node
    beta_gradient: Node
    norm: _Norm


def remove_norm_matmuls(program: GraphModule) -> int:
    """Rewrite the program in place; returns how many matmuls were removed."""
    if any(_writes(node) for node in program.graph.nodes):
        return 0  # Results are computed at other positions than before: an in-place write could change their operands.
    matmuls = [node for node in program.graph.nodes if node.target is _aten.bmm.default]
    removable = [found for node in matmuls if _is_worth_removing(node) and (found := _find_removable(node, matmuls))]
    removed = sum(map(_rewrite, removable))
    if removed:
        program.graph.eliminate_dead_code()
        program.recompile()
    return removed


def _is_worth_removing(matmul: Node) -> bool:
    """Whether removing a matmul of [models, rows, out] and [models, out, in] saves time."""
    _, rows, out = _shape(_operands(matmul)[0])
    return rows >= MIN_ROWS_PER_OUTPUT * out


def _find_removable(matmul: Node, matmuls: list[Node]) -> _RemovableMatmul | None:
    """The matmul and its readers if it is used for one LayerNorm's gradients only, else None."""
    readers = list(_readers(matmul))
    sums = [node for node in readers if _sums_rows(node, matmul)]
    multiplied = [node for node in readers if node.target is _aten.mul.Tensor]
    if len(readers) != 2 or len(sums) != 1 or len(multiplied) != 1:
        return None
    (beta_gradient,), (weighted,) = sums, multiplied
    after = list(_readers(weighted))
    if len(after) != 1 or not _sums_rows(after[0], matmul):
        return None
    for candidate in matmuls:
        credit = _credit(candidate)
        if credit is None or not _is_same(credit, _operands(matmul)[0]):
            continue
        norm = _norm(_operands(candidate)[1])
        if norm and any(_is_normalised(rows, norm.layer) for rows, _ in _both_orders(weighted, _aten.mul.Tensor)):
            return _RemovableMatmul(matmul, credit, candidate, after[0], beta_gradient, norm)
    return None


def _credit(weight_gradient: Node) -> Node | None:
    """The G [models, rows, out] of a matmul G' u; None if the first operand is not transposed."""
    transposed = _source(_operands(weight_gradient)[0], keep_shape=True)
    dims: Any = transposed.args[1:]
    if transposed.target is not _aten.transpose.int or {dim % 3 for dim in dims} != {1, 2}:
        return None
    return transposed.all_input_nodes[0]


def _norm(output: Node) -> _Norm | None:
    """The LayerNorm whose output is this operand [models, rows, in] of a matmul, if any."""
    models, _, width = _shape(output)
    for multiplied, beta in _both_orders(_source(output), _aten.add.Tensor):
        for rows, gamma in _both_orders(multiplied, _aten.mul.Tensor):
            layer = _normalisation(rows)
            leaves_fit = all(_is_one_row(leaf, models, width) for leaf in (gamma, beta))
            if layer and leaves_fit and _shape(rows) == _shape(multiplied) and _has_rows(rows, output):
                return _Norm(layer, rows, gamma, beta)
    return None


def _normalisation(rows: Node) -> Node | None:
    """The normalisation over the last axis, without scale and shift, that computes these rows, if any."""
    item = _source(rows, keep_shape=True)
    if item.target is not operator.getitem or item.args[1] != 0:
        return None
    (layer,) = item.all_input_nodes
    if layer.target is not _aten.native_layer_norm.default:
        return None
    _, normalised, gamma, beta, _ = layer.args
    is_plain = normalised == [_shape(rows)[-1]] and gamma is None and beta is None
    return layer if is_plain else None


def _is_normalised(node: Node, layer: Node) -> bool:
    """Whether these are the normalised rows, or (x - mean) / std recomputed, as the derivative does."""
    if _normalisation(node) is layer:
        return True
    for centred, scale in _both_orders(_source(node, keep_shape=True), _aten.mul.Tensor):
        if _is_item(scale, layer, 2) and centred.target is _aten.sub.Tensor and not centred.kwargs:
            x, mean = centred.args
            return x is layer.args[0] and isinstance(mean, Node) and _is_item(mean, layer, 1)
    return False


def _rewrite(found: _RemovableMatmul) -> bool:
    """Compute each result at the position of the old one; returns False if gamma's or beta's comes before P."""
    order = {node: index for index, node in enumerate(found.matmul.graph.nodes)}
    weight_gradient = found.weight_gradient
    if order[weight_gradient] > min(order[found.gamma_gradient], order[found.beta_gradient]):
        return False
    credit, transposed, weight = found.credit, _operands(weight_gradient)[0], _operands(found.matmul)[1]
    total = inline_function(lambda g: g.sum(1, True), weight_gradient, [credit])
    p = inline_function(_normalised_weight_gradient, weight_gradient, [transposed, found.norm.rows])
    _replace(weight_gradient, _weight_gradient, [p, total, found.norm.gamma, found.norm.beta])
    _replace(found.gamma_gradient, lambda p, w: (p * w).sum(1), [p, weight])
    _replace(found.beta_gradient, torch.bmm, [total, weight])
    for node in _readers(_source(credit)):
        # The Linear's bias gradient is the same sum.
        if order.get(node, 0) > order[weight_gradient] and _sums_rows(node, credit) and _shape(node) == _shape(total):
            node.replace_all_uses_with(total)
    return True


def _normalised_weight_gradient(transposed: Tensor, rows: Tensor) -> Tensor:
    """P = G' x, [models, out, in]."""
    return torch.bmm(transposed, rows.reshape(len(rows), -1, rows.shape[-1]))


def _weight_gradient(p: Tensor, total: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    models, _, width = p.shape
    scale, shift = (leaf.reshape(models, 1, width) for leaf in (gamma, beta))
    return torch.addcmul(total.transpose(1, 2) * shift, p, scale)


def _replace(node: Node, function: Callable[..., Tensor], inputs: list[Node]) -> None:
    shape = _shape(node)
    node.replace_all_uses_with(inline_function(lambda *given: function(*given).view(shape), node, inputs))


def _source(node: Node, keep_shape: bool = False) -> Node:
    """The tensor of which this one is a view or a copy with the elements in the same order."""
    shape = _shape(node)
    while _keeps_order(node):
        (before,) = node.all_input_nodes
        if keep_shape and _shape(before) != shape:
            break
        node = before
    return node


def _is_same(left: Node, right: Node) -> bool:
    """Whether two nodes have the same values in the same shape."""
    return _shape(left) == _shape(right) and _source(left) is _source(right)


def _readers(node: Node) -> Iterator[Node]:
    """The operations that compute with a tensor or a view of it."""
    for user in node.users:
        if _keeps_order(user):
            yield from _readers(user)
        else:
            yield user


def _keeps_order(node: Node) -> bool:
    if node.target is _aten.expand.default:
        return _shape(node) == _shape(node.all_input_nodes[0])
    return node.target in _ORDER_KEEPING


def _sums_rows(node: Node, matmul: Node) -> bool:
    """Whether a node sums over all rows of a matmul's result, that is over all axes but the models and the last."""
    if node.target is not _aten.sum.dim_IntList or node.kwargs:
        return False
    (summed,) = node.all_input_nodes
    axes = len(_shape(summed))
    dims: Any = node.args[1] or ()
    return _has_rows(summed, matmul) and sorted(dim % axes for dim in dims) == list(range(1, axes - 1))


def _has_rows(node: Node, matmul: Node) -> bool:
    """Whether two tensors have the same number of elements, models and last axis."""
    left, right = _shape(node), _shape(matmul)
    return len(left) >= 3 and (left[0], left[-1]) == (right[0], right[-1]) and left.numel() == right.numel()


def _is_one_row(leaf: Node, models: int, width: int) -> bool:
    """[models, 1, ..., width]"""
    shape = _shape(leaf)
    return len(shape) >= 3 and (shape[0], shape[-1]) == (models, width) and shape.numel() == models * width


def _both_orders(node: Node, operation: Any) -> Iterator[tuple[Node, Node]]:
    """Both orders of the operands if the node is this sum or product of two tensors, else nothing."""
    if node.target is operation and not node.kwargs and all(isinstance(arg, Node) for arg in node.args):
        left, right = _operands(node)
        yield left, right
        yield right, left


def _is_item(node: Node, layer: Node, index: int) -> bool:
    return node.target is operator.getitem and node.args == (layer, index)


def _operands(node: Node) -> tuple[Node, Node]:
    left, right = node.args
    assert isinstance(left, Node)
    assert isinstance(right, Node)
    return left, right


def _shape(node: Node) -> torch.Size:
    shape: torch.Size = node.meta["val"].shape
    return shape


def _writes(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable

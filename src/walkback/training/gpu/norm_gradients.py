"""The gradients of a LayerNorm's scale and shift without the product that pulls a gradient back to its output.

A LayerNorm u = gamma * x + beta of normalised rows x feeds a Linear whose output has the gradient G. Pulled back
through the Linear's matrix W that is G W, rows x in; summed over rows i,

    dgamma_j = sum_i x_ij (G W)_ij        dbeta_j = sum_i (G W)_ij        dW = G' u

Where a block's input needs no gradient, nothing else reads G W, and it need not be computed: with P = G' x, a product
as large as the one of dW and in its place, and with the sum g of G's rows,

    dgamma_j = sum_k W_kj P_kj            dbeta = g W                     dW_kj = P_kj gamma_j + g_k beta_j

W is whatever matrix the gradient is pulled back through; it need not be the one of the forward pass.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from walkback.training.gpu.inlining import inlined

aten = torch.ops.aten
LEAST_ROWS = 0.25
"""Rows for each of the Linear's outputs below which the work on matrices of W's size costs more than a product."""
SAME_ORDER = (
    aten.view.default,
    aten._unsafe_view.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.clone.default,
)
"""Operations that keep all elements, and the order in which a reader of rows meets them."""


@dataclass(frozen=True)
class _Norm:
    """The output of a LayerNorm: rows * gamma + beta."""

    layer: Node
    rows: Node
    gamma: Node
    beta: Node


@dataclass(frozen=True)
class _Place:
    """A product G W that can be spared, and what is computed from it or together with it."""

    product: Node
    credit: Node
    """G, as the weight gradient reads it."""
    weight_gradient: Node
    gamma_gradient: Node
    beta_gradient: Node
    norm: _Norm


def remove_norm_matmuls(program: GraphModule) -> int:
    """Rewrite the program in place; how many products were spared."""
    if any(_writes(node) for node in program.graph.nodes):
        return 0  # What is computed elsewhere than before could read a tensor before or after it is written to.
    products = [node for node in program.graph.nodes if node.target is aten.bmm.default]
    places = [place for node in products if _pays(node) and (place := _place(node, products))]
    spared = sum(map(_rewrite, places))
    if spared:
        program.graph.eliminate_dead_code()
        program.recompile()
    return spared


def _pays(product: Node) -> bool:
    """Of a product of [models, rows, out] and [models, out, in]."""
    _, rows, out = _shape(_operands(product)[0])
    return rows >= LEAST_ROWS * out


def _place(product: Node, products: list[Node]) -> _Place | None:
    """How the product serves one LayerNorm's gradients; None where it serves anything else."""
    readers = list(_readers(product))
    sums = [node for node in readers if _sums_rows(node, product)]
    scaled = [node for node in readers if node.target is aten.mul.Tensor]
    if len(readers) != 2 or len(sums) != 1 or len(scaled) != 1:
        return None
    (beta_gradient,), (weighted,) = sums, scaled
    after = list(_readers(weighted))
    if len(after) != 1 or not _sums_rows(after[0], product):
        return None
    for candidate in products:
        credit = _credit(candidate)
        if credit is None or not _is_same(credit, _operands(product)[0]):
            continue
        norm = _norm(_operands(candidate)[1])
        if norm and any(_is_normalised(rows, norm.layer) for rows, _ in _either_way(weighted, aten.mul.Tensor)):
            return _Place(product, credit, candidate, after[0], beta_gradient, norm)
    return None


def _credit(weight_gradient: Node) -> Node | None:
    """The G [models, rows, out] of a product G' u; None where the first operand is not turned."""
    turned = _source(_operands(weight_gradient)[0], keep_shape=True)
    dims: Any = turned.args[1:]
    if turned.target is not aten.transpose.int or {dim % 3 for dim in dims} != {1, 2}:
        return None
    return turned.all_input_nodes[0]


def _norm(output: Node) -> _Norm | None:
    """The LayerNorm that a product's operand [models, rows, in] is the output of."""
    models, _, width = _shape(output)
    for scaled, beta in _either_way(_source(output), aten.add.Tensor):
        for rows, gamma in _either_way(scaled, aten.mul.Tensor):
            layer = _normalisation(rows)
            leaves_fit = all(_is_one_row(leaf, models, width) for leaf in (gamma, beta))
            if layer and leaves_fit and _shape(rows) == _shape(scaled) and _has_rows(rows, output):
                return _Norm(layer, rows, gamma, beta)
    return None


def _normalisation(rows: Node) -> Node | None:
    """The normalisation over the last axis, without scale and shift, that gives these rows."""
    picked = _source(rows, keep_shape=True)
    if picked.target is not operator.getitem or picked.args[1] != 0:
        return None
    (layer,) = picked.all_input_nodes
    if layer.target is not aten.native_layer_norm.default:
        return None
    _, normalised, gamma, beta, _ = layer.args
    is_plain = normalised == [_shape(rows)[-1]] and gamma is None and beta is None
    return layer if is_plain else None


def _is_normalised(node: Node, layer: Node) -> bool:
    """Whether these are the normalisation's own rows, or (x - mean) / std anew, as its derivative computes them."""
    if _normalisation(node) is layer:
        return True
    for centred, scale in _either_way(_source(node, keep_shape=True), aten.mul.Tensor):
        if _picks(scale, layer, 2) and centred.target is aten.sub.Tensor and not centred.kwargs:
            x, mean = centred.args
            return x is layer.args[0] and isinstance(mean, Node) and _picks(mean, layer, 1)
    return False


def _rewrite(place: _Place) -> bool:
    """Each result is computed in the place of the old one; not where those of gamma and beta come before P."""
    order = {node: index for index, node in enumerate(place.product.graph.nodes)}
    at = place.weight_gradient
    if order[at] > min(order[place.gamma_gradient], order[place.beta_gradient]):
        return False
    credit, turned, weight = place.credit, _operands(at)[0], _operands(place.product)[1]
    total = inlined(lambda g: g.sum(1, True), at, [credit])
    joint = inlined(_joint_product, at, [turned, place.norm.rows])
    _replace(at, _weight_gradient, [joint, total, place.norm.gamma, place.norm.beta])
    _replace(place.gamma_gradient, lambda p, w: (p * w).sum(1), [joint, weight])
    _replace(place.beta_gradient, torch.bmm, [total, weight])
    for node in _readers(_source(credit)):
        # The Linear's bias gradient is the same sum.
        if order.get(node, 0) > order[at] and _sums_rows(node, credit) and _shape(node) == _shape(total):
            node.replace_all_uses_with(total)
    return True


def _joint_product(turned: Tensor, rows: Tensor) -> Tensor:
    """P [models, out, in]"""
    return torch.bmm(turned, rows.reshape(len(rows), -1, rows.shape[-1]))


def _weight_gradient(joint: Tensor, total: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    models, _, width = joint.shape
    scale, shift = (leaf.reshape(models, 1, width) for leaf in (gamma, beta))
    return torch.addcmul(total.transpose(1, 2) * shift, joint, scale)


def _replace(node: Node, function: Callable[..., Tensor], inputs: list[Node]) -> None:
    shape = _shape(node)
    node.replace_all_uses_with(inlined(lambda *given: function(*given).view(shape), node, inputs))


def _source(node: Node, keep_shape: bool = False) -> Node:
    """The tensor that this one is another view or a copy of, its elements in the same order."""
    shape = _shape(node)
    while _keeps_order(node):
        (before,) = node.all_input_nodes
        if keep_shape and _shape(before) != shape:
            break
        node = before
    return node


def _is_same(left: Node, right: Node) -> bool:
    """Whether two are the same values in the same shape."""
    return _shape(left) == _shape(right) and _source(left) is _source(right)


def _readers(node: Node) -> Iterator[Node]:
    """What computes with a tensor or a view of it."""
    for user in node.users:
        if _keeps_order(user):
            yield from _readers(user)
        else:
            yield user


def _keeps_order(node: Node) -> bool:
    if node.target is aten.expand.default:
        return _shape(node) == _shape(node.all_input_nodes[0])
    return node.target in SAME_ORDER


def _sums_rows(node: Node, product: Node) -> bool:
    """Whether a node sums over all of a product's rows, that is all axes but the models and the last."""
    if node.target is not aten.sum.dim_IntList or node.kwargs:
        return False
    (summed,) = node.all_input_nodes
    axes = len(_shape(summed))
    dims: Any = node.args[1] or ()
    return _has_rows(summed, product) and sorted(dim % axes for dim in dims) == list(range(1, axes - 1))


def _has_rows(node: Node, product: Node) -> bool:
    """Whether a tensor of as many elements has models and the last axis in the same places."""
    ours, theirs = _shape(node), _shape(product)
    return len(ours) >= 3 and (ours[0], ours[-1]) == (theirs[0], theirs[-1]) and ours.numel() == theirs.numel()


def _is_one_row(leaf: Node, models: int, width: int) -> bool:
    """[models, 1, ..., width]"""
    shape = _shape(leaf)
    return len(shape) >= 3 and (shape[0], shape[-1]) == (models, width) and shape.numel() == models * width


def _either_way(node: Node, operation: Any) -> Iterator[tuple[Node, Node]]:
    """Both orders of the operands of a sum or a product of two tensors; nothing where it is something else."""
    if node.target is operation and not node.kwargs and all(isinstance(arg, Node) for arg in node.args):
        left, right = _operands(node)
        yield left, right
        yield right, left


def _picks(node: Node, layer: Node, index: int) -> bool:
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

"""A hand-written cosine with an absolute epsilon in its denominator, in code that measures gradients.

Why: `dot / (|a| |b| + 1e-8)` is right only while |a| |b| is far above the epsilon. For two gradients of norm 1e-5 it
gives 0.01 of the true cosine, and how much is lost depends on the loss's reduction and so on the batch it was measured
with.
Instead: divide by the norms in float64 with no epsilon, exclude samples whose norm is zero or not finite, count them.
Pitfall: 2, 13
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import (
    file_measures_alignment,
    is_gradient,
    is_norm,
    is_product_of_norms,
    resolve_number,
    square_root_operand,
    sum_of_squares_operand,
)
from walkback.linting.identifier_words import argument, name_of
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_HARMLESS = 1e-12
_LARGEST = 1e-2
"""A larger constant in the denominator is not an epsilon."""
_DIVIDING_CALLS = {"torch.div", "torch.true_divide", "torch.divide", "numpy.divide"}
CLAMPING_CALLS = {"torch.clamp", "torch.clamp_min", "torch.maximum", "numpy.clip", "numpy.maximum", "max"}


def find(source: Source) -> Iterator[Hit]:
    for node in source.nodes(ast.expr):
        match node:
            case ast.BinOp(op=ast.Div(), right=denominator):
                floor = _floor(source, denominator)
            case ast.Call(args=[_, denominator]) if source.called_name(node) in _DIVIDING_CALLS:
                floor = _floor(source, denominator)
            case _:
                continue
        if floor is not None and (file_measures_alignment(source) or _names_a_gradient(source, node)):
            yield node, f"{floor:g} in this cosine's denominator shrinks it where gradients are small"


def _floor(source: Source, node: ast.expr) -> float | None:
    """The epsilon in `|a| |b| + eps`, `(|a| + eps)(|b| + eps)`, `max(|a| |b|, eps)`."""
    if isinstance(node, ast.Name):
        return _floor_of_name(source, node)
    root = square_root_operand(source, node)
    if root is not None:
        # sqrt(|a|^2 |b|^2 + eps): the floor of the denominator is the root of eps.
        inside = next(((n, s) for n, s in _sums(root) if resolve_number(source, s) is not None), None)
        value = resolve_number(source, inside[1]) if inside else None
        if inside is None or value is None or not _HARMLESS < value**0.5 <= _LARGEST:
            return None
        return value**0.5 if _is_product_of_squares(source, inside[0]) else None
    epsilon, inner = _epsilon_and_operand(source, node)
    if epsilon is not None:
        return epsilon if is_product_of_norms(source, inner) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        floors = [_epsilon_and_operand(source, side) for side in (node.left, node.right)]
        values = [floor for floor, _ in floors if floor is not None]
        if values and all(is_norm(source, inside) for _, inside in floors):
            return max(values)
    return None


def _floor_of_name(source: Source, name: ast.Name) -> float | None:
    """The epsilon of a denominator that has a name: `d = |a| |b| + eps`, or `d = |a| |b|` and `d += eps`."""
    bindings = source.bindings(name, name.id)
    values = [binding.value for binding in bindings if binding.value is not None]
    if len(values) != 1 or isinstance(values[0], ast.Name):
        return None
    added = [binding.node.value for binding in bindings if isinstance(binding.node, ast.AugAssign)]
    if added and is_product_of_norms(source, values[0]):
        return _epsilon(source, added[0])
    return _floor(source, values[0])


def _sums(node: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [(node.left, node.right), (node.right, node.left)]
    return []


def _is_product_of_squares(source: Source, node: ast.expr) -> bool:
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return False
    return all(sum_of_squares_operand(source, side) is not None for side in (node.left, node.right))


def _epsilon_and_operand(source: Source, node: ast.expr) -> tuple[float | None, ast.expr]:
    """(epsilon, the expression it is added to or clamps); (None, node) where there is no epsilon."""
    match node:
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            for inner, epsilon in ((left, right), (right, left)):
                if (value := _epsilon(source, epsilon)) is not None:
                    return value, inner
        case ast.Call(args=[inner, *_]) if source.called_name(node) in CLAMPING_CALLS:
            return _epsilon(source, argument(node, 1, "min", "a_min")), inner
        case ast.Call(func=ast.Attribute(value=inner, attr="clamp" | "clamp_min" | "clip")) if not source.called_name(
            node
        ):
            return _epsilon(source, argument(node, 0, "min")), inner
    return None, node


def _epsilon(source: Source, node: ast.expr | None) -> float | None:
    if isinstance(node, ast.Name):
        values = [binding.value for binding in source.bindings(node, node.id)]
        node = values[0] if len(values) == 1 and isinstance(values[0], ast.Attribute) else node
    value = resolve_number(source, node)
    if value is None and isinstance(node, ast.Attribute) and node.attr == "eps" and name_of(node.value) == "finfo":
        value = 1.2e-7
    return value if value is not None and _HARMLESS < value <= _LARGEST else None


def _names_a_gradient(source: Source, node: ast.expr) -> bool:
    return any(is_gradient(source, n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))


RULE = Rule.of("WB015", __doc__, find)

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

from walkback.linting.expression_kinds import file_measures_alignment, is_gradient, is_norm, resolve_number
from walkback.linting.identifier_words import argument, name_of
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_HARMLESS = 1e-12
_LARGEST = 1e-2
"""A larger constant in the denominator is not an epsilon."""
CLAMPING_CALLS = {"torch.clamp", "torch.clamp_min", "torch.maximum", "numpy.clip", "numpy.maximum", "max"}


def find(source: Source) -> Iterator[Hit]:
    for node in source.nodes(ast.BinOp):
        if not isinstance(node.op, ast.Div):
            continue
        floor = _floor(source, node.right)
        if floor is not None and (file_measures_alignment(source) or _names_a_gradient(source, node)):
            yield node, f"{floor:g} in this cosine's denominator shrinks it where gradients are small"


def _floor(source: Source, node: ast.expr) -> float | None:
    """The epsilon in `|a| |b| + eps`, `(|a| + eps)(|b| + eps)`, `max(|a| |b|, eps)`."""
    epsilon, inner = _epsilon_and_operand(source, node)
    if epsilon is not None:
        return epsilon if _is_product_of_norms(source, inner) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        floors = [_epsilon_and_operand(source, side) for side in (node.left, node.right)]
        values = [floor for floor, _ in floors if floor is not None]
        if values and all(is_norm(source, inside) for _, inside in floors):
            return max(values)
    return None


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
    value = resolve_number(source, node)
    if value is None and isinstance(node, ast.Attribute) and node.attr == "eps" and name_of(node.value) == "finfo":
        value = 1.2e-7
    return value if value is not None and _HARMLESS < value <= _LARGEST else None


def _is_product_of_norms(source: Source, node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return is_norm(source, node.left) and is_norm(source, node.right)
    return False


def _names_a_gradient(source: Source, node: ast.BinOp) -> bool:
    return any(is_gradient(source, n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))


RULE = Rule.of("WB015", __doc__, find)

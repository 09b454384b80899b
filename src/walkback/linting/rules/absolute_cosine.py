"""The absolute value of a cosine: credit that points uphill counts as aligned.

Why: a credit with cosine -0.5 makes the loss worse; |cos| reports it as useful alignment, and the mean of |cos| of
random credits is about 0.8 / sqrt(d), not 0.
Instead: keep the sign, and compare with a null of the same spread.
Pitfall: none
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import is_cosine, is_cosine_by_hand, square_operand, square_root_operand
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_ABS_CALLS = {"abs", "torch.abs", "numpy.abs", "math.fabs", "numpy.fabs"}
_ABS_METHODS = ("abs", "abs_", "absolute", "absolute_")
_MAXIMUM_CALLS = ("max", "torch.maximum", "torch.max", "numpy.maximum")
_MESSAGE = "the sign of this cosine is discarded: credit that points uphill counts as aligned"


def find(source: Source) -> Iterator[Hit]:
    for call in source.nodes(ast.Call):
        # abs(a - b) of two cosines is a difference; |cos| < 1e-6 tests whether vectors are orthogonal.
        values = _abs_operand(source, call)
        if values is None or isinstance(values, ast.BinOp) or _is_compared(source, call):
            continue
        if is_cosine(source, values):
            yield call, _MESSAGE
    for node in source.nodes(ast.BinOp):
        # |dot| / (norm * norm)
        is_of_dot = isinstance(node.left, ast.Call) and _abs_operand(source, node.left) is not None
        if is_of_dot and is_cosine_by_hand(source, node) and not _is_compared(source, node):
            yield node, _MESSAGE


def _abs_operand(source: Source, call: ast.Call) -> ast.expr | None:
    """The x of abs(x), x.abs(), map(abs, x), sqrt(x**2) and maximum(x, -x)."""
    called = source.called_name(call)
    if called in _ABS_CALLS:
        return call.args[0] if call.args else None
    if isinstance(call.func, ast.Attribute) and call.func.attr in _ABS_METHODS and not called:
        return call.func.value
    root = square_root_operand(source, call)
    if root is not None:
        return square_operand(source, root)
    match call.args:
        case [function, values] if called == "map" and source.qualified_name(function) in _ABS_CALLS:
            return values
        case [one, ast.UnaryOp(op=ast.USub(), operand=other)] if called in _MAXIMUM_CALLS:
            return one if ast.dump(one) == ast.dump(other) else None
    return None


def _is_compared(source: Source, call: ast.expr) -> bool:
    """Whether the value is only compared with a bound, here or through the name it is assigned to."""
    for outer in source.ancestors(call):
        if isinstance(outer, ast.Compare | ast.Assert):
            return True
        if isinstance(outer, ast.Assign) and isinstance(outer.targets[0], ast.Name):
            name = outer.targets[0].id
            named = (
                node
                for node in source.scope_nodes(source.enclosing_scope(call))
                if isinstance(node, ast.Name) and node.id == name
            )
            uses = [node for node in named if isinstance(node.ctx, ast.Load)]
            return bool(uses) and all(_in_comparison(source, use) for use in uses)
        if isinstance(outer, ast.stmt):
            return False
    return False


def _in_comparison(source: Source, node: ast.AST) -> bool:
    return any(isinstance(outer, ast.Compare) for outer in source.ancestors(node))


RULE = Rule.of("WB010", __doc__, find)

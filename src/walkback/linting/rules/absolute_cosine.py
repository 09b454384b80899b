"""The absolute value of a cosine: credit that points uphill counts as aligned.

Why: a credit with cosine -0.5 makes the loss worse; |cos| reports it as useful alignment, and the mean of |cos| of
random credits is about 0.8 / sqrt(d), not 0.
Instead: keep the sign, and compare with a null of the same spread.
Pitfall: none
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import is_cosine
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_ABS_CALLS = {"abs", "torch.abs", "numpy.abs", "math.fabs", "numpy.fabs"}


def find(source: Source) -> Iterator[Hit]:
    for call in source.nodes(ast.Call):
        # abs(a - b) of two cosines is a difference; |cos| < 1e-6 tests whether vectors are orthogonal.
        values = _abs_operand(source, call)
        if values is None or isinstance(values, ast.BinOp) or _is_compared(source, call):
            continue
        if is_cosine(source, values):
            yield call, "the sign of this cosine is discarded: credit that points uphill counts as aligned"


def _abs_operand(source: Source, call: ast.Call) -> ast.expr | None:
    if source.called_name(call) in _ABS_CALLS:
        return call.args[0] if call.args else None
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("abs", "abs_") and not source.called_name(call):
        return call.func.value
    return None


def _is_compared(source: Source, call: ast.Call) -> bool:
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

"""The cosine of a gradient with itself: 1.0 by construction, whatever the method.

Why: scripts that find no feedback in a checkpoint fall back to the backprop gradient for the credit as well; the
comparison then runs without an error and reports perfect alignment.
Instead: stop where the method's own credit cannot be computed, and report the alignment as missing.
Pitfall: 7
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.meaning import is_cosine_call, is_gradient
from walkback.linting.names import FEEDBACK, label_words
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_CREDIT = {"credit", "credits", "delta", "deltas"}


def find(source: Source) -> Iterator[Hit]:
    for node in source.all(ast.AST):
        match node:
            case ast.Call(args=[one, other, *_]) if is_cosine_call(source, node) and ast.dump(one) == ast.dump(other):
                if is_gradient(source, one) and not _is_checked(source, node):
                    yield node, "both sides of this cosine are the same gradient: it is 1.0 by construction"
            case ast.IfExp(test=test, body=one, orelse=other) if _is_credit(source, node):
                fallback = one if _asks(test, ast.Is()) else other if _asks(test, ast.IsNot()) else None
                if fallback is not None and _is_reference(source, fallback):
                    yield node, "without feedback the credit falls back to the reference gradient: the cosine is 1.0"
            case ast.If(test=test, body=[ast.Assign(targets=[target], value=value), *_]) if _asks(test, ast.Is()):
                if label_words(target) & _CREDIT and _is_reference(source, value):
                    yield node.body[0], "without feedback the credit falls back to the reference gradient"


def _asks(test: ast.expr, op: ast.cmpop) -> bool:
    """`feedback is None` or `feedback is not None`."""
    match test:
        case ast.Compare(left=left, ops=[found], comparators=[ast.Constant(value=None)]):
            return type(found) is type(op) and bool(label_words(left) & FEEDBACK)
    return False


def _is_credit(source: Source, node: ast.IfExp) -> bool:
    outer = source.parents[node]
    return isinstance(outer, ast.Assign) and any(label_words(target) & _CREDIT for target in outer.targets)


def _is_reference(source: Source, node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and is_gradient(source, node) and not label_words(node) & _CREDIT


def _is_checked(source: Source, node: ast.AST) -> bool:
    """A test that the cosine of equal vectors is 1."""
    return any(isinstance(outer, ast.Assert) for outer in source.above(node))


RULE = Rule.of("WB019", __doc__, find)

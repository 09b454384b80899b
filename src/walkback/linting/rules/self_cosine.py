"""The cosine of a gradient with itself: 1.0 by construction, whatever the method.

Why: scripts that find no feedback in a checkpoint fall back to the backprop gradient for the credit as well; the
comparison then runs without an error and reports perfect alignment.
Instead: stop where the method's own credit cannot be computed, and report the alignment as missing.
Pitfall: 7
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import is_cosine_call, is_gradient
from walkback.linting.identifier_words import FEEDBACK_WORDS, words_of_name
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_CREDIT_WORDS = {"credit", "credits", "delta", "deltas"}


def find(source: Source) -> Iterator[Hit]:
    for node in source.nodes(ast.AST):
        match node:
            case ast.Call(args=[one, other, *_]) if is_cosine_call(source, node) and ast.dump(one) == ast.dump(other):
                if is_gradient(source, one) and not _is_checked(source, node):
                    yield node, "both sides of this cosine are the same gradient: it is 1.0 by construction"
            case ast.IfExp(test=test, body=one, orelse=other) if _is_credit(source, node):
                fallback = one if _is_none_test(test, ast.Is()) else other if _is_none_test(test, ast.IsNot()) else None
                if fallback is not None and _is_reference(source, fallback):
                    yield node, "without feedback the credit falls back to the reference gradient: the cosine is 1.0"
            case ast.If(test=test, body=[ast.Assign(targets=[target], value=value), *_]) if _is_none_test(
                test, ast.Is()
            ):
                if words_of_name(target) & _CREDIT_WORDS and _is_reference(source, value):
                    yield node.body[0], "without feedback the credit falls back to the reference gradient"


def _is_none_test(test: ast.expr, op: ast.cmpop) -> bool:
    """Whether a test is `feedback is None` (op `Is`) or `feedback is not None` (op `IsNot`)."""
    match test:
        case ast.Compare(left=left, ops=[found], comparators=[ast.Constant(value=None)]):
            return type(found) is type(op) and bool(words_of_name(left) & FEEDBACK_WORDS)
    return False


def _is_credit(source: Source, node: ast.IfExp) -> bool:
    outer = source.parents[node]
    return isinstance(outer, ast.Assign) and any(words_of_name(target) & _CREDIT_WORDS for target in outer.targets)


def _is_reference(source: Source, node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and is_gradient(source, node) and not words_of_name(node) & _CREDIT_WORDS


def _is_checked(source: Source, node: ast.AST) -> bool:
    """Whether the cosine is in an assert: a test that equal vectors have cosine 1."""
    return any(isinstance(outer, ast.Assert) for outer in source.ancestors(node))


RULE = Rule.of("WB019", __doc__, find)

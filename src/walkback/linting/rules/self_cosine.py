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
from walkback.linting.identifier_words import FEEDBACK_WORDS, name_of, split_identifier, words_of_name
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

FALLBACK = "without feedback the credit falls back to the reference gradient: the cosine is 1.0"
_CREDIT_WORDS = {"credit", "credits", "delta", "deltas"}


def find(source: Source) -> Iterator[Hit]:
    for node in source.nodes(ast.AST):
        match node:
            case ast.Call(args=[one, other, *_]) if is_cosine_call(source, node) and _are_same(source, one, other):
                if is_gradient(source, one) and not _is_checked(source, node):
                    yield node, "both sides of this cosine are the same gradient: it is 1.0 by construction"
            case ast.Call() if _default_gradient(source, node):
                yield node, FALLBACK
            case ast.BoolOp(op=ast.Or(), values=[one, other]):
                if words_of_name(one) & _CREDIT_WORDS and _is_reference(source, other):
                    yield node, FALLBACK
            case ast.ExceptHandler(body=[ast.Assign(targets=[target], value=value), *_]):
                if words_of_name(target) & _CREDIT_WORDS and _is_reference(source, value):
                    yield node.body[0], FALLBACK
            case ast.IfExp(test=test, body=one, orelse=other) if _is_credit(source, node):
                is_there = _is_none_test(test, ast.IsNot()) or _tests_existence(test)
                fallback = one if _is_none_test(test, ast.Is()) else other if is_there else None
                if fallback is not None and _is_reference(source, fallback):
                    yield node, FALLBACK
            case ast.If(test=test, body=[ast.Assign(targets=[target], value=value), *_]) if _is_none_test(
                test, ast.Is()
            ):
                if words_of_name(target) & _CREDIT_WORDS and _is_reference(source, value):
                    yield node.body[0], FALLBACK


def _are_same(source: Source, one: ast.expr, other: ast.expr) -> bool:
    """Whether two values are one tensor, through copies, one name for another, and a list zipped with itself."""
    pair = [_original(source, side) for side in (one, other)]
    return ast.dump(pair[0]) == ast.dump(pair[1])


def _original(source: Source, node: ast.expr, depth: int = 4) -> ast.expr:
    """What a value is a copy of: g for `g.clone()` and for `credit` after `credit = g.detach()`."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr="clone" | "detach"), args=[]) if depth:
            return _original(source, owner, depth - 1)
        case ast.Name() if depth:
            binding = source.latest_binding(node)
            value = binding.value if binding is not None else None
            outer = source.parents.get(value) if value is not None else None
            if binding is not None and value is not None and binding.is_item and _is_zip(source, outer):
                return value
            is_alias = isinstance(value, ast.Name) or _method_of(value) == "detach"
            if binding is not None and value is not None and not binding.is_item and is_alias:
                return _original(source, value, depth - 1)
    return node


def _method_of(node: ast.AST | None) -> str:
    """The method that a call without arguments calls."""
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args
    return node.func.attr if is_call else ""  # type: ignore[union-attr]


def _is_zip(source: Source, node: ast.AST | None) -> bool:
    return node is not None and source.called_name(node) == "zip"


def _default_gradient(source: Source, call: ast.Call) -> bool:
    """Whether a call is `credits.get(name, grad)` or `getattr(layer, "credit", grad)`."""
    match call:
        case ast.Call(func=ast.Attribute(value=owner, attr="get"), args=[_, default]):
            return bool(words_of_name(owner) & _CREDIT_WORDS) and _is_reference(source, default)
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), default]):
            return bool(split_identifier(name) & _CREDIT_WORDS) and _is_reference(source, default)
    return False


def _tests_existence(test: ast.expr) -> bool:
    """Whether a test is `path.exists()`, `os.path.isfile(path)` or the like."""
    return isinstance(test, ast.Call) and name_of(test) in ("exists", "is_file", "isfile", "hasattr")


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
    is_named = isinstance(node, ast.Name | ast.Subscript | ast.Attribute)
    return is_named and is_gradient(source, node) and not words_of_name(node) & _CREDIT_WORDS


def _is_checked(source: Source, node: ast.AST) -> bool:
    """Whether the cosine is in an assert: a test that equal vectors have cosine 1."""
    return any(isinstance(outer, ast.Assert) for outer in source.ancestors(node))


RULE = Rule.of("WB019", __doc__, find)

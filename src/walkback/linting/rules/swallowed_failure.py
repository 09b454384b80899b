"""A failed metric is swallowed: `except Exception: pass` around what computes or logs it.

Why: a metric that could not be computed then looks like one that was not requested, or like the constant put in its
place; a published library lost whole alignment curves this way.
Instead: catch the exception you expect and record that the value is missing and why; let everything else stop the
run.
Pitfall: 7
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import is_norm_call
from walkback.linting.identifier_words import (
    ALIGNMENT_WORDS,
    COSINE_WORDS,
    NOT_COSINE_WORDS,
    literal_number,
    name_of,
    words_of_name,
)
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

METRIC_WORDS = (
    COSINE_WORDS
    | ALIGNMENT_WORDS
    | {"align", "angle", "angles", "metric", "metrics", "diagnose", "diagnostic", "diagnostics"}
)
LOGGING_METHODS = {"add_scalar", "add_scalars"}
_BROAD_EXCEPTIONS = {"Exception", "BaseException"}


def find(source: Source) -> Iterator[Hit]:
    for block in source.nodes(ast.Try):
        if not _has_metric(source, block.body):
            continue
        for handler in block.handlers:
            caught = handler.type
            if (caught is None or _is_broad(source, caught)) and all(_is_silent(part) for part in handler.body):
                what = "a bare except" if caught is None else f"except {name_of(caught)}"
                yield handler, f"{what} swallows a failed metric: it will look as if it had not been requested"
        for statement in block.finalbody:
            if isinstance(statement, ast.Return):
                yield statement, "a return in finally discards the exception of a failed metric"
    for manager in source.nodes(ast.With):
        if any(_suppresses(source, item.context_expr) for item in manager.items) and _has_metric(source, manager.body):
            yield manager, "suppress swallows a failed metric: it will look as if it had not been requested"


def _suppresses(source: Source, context: ast.expr) -> bool:
    is_suppress = isinstance(context, ast.Call) and source.called_name(context) == "contextlib.suppress"
    return is_suppress and any(_is_broad(source, error) for error in context.args)  # type: ignore[attr-defined]


def _has_metric(source: Source, body: list[ast.stmt]) -> bool:
    return any(_is_metric(source, node) for statement in body for node in ast.walk(statement))


def _is_broad(source: Source, caught: ast.expr) -> bool:
    parts = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(source.qualified_name(part) in _BROAD_EXCEPTIONS for part in parts)


def _is_metric(source: Source, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    named = words_of_name(node)
    if name_of(node) in LOGGING_METHODS or is_norm_call(source, node):
        return True
    return bool(named & METRIC_WORDS) and not named & NOT_COSINE_WORDS


def _is_silent(part: ast.stmt) -> bool:
    match part:
        case ast.Pass() | ast.Continue() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Name(id="_")]):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="debug"))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append"), args=[value])):
            return literal_number(value) is not None
        case ast.Return(value=value) | ast.Assign(value=value):
            # None shows that there is no value; a number does not.
            return value is not None and literal_number(value) is not None
    return False


RULE = Rule.of("WB008", __doc__, find)

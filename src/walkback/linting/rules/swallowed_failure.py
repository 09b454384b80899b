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
        if not any(_is_metric(source, node) for statement in block.body for node in ast.walk(statement)):
            continue
        for handler in block.handlers:
            caught = handler.type
            if (caught is None or source.qualified_name(caught) in _BROAD_EXCEPTIONS) and all(
                _is_silent(part) for part in handler.body
            ):
                what = "a bare except" if caught is None else f"except {name_of(caught)}"
                yield handler, f"{what} swallows a failed metric: it will look as if it had not been requested"


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
        case ast.Return(value=value) | ast.Assign(value=value):
            # None shows that there is no value; a number does not.
            return value is not None and literal_number(value) is not None
    return False


RULE = Rule.of("WB008", __doc__, find)

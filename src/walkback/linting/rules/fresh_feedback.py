"""A measuring function draws its own feedback: alignment is specific to the matrix trained with.

Why: a network adapts to the feedback matrix it was trained with. Against a freshly drawn one the cosine is that
of a random direction, near zero, however well the method works.
Instead: pass in the feedback of the training run and refuse to measure without it; draw fresh feedback only as a
null.
Pitfall: 4
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import compares_gradients, is_cosine_by_hand
from walkback.linting.identifier_words import (
    COSINE_WORDS,
    FEEDBACK_WORDS,
    name_of,
    split_identifier,
    words_of_name,
)
from walkback.linting.random_draws import is_drawn
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_MEASURING_WORDS = COSINE_WORDS | {"align", "alignment", "alignments", "measure", "diagnose"}
NULL_WORDS = {
    "null",
    "fresh",
    "random",
    "control",
    "shuffle",
    "shuffled",
    "baseline",
    "test",
    "demo",
    "train",
    "simulate",
}
_ERROR_WORDS = {"error", "errors", "err", "delta", "deltas", "e"}


def find(source: Source) -> Iterator[Hit]:
    for function in source.nodes(ast.FunctionDef):
        named = split_identifier(function.name)
        if not named & _MEASURING_WORDS or named & NULL_WORDS:
            continue
        inside = source.scope_nodes(function)
        compares = any(compares_gradients(source, n) or is_cosine_by_hand(source, n) for n in inside)
        if not compares or _trains(inside):
            continue
        for node in inside:
            is_named = isinstance(node, ast.Assign) and _is_feedback(node) and is_drawn(source, node.value)
            if is_named or _projects_error_at_random(source, node):
                yield node, f"{function.name} measures against feedback drawn here, not the one trained with"  # type: ignore[misc]


def _is_feedback(node: ast.Assign) -> bool:
    named = split_identifier(name_of(node.targets[0]))
    return bool(named & FEEDBACK_WORDS or name_of(node.targets[0]) in ("B", "Bs")) and not named & NULL_WORDS


def _projects_error_at_random(source: Source, node: ast.AST) -> bool:
    """Whether an expression is `error @ torch.randn(...)`."""
    match node:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return bool(words_of_name(left) & _ERROR_WORDS) and is_drawn(source, right)
    return False


def _trains(inside: list[ast.AST]) -> bool:
    return any(isinstance(node, ast.Call) and name_of(node) == "step" for node in inside)


RULE = Rule.of("WB018", __doc__, find)

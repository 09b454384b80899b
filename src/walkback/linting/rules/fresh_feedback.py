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

from walkback.linting.expression_kinds import compares_gradients, derives_from
from walkback.linting.identifier_words import COSINE_WORDS, FEEDBACK_WORDS, name_of, split_identifier
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
_DRAWING_CALLS = {"torch.randn", "torch.rand", "torch.randn_like", "torch.normal"}


def find(source: Source) -> Iterator[Hit]:
    for function in source.nodes(ast.FunctionDef):
        named = split_identifier(function.name)
        if not named & _MEASURING_WORDS or named & NULL_WORDS:
            continue
        inside = source.scope_nodes(function)
        if not any(compares_gradients(source, node) for node in inside) or _trains(inside):
            continue
        for node in inside:
            if isinstance(node, ast.Assign) and _is_feedback(node) and _is_drawn(source, node.value):
                yield node, f"{function.name} measures against feedback drawn here, not the one trained with"


def _is_feedback(node: ast.Assign) -> bool:
    named = split_identifier(name_of(node.targets[0]))
    return bool(named & FEEDBACK_WORDS or name_of(node.targets[0]) in ("B", "Bs")) and not named & NULL_WORDS


def _is_drawn(source: Source, value: ast.expr) -> bool:
    return derives_from(source, value, lambda part: True if source.called_name(part) in _DRAWING_CALLS else None)


def _trains(inside: list[ast.AST]) -> bool:
    return any(isinstance(node, ast.Call) and name_of(node) == "step" for node in inside)


RULE = Rule.of("WB018", __doc__, find)

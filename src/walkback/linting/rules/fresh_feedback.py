"""A measuring function draws its own feedback: alignment is specific to the matrix trained with.

Why: a network adapts to the one feedback matrix it was trained with. Against a freshly drawn one the cosine is that
of a random direction, near zero, however well the method works.
Instead: pass in the feedback of the training run and refuse to measure without it; draw fresh feedback only as a
null.
Pitfall: 4
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.meaning import compares_gradients, holds
from walkback.linting.names import COSINE_WORDS, FEEDBACK, name_of, name_words
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_MEASURING = COSINE_WORDS | {"align", "alignment", "alignments", "measure", "diagnose"}
NULL = {"null", "fresh", "random", "control", "shuffle", "shuffled", "baseline", "test", "demo", "train", "simulate"}
_DRAWS = {"torch.randn", "torch.rand", "torch.randn_like", "torch.normal"}


def find(source: Source) -> Iterator[Hit]:
    for function in source.all(ast.FunctionDef):
        named = name_words(function.name)
        if not named & _MEASURING or named & NULL:
            continue
        inside = source.own(function)
        if not any(compares_gradients(source, node) for node in inside) or _trains(inside):
            continue
        for node in inside:
            if isinstance(node, ast.Assign) and _is_feedback(node) and _is_drawn(source, node.value):
                yield node, f"{function.name} measures against feedback drawn here, not the one trained with"


def _is_feedback(node: ast.Assign) -> bool:
    named = name_words(name_of(node.targets[0]))
    return bool(named & FEEDBACK or name_of(node.targets[0]) in ("B", "Bs")) and not named & NULL


def _is_drawn(source: Source, value: ast.expr) -> bool:
    return holds(source, value, lambda part: True if source.calls(part) in _DRAWS else None)


def _trains(inside: list[ast.AST]) -> bool:
    return any(isinstance(node, ast.Call) and name_of(node) == "step" for node in inside)


RULE = Rule.of("WB018", __doc__, find)

"""The output error as p_y - 1, in code that measures gradients: it loses its digits on confident samples.

Why: where p_y is near 1 the difference p_y - 1 keeps only the last bits of float32 and is exactly 0 for a confident
sample, in healthy networks too; the error's direction, and every credit made of it, is then rounding.
Instead: form the entry of the true class as minus the sum of the other probabilities, or do the softmax in float64.
Pitfall: 18
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.meaning import holds, is_dtype, measures
from walkback.linting.names import constant, label_words, name_of
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

PROBABILITIES = {"p", "prob", "probs", "probabilities", "softmax"}
ROWS = {"range", "torch.arange", "numpy.arange"}


def find(source: Source) -> Iterator[Hit]:
    if not measures(source):
        return
    for node in source.all(ast.AST):
        match node:
            case ast.AugAssign(target=ast.Subscript(value=values, slice=ast.Tuple(elts=[rows, _])), op=ast.Sub()):
                by_hand = constant(node.value) == 1.0 and _is_rows(source, rows) and _is_softmax(source, values)
            case ast.BinOp(op=ast.Sub(), left=left, right=right):
                by_hand = _is_softmax(source, left) and _is_one_hot(source, right)
            case _:
                by_hand = False
        if by_hand and isinstance(node, ast.expr | ast.stmt):
            yield node, "p_y - 1 loses its digits on confident samples: use minus the sum of the other probabilities"


def _is_rows(source: Source, rows: ast.expr) -> bool:
    return source.calls(rows) in ROWS or isinstance(rows, ast.Name | ast.Slice)


def _is_softmax(source: Source, node: ast.expr) -> bool:
    def test(part: ast.expr) -> bool | None:
        if isinstance(part, ast.Call) and (source.calls(part) == "torch.softmax" or name_of(part) == "softmax"):
            return not _is_double(source, part)
        if isinstance(part, ast.Name) and label_words(part) & PROBABILITIES and not source.bindings(part, part.id):
            return True
        return None

    if isinstance(node, ast.Name):
        made = source.bindings(node, node.id)
        if made and all(isinstance(binding.at, ast.arg) for binding in made):
            return bool(label_words(node) & (PROBABILITIES - {"p"}))
    return holds(source, node, test)


def _is_double(source: Source, call: ast.Call) -> bool:
    """float64 in the call, or where one of the names in it was made."""
    named = [node for node in ast.walk(call) if isinstance(node, ast.Name)]
    made = [binding.value for node in named for binding in source.bindings(node, node.id) if binding.value is not None]
    parts = [part for whole in (call, *made) for part in ast.walk(whole) if isinstance(part, ast.expr)]
    return any(name_of(part) == "double" or is_dtype(source, part, "float64") for part in parts)


def _is_one_hot(source: Source, node: ast.expr) -> bool:
    def test(part: ast.expr) -> bool | None:
        named = label_words(part)
        if isinstance(part, ast.Call | ast.Name) and ({"one", "hot"} <= named or "onehot" in named):
            return True
        return None

    return holds(source, node, test)


RULE = Rule.of("WB011", __doc__, find)

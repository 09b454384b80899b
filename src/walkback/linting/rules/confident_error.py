"""The output error as p_y - 1, in code that measures gradients: it loses precision on confident samples.

Why: where p_y is near 1 the difference p_y - 1 keeps only the last bits of float32 and is exactly 0 for a confident
sample, in healthy networks too; the error's direction, and every credit made of it, is then rounding error.
Instead: form the entry of the true class as minus the sum of the other probabilities, or do the softmax in float64.
Pitfall: 18
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import derives_from, file_measures_alignment, is_dtype
from walkback.linting.identifier_words import literal_number, name_of, words_of_name
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

PROBABILITY_WORDS = {"p", "prob", "probs", "probabilities", "softmax"}
ROW_INDEX_CALLS = {"range", "torch.arange", "numpy.arange"}


def find(source: Source) -> Iterator[Hit]:
    if not file_measures_alignment(source):
        return
    for node in source.nodes(ast.AST):
        match node:
            case ast.AugAssign(target=ast.Subscript(value=values, slice=ast.Tuple(elts=[rows, _])), op=ast.Sub()):
                is_unstable_error = (
                    literal_number(node.value) == 1.0 and _is_row_index(source, rows) and _is_softmax(source, values)
                )
            case ast.BinOp(op=ast.Sub(), left=left, right=right):
                is_unstable_error = _is_softmax(source, left) and _is_one_hot(source, right)
            case _:
                is_unstable_error = False
        if is_unstable_error and isinstance(node, ast.expr | ast.stmt):
            yield node, "p_y - 1 loses precision on confident samples: use minus the sum of the other probabilities"


def _is_row_index(source: Source, rows: ast.expr) -> bool:
    return source.called_name(rows) in ROW_INDEX_CALLS or isinstance(rows, ast.Name | ast.Slice)


def _is_softmax(source: Source, node: ast.expr) -> bool:
    def test(part: ast.expr) -> bool | None:
        if isinstance(part, ast.Call) and (source.called_name(part) == "torch.softmax" or name_of(part) == "softmax"):
            return not _is_double(source, part)
        if (
            isinstance(part, ast.Name)
            and words_of_name(part) & PROBABILITY_WORDS
            and not source.bindings(part, part.id)
        ):
            return True
        return None

    if isinstance(node, ast.Name):
        bindings = source.bindings(node, node.id)
        if bindings and all(isinstance(binding.node, ast.arg) for binding in bindings):
            return bool(words_of_name(node) & (PROBABILITY_WORDS - {"p"}))
    return derives_from(source, node, test)


def _is_double(source: Source, call: ast.Call) -> bool:
    """Whether float64 appears in a call, or in the bindings of the names in it."""
    named = [node for node in ast.walk(call) if isinstance(node, ast.Name)]
    values = [
        binding.value for node in named for binding in source.bindings(node, node.id) if binding.value is not None
    ]
    parts = [part for whole in (call, *values) for part in ast.walk(whole) if isinstance(part, ast.expr)]
    return any(name_of(part) == "double" or is_dtype(source, part, "float64") for part in parts)


def _is_one_hot(source: Source, node: ast.expr) -> bool:
    def test(part: ast.expr) -> bool | None:
        named = words_of_name(part)
        if isinstance(part, ast.Call | ast.Name) and ({"one", "hot"} <= named or "onehot" in named):
            return True
        return None

    return derives_from(source, node, test)


RULE = Rule.of("WB011", __doc__, find)

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
_SUBTRACTING_CALLS = {"torch.sub", "torch.subtract", "numpy.subtract"}
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
            case ast.Assign(
                targets=[ast.Subscript(value=values, slice=ast.Tuple(elts=[rows, _])) as entry],
                value=ast.BinOp(left=ast.Subscript() as before, op=ast.Sub(), right=one),
            ):
                is_same = ast.unparse(entry) == ast.unparse(before) and literal_number(one) == 1.0
                is_unstable_error = is_same and _is_row_index(source, rows) and _is_softmax(source, values)
            case ast.Call(func=ast.Attribute(value=values, attr="scatter_add_" | "scatter_add"), args=[_, _, added]):
                is_unstable_error = isinstance(added, ast.UnaryOp) and _is_softmax(source, values)
            case ast.Call() | ast.BinOp():
                is_unstable_error = any(
                    _is_softmax(source, one) and _is_one_hot(source, other) for one, other in _difference(source, node)
                )
            case _:
                is_unstable_error = False
        if is_unstable_error and isinstance(node, ast.expr | ast.stmt):
            yield node, "p_y - 1 loses precision on confident samples: use minus the sum of the other probabilities"


def _difference(source: Source, node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """The two sides of a - b, torch.sub(a, b) or a.sub_(b), in both orders; empty for other nodes."""
    match node:
        case ast.BinOp(op=ast.Sub(), left=one, right=other):
            return [(one, other), (other, one)]
        case ast.Call(args=[one, other]) if source.called_name(node) in _SUBTRACTING_CALLS:
            return [(one, other), (other, one)]
        case ast.Call(func=ast.Attribute(value=one, attr="sub" | "sub_"), args=[other]) if not source.called_name(node):
            return [(one, other), (other, one)]
    return []


def _is_row_index(source: Source, rows: ast.expr) -> bool:
    return source.called_name(rows) in ROW_INDEX_CALLS or isinstance(rows, ast.Name | ast.Slice)


def _is_softmax(source: Source, node: ast.expr) -> bool:
    def test(part: ast.expr) -> bool | None:
        if isinstance(part, ast.Call) and (source.called_name(part) == "torch.softmax" or name_of(part) == "softmax"):
            return not _is_double(source, part)
        if isinstance(part, ast.Call | ast.BinOp) and _is_softmax_by_hand(source, part):
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


def _is_softmax_by_hand(source: Source, node: ast.expr) -> bool:
    """Whether an expression is exp(log_softmax(x)) or e / e.sum() with an exponential e."""
    match node:
        case ast.Call(func=ast.Attribute(value=logs, attr="exp"), args=[]) if not source.called_name(node):
            return name_of(logs) == "log_softmax"
        case ast.Call(args=[logs]) if source.called_name(node) in ("torch.exp", "numpy.exp"):
            return name_of(logs) == "log_softmax"
        case ast.BinOp(left=one, op=ast.Div(), right=ast.Call(func=ast.Attribute(value=other, attr="sum"))):
            is_exp = derives_from(source, one, lambda part: True if name_of(part) == "exp" else None)
            return is_exp and ast.dump(one) == ast.dump(other)
    return False


def _is_double(source: Source, call: ast.expr) -> bool:
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
        # From a softmax only a distribution over the classes is subtracted: targets are one-hot rows here.
        if isinstance(part, ast.Name) and named & {"target", "targets"}:
            return True
        if isinstance(part, ast.Subscript) and source.called_name(part.value) in ("torch.eye", "numpy.eye"):
            return True
        match part:
            case ast.Call(func=ast.Attribute(attr="scatter_" | "scatter"), args=[_, _, one]):
                return literal_number(one) == 1.0
        return None

    return derives_from(source, node, test)


RULE = Rule.of("WB011", __doc__, find)

"""A constant replaces a cosine that is undefined or below a floor.

Why: a published tool sets the cosine to 1.0 wherever gradients are under 1e-8; scaling the loss by 1e-6 then turns
every alignment into 1.0. Zeros are no better: they pull the mean towards "no alignment" by the share of dead samples.
Instead: exclude such samples, count them, and report the count beside the mean; give no value where none is left.
Pitfall: 14
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import is_cosine, is_cosine_by_hand, is_norm
from walkback.linting.identifier_words import (
    COSINE_WORDS,
    NOT_COSINE_WORDS,
    argument,
    literal_number,
    name_of,
    split_identifier,
)
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

FILL_VALUES = {"torch.ones_like": 1.0, "torch.zeros_like": 0.0, "numpy.ones_like": 1.0, "numpy.zeros_like": 0.0}
TENSOR_CALLS = {"torch.tensor", "torch.as_tensor", "numpy.array"}


def find(source: Source) -> Iterator[Hit]:
    for node in source.nodes(ast.AST):
        value = _imputed_value(source, node)
        if value is not None and isinstance(node, ast.expr | ast.stmt):
            yield node, f"an undefined cosine is replaced by {value:g}: exclude and count it instead"


def _imputed_value(source: Source, node: ast.AST) -> float | None:
    match node:
        case ast.Call(args=[_, one, other]) if source.called_name(node) in ("torch.where", "numpy.where"):
            return _constant_beside_cosine(source, one, other)
        case ast.Call(args=[values, *_]) if source.called_name(node) in ("torch.nan_to_num", "numpy.nan_to_num"):
            return _nan_value(node, 1) if is_cosine(source, values) else None
        case ast.Call(func=ast.Attribute(value=values, attr="nan_to_num" | "nan_to_num_")) if not source.called_name(
            node
        ):
            return _nan_value(node, 0) if is_cosine(source, values) else None
        case ast.Call(func=ast.Attribute(value=values, attr="masked_fill" | "masked_fill_"), args=[_, fill]):
            return _zero_or_one(source, fill) if is_cosine(source, values) else None
        case ast.Assign(targets=[ast.Subscript(value=values, slice=index)], value=fill) if _is_mask(index):
            return _zero_or_one(source, fill) if is_cosine(source, values) else None
        case ast.IfExp(test=test, body=one, orelse=other) if _compares_a_norm(source, test) or _tests_nan(test):
            return _constant_beside_cosine(source, one, other)
        case ast.If(test=test, body=[ast.Return(value=ast.expr() as fill)]) if _compares_a_norm(source, test):
            return _zero_or_one(source, fill) if _in_cosine_function(source, node) else None
        case ast.If(test=test, body=[one], orelse=[other]) if _compares_a_norm(source, test):
            pair = (_appended(one), _appended(other))
            return _constant_beside_cosine(source, *pair) if pair[0] and pair[1] else None  # type: ignore[arg-type]
        case ast.Try(body=body, handlers=[ast.ExceptHandler(type=ast.Name(id="ZeroDivisionError"), body=[last])]):
            returns = [part.value for part in body if isinstance(part, ast.Return) and part.value]
            replaced = last.value if isinstance(last, ast.Return) else None
            is_of_cosine = any(is_cosine_by_hand(source, part) or is_cosine(source, part) for part in returns)
            return _zero_or_one(source, replaced) if replaced is not None and is_of_cosine else None
        case ast.Call(func=ast.Attribute(value=values, attr="fillna"), args=[fill]) if not source.called_name(node):
            return _zero_or_one(source, fill) if is_cosine(source, values) else None
        case ast.BinOp(op=ast.Mult(), left=one, right=other):
            for mask, values in ((one, other), (other, one)):
                if isinstance(mask, ast.Compare) and _compares_a_norm(source, mask) and is_cosine(source, values):
                    return 0.0
    return None


def _constant_beside_cosine(source: Source, one: ast.expr, other: ast.expr) -> float | None:
    """0 or 1 where one of two alternatives is that constant and the other is a cosine."""
    for fill, values in ((one, other), (other, one)):
        value = _zero_or_one(source, fill)
        if value is not None and (is_cosine(source, values) or is_cosine_by_hand(source, values)):
            return value
    return None


def _zero_or_one(source: Source, node: ast.expr) -> float | None:
    """0 or 1, as a literal or as a tensor filled with it; None for other values."""
    if isinstance(node, ast.Call):
        called = source.called_name(node)
        if called in TENSOR_CALLS and node.args:
            return _zero_or_one(source, node.args[0])
        return FILL_VALUES.get(called)
    value = literal_number(node)
    return value if value in (0.0, 1.0) else None


def _nan_value(call: ast.Call, index: int) -> float | None:
    """The value that `nan_to_num` puts in place of NaN."""
    nan = argument(call, index, "nan")
    return 0.0 if nan is None else literal_number(nan)


def _is_mask(index: ast.expr) -> bool:
    """Whether an index is a comparison or named like a mask; `cos[i] = 1` sets one entry and can mean anything."""
    return isinstance(index, ast.Compare) or bool(
        split_identifier(name_of(index)) & {"mask", "bad", "small", "zero", "invalid", "isnan"}
    )


def _compares_a_norm(source: Source, test: ast.expr) -> bool:
    compares = [node for node in ast.walk(test) if isinstance(node, ast.Compare)]
    return any(is_norm(source, side) for c in compares for side in (c.left, *c.comparators))


def _tests_nan(test: ast.expr) -> bool:
    return any(isinstance(n, ast.Call) and name_of(n) in ("isfinite", "isnan") for n in ast.walk(test))


def _appended(statement: ast.stmt) -> ast.expr | None:
    """The value in `values.append(value)`."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append"), args=[value])):
            return value
    return None


def _in_cosine_function(source: Source, node: ast.AST) -> bool:
    named = split_identifier(getattr(source.enclosing_scope(node), "name", ""))
    return bool(named & COSINE_WORDS) and not named & NOT_COSINE_WORDS


RULE = Rule.of("WB009", __doc__, find)

"""The norm of something that was normalised just before: it is 1 (or sqrt of the width) by construction.

Why: after `F.normalize` every norm is 1 and after a layer norm about sqrt(d), whatever the state was; a state that
grew a million-fold is logged as healthy.
Instead: take the norm of the raw state, before any normalisation.
Pitfall: 11
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import is_norm_call, norm_operand, square_root_operand, sum_of_squares_operand
from walkback.linting.identifier_words import argument, literal_number, name_of, words_of_name
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_NORMALISING_CALLS = {"torch.nn.functional.normalize", "torch.nn.functional.layer_norm", "torch.nn.functional.rms_norm"}
_NORMALISING_CALLS |= {"sklearn.preprocessing.normalize"}
_NORM_CLASSES = {"torch.nn.LayerNorm", "torch.nn.RMSNorm"}
_NORM_LAYERS = {"ln", "layernorm", "rmsnorm", "layer_norm", "rms_norm", "norm_layer"}
_NORM_PRESERVING_METHODS = {"detach", "clone", "float", "double", "flatten", "view", "reshape", "squeeze", "cpu"}


def find(source: Source) -> Iterator[Hit]:
    for call in source.nodes(ast.Call):
        operand = _measured(source, call)
        if operand is None or _is_checked(source, call):
            continue
        normalised = _normalised_by(source, operand)
        if normalised is not None and not _is_over_another_axis(normalised, call):
            yield call, "this norm is of a normalised state: it is the same whatever the state was"


def _measured(source: Source, call: ast.Call) -> ast.expr | None:
    """The vector of which a call computes the norm, by a norm function or as the root of a sum of squares."""
    if is_norm_call(source, call):
        return norm_operand(source, call)
    root = square_root_operand(source, call)
    return None if root is None else sum_of_squares_operand(source, root)


def _normalised_by(source: Source, node: ast.expr, depth: int = 8) -> ast.Call | None:
    """The call that normalises a value; None where its norm depends on the state."""
    if not depth:
        return None
    match node:
        case ast.Name():
            return _name_normalised_by(source, node, depth)
        case ast.BinOp(left=left, op=ast.Div(), right=ast.Call() as right) if is_norm_call(source, right):
            operand = norm_operand(source, right)
            keeps_axis = argument(right, None, "keepdim", "keepdims") is not None
            return right if keeps_axis and operand is not None and ast.dump(operand) == ast.dump(left) else None
        case ast.Call(func=ast.Call() as made):
            return node if source.called_name(made) in _NORM_CLASSES else None
        case ast.Call():
            called = source.called_name(node)
            if called in _NORMALISING_CALLS or (not called and _is_norm_layer(source, node)):
                return node
            if isinstance(node.func, ast.Attribute) and node.func.attr in _NORM_PRESERVING_METHODS:
                return _normalised_by(source, node.func.value, depth - 1)
    return None


def _name_normalised_by(source: Source, name: ast.Name, depth: int) -> ast.Call | None:
    for outer in source.ancestors(name):
        if isinstance(outer, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            for part in outer.generators:
                if isinstance(part.target, ast.Name) and part.target.id == name.id:
                    return _items_normalised_by(source, part.iter, depth - 1)
    last = source.latest_binding(name)
    if last is not None and last.value is not None:
        follow = _items_normalised_by if last.is_item else _normalised_by
        return follow(source, last.value, depth - 1)
    parameters = [b.node for b in source.bindings(name, name.id) if isinstance(b.node, ast.arg)]
    passed = [value for parameter in parameters for value in source.passed_values(parameter)]
    found = [_normalised_by(source, value, depth - 1) for value in passed]
    return found[0] if found and all(found) else None


def _items_normalised_by(source: Source, node: ast.expr, depth: int) -> ast.Call | None:
    """The call that normalises each item of a list."""
    if isinstance(node, ast.Name):
        last = source.latest_binding(node)
        node = last.value if last is not None and last.value is not None and not last.is_item else node
    return _normalised_by(source, node.elt, depth) if isinstance(node, ast.ListComp) else None


def _is_norm_layer(source: Source, call: ast.Call) -> bool:
    if name_of(call) in _NORM_LAYERS or "ln" in words_of_name(call):
        return True
    if isinstance(call.func, ast.Attribute) and name_of(call.func.value) == "self":
        return any(source.called_name(value) in _NORM_CLASSES for value in source.attribute_values(call.func.attr))
    return False


def _is_over_another_axis(normalised: ast.Call, norm: ast.Call) -> bool:
    """Whether both name their axis and the axes differ."""
    axes = [literal_number(argument(call, None, "dim", "axis")) for call in (normalised, norm)]
    return None not in axes and axes[0] != axes[1]


def _is_checked(source: Source, call: ast.Call) -> bool:
    """Whether the norm is in an assert or an assert function: a test that normalising works."""
    return any(
        isinstance(outer, ast.Assert) or (isinstance(outer, ast.Call) and name_of(outer).startswith("assert"))
        for outer in source.ancestors(call)
    )


RULE = Rule.of("WB013", __doc__, find)

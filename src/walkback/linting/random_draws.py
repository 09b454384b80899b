"""Detect values that are drawn at random in the file, through any arithmetic and through functions of the file."""

from __future__ import annotations

import ast

from walkback.linting.identifier_words import name_of, split_identifier
from walkback.linting.source import Source

DRAWING_CALLS = {f"torch.{name}" for name in ("randn", "rand", "randn_like", "rand_like", "normal", "randint")}
DRAWING_CALLS |= {
    f"numpy.random.{name}" for name in ("randn", "rand", "normal", "uniform", "standard_normal", "random")
}
DRAWING_CALLS |= {f"jax.random.{name}" for name in ("normal", "uniform", "rademacher", "orthogonal")}
_FILLING_METHODS = {"normal_", "uniform_", "bernoulli_", "random_"}
_GENERATOR_METHODS = {"standard_normal", "normal", "uniform"}
_GENERATOR_WORDS = {"rng", "generator", "gen"}
_DEPTH = 6


def is_drawn(source: Source, value: ast.expr, depth: int = _DEPTH) -> bool:
    """Whether a value is a random tensor drawn here, or a list or dict of such; a single Parameter is not."""
    if not depth:
        return False

    def recurse(part: ast.expr) -> bool:
        return is_drawn(source, part, depth - 1)

    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return bool(parts) and all(recurse(part) or _is_drawn_parameter(source, part, depth) for part in parts)
        case ast.ListComp(elt=part) | ast.DictComp(value=part):
            return recurse(part) or _is_drawn_parameter(source, part, depth)
        case ast.BinOp(left=left, right=right):
            return recurse(left) or recurse(right)
        case ast.UnaryOp(operand=part) | ast.Subscript(value=part) | ast.NamedExpr(value=part):
            return recurse(part)
        case ast.Call():
            return _is_drawing_call(source, value, depth)
    return False


def _is_drawing_call(source: Source, call: ast.Call, depth: int) -> bool:
    called = source.called_name(call)
    if called in DRAWING_CALLS:
        return True
    if called.startswith("torch.nn.init."):
        return "constant" not in called and called.endswith("_")
    if called.startswith(("torch.", "numpy.")) and not called.startswith("torch.nn."):
        # torch.sign(torch.randn(...)), torch.linalg.qr(...), torch.from_numpy(...)
        return any(is_drawn(source, part, depth - 1) for part in call.args[:1])
    if called:
        return False
    function = source.function(call)
    if function is not None:
        returned = [node.value for node in source.scope_nodes(function) if isinstance(node, ast.Return) and node.value]
        return bool(returned) and all(is_drawn(source, part, depth - 1) for part in returned)
    if isinstance(call.func, ast.Attribute):
        method, owner = call.func.attr, call.func.value
        if method in _FILLING_METHODS:
            return True
        if method in _GENERATOR_METHODS and split_identifier(name_of(owner)) & _GENERATOR_WORDS:
            return True
        return is_drawn(source, owner, depth - 1)
    return False


def _is_drawn_parameter(source: Source, value: ast.expr, depth: int) -> bool:
    """A Parameter in a plain list or dict: it is not among the parameters of a module."""
    return (
        isinstance(value, ast.Call)
        and source.called_name(value) in ("torch.nn.Parameter", "torch.nn.parameter.Parameter")
        and any(is_drawn(source, part, depth - 1) for part in value.args[:1])
    )

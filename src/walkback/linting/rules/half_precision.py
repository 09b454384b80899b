"""Gradients measured in float16: values below 6e-8 underflow to zero.

Why: the smallest number of float16 is 6e-8, and hidden gradients of a mean loss are often smaller. Under autocast the
backward pass runs in the forward pass's dtype, so what is measured is zero or a few coarse steps, and cosines are
rounding error. Without a loss scale there is no warning.
Instead: measure with autocast off, in float32 or better float64. bfloat16 has float32's range, but only 8 bits
of precision.
Pitfall: 3
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import is_cosine_call, is_dtype, is_gradient, is_norm_call, norm_operand
from walkback.linting.identifier_words import argument, name_of, words_of_name
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_MODEL_WORDS = {"model", "net", "network"}


def find(source: Source) -> Iterator[Hit]:
    for scope in source.scopes():
        inside = source.scope_nodes(scope)
        if not any(_measures_gradient(source, node) for node in inside) or _scales_the_loss(inside):
            continue
        for node in inside:
            if isinstance(node, ast.Call) and _is_half(source, node):
                yield node, "gradients are measured here in float16: below 6e-8 they are zero"


def _is_half(source: Source, call: ast.Call) -> bool:
    called = source.called_name(call)
    if called.startswith("torch.") and called.endswith(".autocast"):
        return _is_half_autocast(source, call, called)
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = call.func.value
    casts_to_half = call.func.attr == "half" or (
        call.func.attr == "to" and any(is_dtype(source, part, "float16") for part in _arguments(call))
    )
    return casts_to_half and (bool(words_of_name(owner) & _MODEL_WORDS) or is_gradient(source, owner))


def _is_half_autocast(source: Source, call: ast.Call, called: str) -> bool:
    is_old_api = called == "torch.cuda.amp.autocast"
    enabled = argument(call, 0 if is_old_api else 2, "enabled")
    if isinstance(enabled, ast.Constant) and enabled.value is False:
        return False
    dtype = argument(call, 1, "dtype")
    device = argument(call, None if is_old_api else 0, "device_type")
    if dtype is not None:
        return is_dtype(source, dtype, "float16")
    return is_old_api or (isinstance(device, ast.Constant) and device.value == "cuda")


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def _measures_gradient(source: Source, node: ast.AST) -> bool:
    if is_cosine_call(source, node):
        return any(is_gradient(source, part) for part in node.args)  # type: ignore[attr-defined]
    if is_norm_call(source, node):
        operand = norm_operand(source, node)  # type: ignore[arg-type]
        return operand is not None and is_gradient(source, operand)
    return False


def _scales_the_loss(inside: list[ast.AST]) -> bool:
    """Whether a GradScaler is used: it scales the loss so that gradients do not underflow."""
    return any(isinstance(node, ast.Call) and name_of(node) in ("scale", "unscale_", "GradScaler") for node in inside)


RULE = Rule.of("WB003", __doc__, find)

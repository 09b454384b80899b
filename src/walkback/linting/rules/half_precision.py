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
from walkback.linting.source import Scope, Source

_MODEL_WORDS = {"model", "net", "network"}
_MESSAGE = "gradients are measured here in float16: below 6e-8 they are zero"


def find(source: Source) -> Iterator[Hit]:
    measuring = {scope for scope in source.scopes() if _measures(source, scope)}
    for scope in source.scopes():
        inside = source.scope_nodes(scope)
        called = {source.function(node) for node in inside if isinstance(node, ast.Call)}
        if not ({scope, *called} & measuring) or _scales_the_loss(inside):
            continue
        decorators = [] if isinstance(scope, ast.Module) else scope.decorator_list
        for node in (*decorators, *inside):
            if isinstance(node, ast.Call) and _is_half(source, node) and _reaches_gradient(source, node, inside):
                yield node, _MESSAGE
        yield from _losses_from_helpers(source, inside)
    for call in source.nodes(ast.Call):
        dtype = argument(call, 0, "d")
        if source.called_name(call) == "torch.set_default_dtype" and is_dtype(source, dtype, "float16") and measuring:
            yield call, _MESSAGE


def _measures(source: Source, scope: Scope) -> bool:
    return any(_measures_gradient(source, node) for node in source.scope_nodes(scope))


def _reaches_gradient(source: Source, call: ast.Call, inside: list[ast.AST]) -> bool:
    """Whether a gradient is taken in a `with autocast` block or, after it, of what was computed in it."""
    block = _block_of(source, call)
    if block is None:
        return True
    within = set(ast.walk(block))
    differentiated = [part for node in inside if (part := _differentiated(source, node)) is not None]
    if not differentiated:
        return True
    return any(part in within or _is_computed_in(source, part, within) for part in differentiated)


def _block_of(source: Source, call: ast.Call) -> ast.With | None:
    """The with statement that a context manager belongs to, directly or under a name."""
    outer = source.parents.get(call)
    if isinstance(outer, ast.withitem):
        block = source.parents[outer]
        return block if isinstance(block, ast.With) else None
    if isinstance(outer, ast.Assign) and isinstance(outer.targets[0], ast.Name):
        for block in source.nodes(ast.With):
            held = [item.context_expr for item in block.items]
            if any(isinstance(part, ast.Name) and part.id == outer.targets[0].id for part in held):
                return block
    return None


def _differentiated(source: Source, node: ast.AST) -> ast.expr | None:
    """The loss in `loss.backward()` and `torch.autograd.grad(loss, ...)`."""
    match node:
        case ast.Call(func=ast.Attribute(value=loss, attr="backward")):
            return loss
        case ast.Call(args=[loss, *_]) if source.called_name(node) == "torch.autograd.grad":
            return loss
    return None


def _is_computed_in(source: Source, node: ast.expr, within: set[ast.AST], depth: int = 5) -> bool:
    for name in (part for part in ast.walk(node) if isinstance(part, ast.Name)):
        binding = source.latest_binding(name)
        if binding is None or not depth:
            continue
        if binding.node in within:
            return True
        if binding.value is not None and _is_computed_in(source, binding.value, within, depth - 1):
            return True
    return False


def _losses_from_helpers(source: Source, inside: list[ast.AST]) -> Iterator[Hit]:
    """The autocast of a function of the file that computes the loss which is differentiated here."""
    for node in inside:
        loss = _differentiated(source, node)
        if isinstance(loss, ast.Name):
            binding = source.latest_binding(loss)
            loss = binding.value if binding else None
        helper = source.function(loss) if isinstance(loss, ast.Call) else None
        if helper is not None:
            for part in (*helper.decorator_list, *source.scope_nodes(helper)):
                if source.called_name(part).endswith(".autocast") and _is_half(source, part):  # type: ignore[arg-type]
                    yield part, _MESSAGE  # type: ignore[misc]


def _is_half(source: Source, call: ast.Call) -> bool:
    called = source.called_name(call)
    if called.startswith("torch.") and called.endswith(".autocast"):
        return _is_half_autocast(source, call, called)
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = call.func.value
    casts_to_half = call.func.attr == "half" or (
        call.func.attr in ("to", "type", "astype")
        and any(is_dtype(source, part, "float16") for part in _arguments(call))
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

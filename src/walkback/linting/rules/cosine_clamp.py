"""`F.cosine_similarity` of gradients with its default eps: each norm is clamped at 1e-8, in float64 too.

Why: torch clamps each norm at eps separately. Two identical gradients of norm s < 1e-8 give (s / 1e-8)^2 instead of
1, and a large credit against a small reference s gives s / 1e-8 of the true cosine. Hidden gradients of a mean loss are
often that small, and casting to double changes nothing, because eps stays.
Instead: compute the cosine in float64 without eps, exclude and count samples whose norm is zero or not finite, and
report the norms beside it. Passing an eps of 1e-30 or less is enough where float64 is used.
Pitfall: 2
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import COSINE_CALL, cosine_module_of, is_dtype, is_gradient, resolve_number
from walkback.linting.identifier_words import argument, name_of
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_HARMLESS_EPS = 1e-12


def find(source: Source) -> Iterator[Hit]:
    for call in source.nodes(ast.Call):
        module = cosine_module_of(source, call)
        made_by = None if module is not None else _maker_of_function(source, call)
        if module is not None:
            eps = argument(module, 1, "eps")
        elif made_by is not None:
            eps = argument(made_by, None, "eps")
        elif source.called_name(call) == COSINE_CALL:
            eps = argument(call, 3, "eps")
        else:
            continue
        value = resolve_number(source, eps) if eps is not None else 1e-8
        if value is None or value <= _HARMLESS_EPS:
            continue
        pairs = [part.value for part in call.args if isinstance(part, ast.Starred)]
        sides = [side for side in (argument(call, 0, "x1"), argument(call, 1, "x2"), *pairs) if side is not None]
        if sides and any(is_gradient(source, side) for side in sides):
            yield call, f"this cosine of gradients clamps each norm at {value:g}: small gradients appear misaligned"
        elif len(sides) == 2 and all(_is_double(source, side) for side in sides):
            yield call, f"casting to double does not remove the clamp: each norm is still raised to {value:g}"


def _maker_of_function(source: Source, call: ast.Call) -> ast.Call | None:
    """The `partial(F.cosine_similarity, ...)` or `vmap(F.cosine_similarity)` that made the function a call calls."""
    made: list[ast.expr | None] = [call.func]
    if isinstance(call.func, ast.Name):
        made = [binding.value for binding in source.bindings(call, call.func.id)]
    for maker in made:
        if (
            isinstance(maker, ast.Call)
            and source.called_name(maker) in ("functools.partial", "torch.func.vmap")
            and maker.args
            and source.qualified_name(maker.args[0]) == COSINE_CALL
        ):
            return maker
    return None


def _is_double(source: Source, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return name_of(node) == "double" or (
        name_of(node) == "to" and is_dtype(source, argument(node, 0, "dtype"), "float64")
    )


RULE = Rule.of("WB002", __doc__, find)

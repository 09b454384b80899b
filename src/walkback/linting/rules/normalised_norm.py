"""The norm of something that was normalised just before: it is 1 (or sqrt of the width) by construction.

Why: after `F.normalize` every norm is 1 and after a layer norm about sqrt(d), whatever the state was; a state that
grew a million-fold is logged as healthy.
Instead: take the norm of the raw state, before any normalisation.
Pitfall: 11
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import is_norm_call, norm_operand
from walkback.linting.identifier_words import name_of, words_of_name
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_NORMALISING_CALLS = {"torch.nn.functional.normalize", "torch.nn.functional.layer_norm", "torch.nn.functional.rms_norm"}
_NORM_LAYERS = {"ln", "layernorm", "rmsnorm", "layer_norm", "rms_norm", "norm_layer"}
_NORM_PRESERVING_METHODS = {"detach", "clone", "float", "double", "flatten", "view", "reshape", "squeeze", "cpu"}


def find(source: Source) -> Iterator[Hit]:
    for call in source.nodes(ast.Call):
        if is_norm_call(source, call) and not _is_checked(source, call):
            operand = norm_operand(source, call)
            if operand is not None and _is_normalised(source, operand):
                yield call, "this norm is of a normalised state: it is the same whatever the state was"


def _is_normalised(source: Source, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        last = source.latest_binding(node)
        return last is not None and last.value is not None and not last.is_item and _is_normalised(source, last.value)
    if not isinstance(node, ast.Call):
        return False
    if source.called_name(node) in _NORMALISING_CALLS or (
        not source.called_name(node) and (name_of(node) in _NORM_LAYERS or "ln" in words_of_name(node))
    ):
        return True
    preserves_norm = isinstance(node.func, ast.Attribute) and node.func.attr in _NORM_PRESERVING_METHODS
    return preserves_norm and _is_normalised(source, node.func.value)  # type: ignore[attr-defined]


def _is_checked(source: Source, call: ast.Call) -> bool:
    """Whether the norm is in an assert: a test that normalising works."""
    return any(isinstance(outer, ast.Assert) for outer in source.ancestors(call))


RULE = Rule.of("WB013", __doc__, find)

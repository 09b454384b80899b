"""Reference and credit come from two batches of the loader: the cosine compares different samples.

Why: each `next(iter(loader))` restarts the loader, with another shuffle and other augmentations. Gradients of
different samples are nearly orthogonal even for exact credit, so the cosine does not measure the rule.
Instead: draw one batch and take reference and credit from one frozen forward pass on it.
Pitfall: 8
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import is_cosine_call
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source


def find(source: Source) -> Iterator[Hit]:
    for scope in source.scopes():
        inside = source.scope_nodes(scope)
        if not any(is_cosine_call(source, node) for node in inside):
            continue
        seen = set()
        for node in inside:
            loader = _loader_of_new_batch(source, node)
            if loader is not None and loader in seen and isinstance(node, ast.expr):
                yield node, "a second batch is drawn for the same comparison: the cosine is between different samples"
            seen.add(loader)


def _loader_of_new_batch(source: Source, node: ast.AST) -> str | None:
    """The loader in `next(iter(loader))`, as a comparable dump; None for other nodes."""
    match node:
        case ast.Call(args=[ast.Call(args=[loader]) as inner, *_]):
            if source.called_name(node) == "next" and source.called_name(inner) == "iter":
                return ast.dump(loader)
    return None


RULE = Rule.of("WB016", __doc__, find)

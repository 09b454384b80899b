"""Reference and credit come from two draws of the loader: the cosine compares different samples.

Why: each `next(iter(loader))` starts the loader again, with another shuffle and other augmentations. Gradients of
different samples are nearly orthogonal even for exact credit, so the cosine says nothing about the rule.
Instead: draw one batch and take reference and credit from one frozen forward pass on it.
Pitfall: 8
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.meaning import is_cosine_call
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source


def find(source: Source) -> Iterator[Hit]:
    for scope in source.scopes():
        inside = source.own(scope)
        if not any(is_cosine_call(source, node) for node in inside):
            continue
        seen = set()
        for node in inside:
            loader = _fresh_batch_of(source, node)
            if loader is not None and loader in seen and isinstance(node, ast.expr):
                yield node, "a second batch is drawn for the same comparison: the cosine is between different samples"
            seen.add(loader)


def _fresh_batch_of(source: Source, node: ast.AST) -> str | None:
    match node:
        case ast.Call(args=[ast.Call(args=[loader]) as inner, *_]):
            if source.calls(node) == "next" and source.calls(inner) == "iter":
                return ast.dump(loader)
    return None


RULE = Rule.of("WB016", __doc__, find)

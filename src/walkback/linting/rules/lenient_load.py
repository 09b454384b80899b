"""`load_state_dict(..., strict=False)` before measuring feedback: what the checkpoint lacks stays random.

Why: feedback or bridges that were not saved are then left as freshly drawn, without a word, and alignment is specific
to the matrix trained with: the measured cosine falls to that of a random direction, or belongs to another model.
Instead: load with `strict=True`, or check that the returned `missing_keys` is empty, before any alignment is
measured.
Pitfall: 4, 7
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.meaning import measures
from walkback.linting.names import FEEDBACK, argument, name_of, name_words
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source


def find(source: Source) -> Iterator[Hit]:
    named = {name_of(node) for node in source.all(ast.expr)} | {a.arg for a in source.all(ast.arg)}
    if not measures(source) or not any(name_words(name) & FEEDBACK for name in named):
        return
    for call in source.all(ast.Call):
        if name_of(call) == "load_state_dict" and isinstance(source.parents[call], ast.Expr):
            strict = argument(call, 1, "strict")
            if isinstance(strict, ast.Constant) and strict.value is False:
                yield call, "strict=False leaves feedback that is missing in the checkpoint random, without a word"


RULE = Rule.of("WB017", __doc__, find)

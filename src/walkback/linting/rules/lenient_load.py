"""`load_state_dict(..., strict=False)` before measuring feedback: what the checkpoint lacks stays random.

Why: feedback or bridges that were not saved then keep their fresh random values, without a warning. Alignment is
specific to the matrix trained with: the measured cosine falls to that of a random direction.
Instead: load with `strict=True`, or check that the returned `missing_keys` is empty, before any alignment is
measured.
Pitfall: 4, 7
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import file_measures_alignment
from walkback.linting.identifier_words import FEEDBACK_WORDS, argument, name_of, split_identifier
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source


def find(source: Source) -> Iterator[Hit]:
    named = {name_of(node) for node in source.nodes(ast.expr)} | {a.arg for a in source.nodes(ast.arg)}
    if not file_measures_alignment(source) or not any(split_identifier(name) & FEEDBACK_WORDS for name in named):
        return
    for call in source.nodes(ast.Call):
        if name_of(call) == "load_state_dict" and isinstance(source.parents[call], ast.Expr):
            strict = argument(call, 1, "strict")
            if isinstance(strict, ast.Constant) and strict.value is False:
                yield call, "strict=False leaves feedback that is missing in the checkpoint random, without a warning"


RULE = Rule.of("WB017", __doc__, find)

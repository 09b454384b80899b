"""Validation and test data are the same split under two names: choices made on it are made on the test set.

Why: a best epoch or learning rate chosen on "validation" data that is the test split makes the test number a maximum,
and nothing in the training loop shows it. A published library builds all its standard data sets this way.
Instead: hold out part of the training set for choices, and touch the test split once, at the end.
Pitfall: 17
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.identifier_words import HELD_OUT_WORDS, argument, name_of, split_identifier
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

DATA_WORDS = {"data", "dataset", "set", "loader", "dataloader", "split", "ds", "dl"}


def find(source: Source) -> Iterator[Hit]:
    for scope in source.scopes():
        assigned = [
            (node, split_identifier(name_of(node.targets[0])), node.value)
            for node in source.scope_nodes(scope)
            if isinstance(node, ast.Assign)
        ]
        tests = {ast.dump(value) for _, name, value in assigned if "test" in name}
        for node, name, value in assigned:
            if not name & HELD_OUT_WORDS or "test" in name:
                continue
            aliased = isinstance(value, ast.Name | ast.Attribute) and {"test"} < split_identifier(name_of(value))
            if aliased and name & DATA_WORDS and split_identifier(name_of(value)) & DATA_WORDS:
                yield node, f"{name_of(node.targets[0])} is the test data under another name"
            elif ast.dump(value) in tests and _reads_a_split(source, value):
                yield (
                    node,
                    f"{name_of(node.targets[0])} is read by the same call as the test data: it is the test split",
                )


def _reads_a_split(source: Source, value: ast.expr) -> bool:
    """Whether a call reads stored data; a call that draws or splits may give different samples each time."""
    if not isinstance(value, ast.Call):
        return False
    split = argument(value, None, "train", "split")
    return source.called_name(value).startswith("torchvision.datasets.") or isinstance(split, ast.Constant)


RULE = Rule.of("WB021", __doc__, find)

"""Validation and test data are the same split under two names: choices made on it are made on the test set.

Why: a best epoch or learning rate chosen on "validation" data that is the test split makes the test number a maximum,
and nothing in the training loop shows it. A published library builds all its standard data sets this way.
Instead: hold out part of the training set for choices, and touch the test split once, at the end.
Pitfall: 17
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.identifier_words import HELD_OUT_WORDS, argument, name_of, split_identifier, words_of_name
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_VALIDATION_ARGUMENTS = {"validation_data", "val_dataloaders", "val_dataloader", "eval_dataset"}
DATA_WORDS = {"data", "dataset", "set", "loader", "dataloader", "split", "ds", "dl"}

_STORED_WORDS = DATA_WORDS | {"x", "y", "images", "labels"}


def find(source: Source) -> Iterator[Hit]:
    yield from _passed_for_validation(source)
    for scope in source.scopes():
        assigned = [
            (node, target, split_identifier(name_of(target)), value)
            for node in source.scope_nodes(scope)
            if isinstance(node, ast.Assign)
            for target, value in _pairs(node)
        ]
        tests = {ast.dump(value) for _, _, name, value in assigned if "test" in name}
        for node, target, name, value in assigned:
            if not name & HELD_OUT_WORDS or "test" in name:
                continue
            if name & _STORED_WORDS and _is_test_data(value):
                yield node, f"{name_of(target)} is the test data under another name"
            elif ast.dump(value) in tests and _reads_a_split(source, value):
                yield node, f"{name_of(target)} is read by the same call as the test data: it is the test split"


def _pairs(node: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """(target, value) of every name that an assignment binds: `a = b = value`, `a, b = one, other`."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for target in node.targets:
        match target, node.value:
            case (ast.Tuple(elts=names), ast.Tuple(elts=values)) if len(names) == len(values):
                pairs += zip(names, values, strict=True)
            case _:
                pairs.append((target, node.value))
    return pairs


def _is_test_data(value: ast.expr) -> bool:
    """Whether a value is named test data, or a loader of it."""
    named = words_of_name(value)
    if isinstance(value, ast.Name | ast.Attribute):
        return "test" in named and bool(named & _STORED_WORDS) and not named & HELD_OUT_WORDS
    if isinstance(value, ast.Call) and named & {"loader", "dataloader"} and value.args:
        loaded = words_of_name(value.args[0])
        return "test" in loaded and not loaded & (HELD_OUT_WORDS | {"transform"})
    return False


def _passed_for_validation(source: Source) -> Iterator[Hit]:
    """Test data as an argument for validation, as the entry "val" of a dictionary, or as Lightning's val_dataloader."""
    for call in source.nodes(ast.Call):
        for keyword in call.keywords:
            if keyword.arg in _VALIDATION_ARGUMENTS and _is_all_test_data(keyword.value):
                yield call, f"{keyword.arg} is given the test data: what is chosen by it is chosen on the test set"
    for table in source.nodes(ast.Dict):
        for key, value in zip(table.keys, table.values, strict=True):
            if split_identifier(str(source.constant(key))) & HELD_OUT_WORDS and _is_test_data(value):
                yield table, f"the entry '{source.constant(key)}' is the test data under another name"
    for function in source.nodes(ast.FunctionDef):
        for node in source.scope_nodes(function):
            if (
                function.name == "val_dataloader"
                and isinstance(node, ast.Return)
                and node.value is not None
                and name_of(node.value) == "test_dataloader"
            ):
                yield node, "val_dataloader returns the test data"


def _is_all_test_data(value: ast.expr) -> bool:
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(_is_test_data(part) for part in parts)


def _reads_a_split(source: Source, value: ast.expr) -> bool:
    """Whether a call reads stored data; a call that draws or splits may give different samples each time."""
    if isinstance(value, ast.Subscript):
        return isinstance(value.slice, ast.Constant) and value.slice.value == "test"
    if not isinstance(value, ast.Call):
        return False
    split = argument(value, None, "train", "split")
    return source.called_name(value).startswith("torchvision.datasets.") or isinstance(split, ast.Constant)


RULE = Rule.of("WB021", __doc__, find)

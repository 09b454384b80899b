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

_LOADING_CALLS = {"load_state_dict", "load_from_checkpoint", "load_model"}


def find(source: Source) -> Iterator[Hit]:
    named = {name_of(node) for node in source.nodes(ast.expr)} | {a.arg for a in source.nodes(ast.arg)}
    if not file_measures_alignment(source) or not any(split_identifier(name) & FEEDBACK_WORDS for name in named):
        return
    for call in source.nodes(ast.Call):
        if name_of(call) in _LOADING_CALLS and _is_lenient(source, call) and not _is_result_read(source, call):
            yield call, "strict=False leaves feedback that is missing in the checkpoint random, without a warning"
    for part in source.nodes(ast.DictComp):
        if any(_keeps_own_keys(source, test) for loop in part.generators for test in loop.ifs):
            yield part, "keys that the checkpoint lacks are left out here: feedback among them stays random"


def _is_lenient(source: Source, call: ast.Call) -> bool:
    if source.constant(argument(call, 1 if name_of(call) == "load_state_dict" else None, "strict")) is False:
        return True
    unpacked = [keyword.value for keyword in call.keywords if keyword.arg is None]
    options = [b.value for part in unpacked if isinstance(part, ast.Name) for b in source.bindings(part, part.id)]
    return any(
        source.constant(key) == "strict" and source.constant(value) is False
        for part in (*unpacked, *options)
        if isinstance(part, ast.Dict)
        for key, value in zip(part.keys, part.values, strict=True)
    )


def _is_result_read(source: Source, call: ast.Call) -> bool:
    """Whether anything looks at the missing keys that loading returns; printing them stops nothing."""
    outer = source.parents[call]
    if name_of(call) == "load_from_checkpoint" or isinstance(outer, ast.Expr):
        return False
    if isinstance(outer, ast.Call):
        return source.called_name(outer) != "print"
    if isinstance(outer, ast.Assign):
        bound = {n.id for target in outer.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        loaded = [n.id for n in source.scope_nodes(source.enclosing_scope(call)) if _is_load(n)]  # type: ignore[attr-defined]
        return bool(bound & set(loaded))
    return True


def _is_load(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def _keeps_own_keys(source: Source, test: ast.expr) -> bool:
    """Whether a filter is `key in model.state_dict()`, also under a name."""
    match test:
        case ast.Compare(ops=[ast.In()], comparators=[ast.Name(id=name) as own]):
            values = [binding.value for binding in source.bindings(own, name)]
            return any(value is not None and name_of(value) == "state_dict" for value in values)
        case ast.Compare(ops=[ast.In()], comparators=[ast.Call() as own]):
            return name_of(own) == "state_dict"
    return False


RULE = Rule.of("WB017", __doc__, find)

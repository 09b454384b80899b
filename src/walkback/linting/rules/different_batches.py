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
from walkback.linting.identifier_words import name_of, words_of_name
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Binding, Source

_DRAWING_WORDS = {"get", "sample", "draw", "next", "random"}
_AUGMENTING_WORDS = {"augment", "augmented", "augmentation"}
_DEPTH = 6


def find(source: Source) -> Iterator[Hit]:
    for call in source.nodes(ast.Call):
        if not is_cosine_call(source, call) or len(call.args) < 2:
            continue
        one, other = (_draws(source, side) for side in call.args[:2])
        if one and other and one.isdisjoint(other) and not _are_of_one_function(source, *call.args[:2]):
            second = max(one | other, key=lambda node: (node.lineno, node.col_offset))
            yield second, "a second batch is drawn for the same comparison: the cosine is between different samples"


def _draws(source: Source, node: ast.expr, depth: int = _DEPTH) -> set[ast.expr]:
    """The expressions that draw a batch or an augmentation from which a value is computed."""
    found: set[ast.expr] = set()
    for part in ast.walk(node):
        if _draws_batch(source, part):
            found.add(part)  # type: ignore[arg-type]
        elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and depth:
            binding = source.latest_binding(part)
            if binding is None or binding.value is None:
                continue
            found |= _loader_beside_itself(source, part, binding) or _draws(source, binding.value, depth - 1)
    return found


def _draws_batch(source: Source, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if source.called_name(node) == "next" or name_of(node) == "__next__":
        return True
    named = words_of_name(node)
    return bool(node.args) and bool(("batch" in named and named & _DRAWING_WORDS) or named & _AUGMENTING_WORDS)


def _loader_beside_itself(source: Source, name: ast.Name, binding: Binding) -> set[ast.expr]:
    """What stands for the batch in `for a, b in zip(loader, loader)` and in `a, b = islice(loader, 2)`."""
    value = binding.value
    if value is None or not binding.is_item:
        return set()
    outer = source.parents.get(value)
    if isinstance(outer, ast.Call) and source.called_name(outer) == "zip":
        twins = [part for part in outer.args if ast.dump(part) == ast.dump(value)]
        return {value} if len(twins) > 1 else set()
    if source.called_name(value) == "itertools.islice" and isinstance(binding.node, ast.Assign):
        targets = [n for n in ast.walk(binding.node.targets[0]) if isinstance(n, ast.Name)]
        return {target for target in targets if target.id == name.id}
    return set()


def _are_of_one_function(source: Source, one: ast.expr, other: ast.expr) -> bool:
    """Whether both sides are made by the same function: then its noise between batches is measured, not a rule."""
    made = [_made_by(source, side) for side in (one, other)]
    return bool(made[0]) and made[0] == made[1]


def _made_by(source: Source, node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        binding = source.latest_binding(node)
        node = binding.value if binding is not None and binding.value is not None else node
    return ast.dump(node.func) if isinstance(node, ast.Call) else ""


RULE = Rule.of("WB016", __doc__, find)

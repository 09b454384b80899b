"""An epoch or a seed is chosen by its test result: the number reported is a maximum, not a measurement.

Why: the best of 100 epochs on test data is higher than what the final weights reach, by more for a noisier method;
the best seeds likewise. Differences of a few points between methods can come from this alone.
Instead: report the final epoch, or choose on a held-out part of the training set, and report every seed that was run.
Pitfall: 17
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.names import HELD_OUT, all_words, label_words, name_of, name_words
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

SCORES = {"acc", "accs", "accuracy", "accuracies", "loss", "losses", "error", "score", "scores", "top1"}
PICKS = {"max", "min", "sorted", "numpy.max", "numpy.min", "numpy.argmax", "numpy.argmin"}
PICKS |= {"torch.argmax", "torch.argmin"}
_KEEPS = {"torch.save", "copy.deepcopy"}


def find(source: Source) -> Iterator[Hit]:
    for node in source.all(ast.AST):
        match node:
            case ast.If(test=ast.Compare(left=left, comparators=[right])) if _keeps(source, node):
                pair = (left, right)
                if any("best" in label_words(side) for side in pair) and any(_is_test(source, s) for s in pair):
                    yield node, "the best epoch is chosen by its test result: the number is a maximum over epochs"
            case ast.Call() if source.calls(node) in PICKS and node.args and _is_kept_as_result(source, node):
                if any(_is_test(source, part) for part in node.args):
                    yield node, "the extreme of test results is taken: the number is a maximum, not a measurement"
            case ast.Assign(targets=[ast.Name(id=name)]) if name_words(name) & {"best"} and name_words(name) & {
                "seed",
                "seeds",
            }:
                if any(source.calls(n) in PICKS or name_of(n) == "argsort" for n in ast.walk(node.value)):
                    yield node, "seeds are chosen by their results: report every seed that was run"


def _is_test(source: Source, node: ast.expr) -> bool:
    """A score on test data, by its name or by the call that made it."""
    named = label_words(node)
    if named & HELD_OUT:
        return False
    if "test" in named and named & SCORES:
        return True
    if isinstance(node, ast.Name) and named & SCORES:
        last = source.latest(node)
        if last is not None and isinstance(last.value, ast.Call):
            # `test(loader=val_loader)` runs on held-out data in spite of its name.
            given = {w for part in (*last.value.args, *(k.value for k in last.value.keywords)) for w in all_words(part)}
            return "test" in given and not given & HELD_OUT
    return False


def _keeps(source: Source, node: ast.If) -> bool:
    """The branch remembers this epoch: a new best, or a saved model."""
    for statement in node.body:
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Assign) and any(label_words(target) & {"best"} for target in inner.targets):
                return True
            if source.calls(inner) in _KEEPS:
                return True
    return False


def _is_kept_as_result(source: Source, call: ast.Call) -> bool:
    """`best = max(best, test_acc)`; limits of an axis and the like are not results."""
    for outer in source.above(call):
        if isinstance(outer, ast.If):
            return False
        if isinstance(outer, ast.Assign):
            return any(label_words(target) & {"best"} for target in outer.targets)
        if isinstance(outer, ast.stmt):
            return isinstance(outer, ast.Return) and bool(
                name_words(getattr(source.scope(call), "name", "")) & {"best"}
            )
    return False


RULE = Rule.of("WB014", __doc__, find)

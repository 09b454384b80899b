"""An epoch or a seed is chosen by its test result: the number reported is a maximum, not a measurement.

Why: the best of 100 epochs on test data is higher than what the final weights reach, by more for a noisier method;
the best seeds likewise. Differences of a few points between methods can come from this alone.
Instead: report the final epoch, or choose on a held-out part of the training set, and report every seed that was run.
Pitfall: 17
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.identifier_words import (
    HELD_OUT_WORDS,
    argument,
    name_of,
    split_identifier,
    words_of_all_names,
    words_of_name,
)
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

SCORE_WORDS = {"acc", "accs", "accuracy", "accuracies", "loss", "losses", "error", "score", "scores", "top1"}
ACCURACY_WORDS = {"acc", "accs", "accuracy", "accuracies"}
SELECTING_CALLS = {"max", "min", "sorted", "numpy.max", "numpy.min", "numpy.argmax", "numpy.argmin"}
SELECTING_CALLS |= {"torch.argmax", "torch.argmin"}
_LARGEST_CALLS = {"max", "min", "heapq.nlargest", "heapq.nsmallest"}
CHOSEN = "this selects the best of several test results: the number is a maximum, not a measurement"
_SAVING_CALLS = {"torch.save", "copy.deepcopy"}


def find(source: Source) -> Iterator[Hit]:
    for node in source.nodes(ast.AST):
        match node:
            case ast.If(test=ast.Compare(left=left, comparators=[right])) if _records_best(source, node):
                pair = (_assigned_value(left), _assigned_value(right))
                if any("best" in words_of_name(side) for side in pair) and any(_is_test_score(source, s) for s in pair):
                    yield node, "the best epoch is chosen by its test result: the number is a maximum over epochs"
            case ast.Assign(targets=[target], value=ast.Compare(left=left, comparators=[right])):
                pair = (left, right)
                is_best = "best" in words_of_name(target) and any("best" in words_of_name(side) for side in pair)
                if is_best and any(_is_test_score(source, side) for side in pair):
                    yield node, "the best epoch is chosen by its test result: the number is a maximum over epochs"
            case ast.Call(args=[_, *_]) if _selects_by_test_key(source, node) or _monitors_test(node):
                yield node, CHOSEN
            case ast.Call(keywords=[_, *_]) if _monitors_test(node):
                yield node, CHOSEN
            case ast.Call(func=ast.Attribute(value=values, attr="idxmax" | "idxmin")) if _is_test_score(source, values):
                yield node, CHOSEN
            case ast.Call() if source.called_name(node) in SELECTING_CALLS and node.args and _is_reported(source, node):
                if any(_is_test_score(source, part) for part in node.args):
                    yield node, CHOSEN
            case ast.Assign(targets=[ast.Name(id=name)]) if split_identifier(name) & {"best"} and split_identifier(
                name
            ) & {
                "seed",
                "seeds",
            }:
                if any(
                    source.called_name(n) in SELECTING_CALLS or name_of(n) == "argsort" for n in ast.walk(node.value)
                ):
                    yield node, "seeds are chosen by their results: report every seed that was run"


def _assigned_value(node: ast.expr) -> ast.expr:
    """The value of `name := value`, otherwise the node itself."""
    return node.value if isinstance(node, ast.NamedExpr) else node


def _selects_by_test_key(source: Source, call: ast.Call) -> bool:
    """Whether a call is `max(runs, key=lambda run: run.test_acc)`, or `sorted(...)[-1]` with such a key."""
    called = source.called_name(call)
    is_one_taken = isinstance(source.parents.get(call), ast.Subscript)
    if called not in _LARGEST_CALLS and not (called == "sorted" and is_one_taken):
        return False
    match argument(call, None, "key"):
        case ast.Lambda(body=ast.Attribute() | ast.Subscript() as value):
            return _is_test_score(source, value)
        case ast.Call(args=[ast.Constant(value=str(key))]) as getter:
            named = split_identifier(key)
            is_getter = source.called_name(getter) in ("operator.attrgetter", "operator.itemgetter")
            return is_getter and "test" in named and bool(named & SCORE_WORDS)
    return False


def _monitors_test(call: ast.Call) -> bool:
    """Whether a checkpoint or an early stop monitors a test result."""
    monitored = argument(call, None, "monitor")
    if not isinstance(monitored, ast.Constant) or not isinstance(monitored.value, str):
        return False
    named = split_identifier(monitored.value)
    return "test" in named and bool(named & SCORE_WORDS)


def _is_test_score(source: Source, node: ast.expr) -> bool:
    """Whether a value is a score on test data, by its name or by the call that made it."""
    named = words_of_name(node)
    if named & HELD_OUT_WORDS:
        return False
    if "test" in named and named & SCORE_WORDS and not isinstance(node, ast.Call):
        return True
    if isinstance(node, ast.Call):
        return bool(node.args) and not source.called_name(node) and _runs_on_test_data(node)
    if isinstance(node, ast.Name) and named & SCORE_WORDS:
        last = source.latest_binding(node)
        if last is not None and isinstance(last.value, ast.Call):
            return _runs_on_test_data(last.value)
    return False


def _runs_on_test_data(call: ast.Call) -> bool:
    """Whether a call is given test data; `test(loader=val_loader)` runs on held-out data, whatever its name."""
    given = {w for part in (*call.args, *(k.value for k in call.keywords)) for w in words_of_all_names(part)}
    return "test" in given and not given & HELD_OUT_WORDS


def _records_best(source: Source, node: ast.If) -> bool:
    """Whether the branch records this epoch: it sets a new best or saves the model."""
    for statement in node.body:
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Assign) and any(words_of_name(target) & {"best"} for target in inner.targets):
                return True
            if source.called_name(inner) in _SAVING_CALLS:
                return True
    return False


def _is_reported(source: Source, call: ast.Call) -> bool:
    """Whether an extreme is a result, as in `best = max(best, test_acc)`, and not an axis limit or the like."""
    for outer in source.ancestors(call):
        if isinstance(outer, ast.If):
            return False
        if isinstance(outer, ast.Assign):
            return any(words_of_name(target) & {"best"} for target in outer.targets)
        if isinstance(outer, ast.stmt):
            named = split_identifier(getattr(source.enclosing_scope(call), "name", ""))
            return isinstance(outer, ast.Return) and ("best" in named or _is_highest_alone(source, outer, call))
    return False


def _is_highest_alone(source: Source, statement: ast.Return, call: ast.Call) -> bool:
    """Whether `return max(test_accs)` returns the highest accuracy and nothing beside it, as for a range."""
    is_highest = source.called_name(call) in ("max", "numpy.max") and len(call.args) == 1
    return is_highest and statement.value is call and bool(words_of_name(call.args[0]) & ACCURACY_WORDS)


RULE = Rule.of("WB014", __doc__, find)

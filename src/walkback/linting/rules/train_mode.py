"""Gradients are measured with the model left in train mode: dropout and batch statistics make another network.

Why: in train mode reference and credit each see their own dropout mask, and batch norm mixes the samples; the cosine
is then between two networks, and measuring moves the running statistics.
Instead: call `model.eval()` first, restore the mode afterwards, and take reference and credit from one forward pass.
Pitfall: 10
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.meaning import compares_gradients, takes_gradient
from walkback.linting.names import constant, name_of, name_words
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Function, Source

_MEASURING = {"align", "alignment", "alignments", "cos", "cosine", "cosines", "measure", "measurement", "diagnose"}
_MEASURING |= {"diagnostic", "diagnostics", "evaluate", "evaluation"}
TRAINING = {"train", "training", "fit", "loss"}
_MODEL = {"model", "net", "network"}


def find(source: Source) -> Iterator[Hit]:
    evaluates = any(_sets_eval(call) for call in source.all(ast.Call))
    for function in source.all(ast.FunctionDef):
        named = name_words(function.name)
        if not named & _MEASURING or named & TRAINING:
            continue
        inside = source.own(function)
        models = {argument.arg for argument in function.args.args if name_words(argument.arg) & _MODEL}
        models |= {n.attr for n in inside if isinstance(n, ast.Attribute) and name_words(n.attr) & _MODEL}
        runs = any(isinstance(node, ast.Call) and name_of(node) in models for node in inside)
        takes = any(takes_gradient(source, node) or compares_gradients(source, node) for node in inside)
        if not (runs and takes) or _learns(inside):
            continue
        trains = _train_call(function, source, models)
        if trains is not None:
            yield trains, f"{function.name} measures gradients in train mode: dropout and batch norm are on"
        elif not evaluates:
            yield function, f"{function.name} measures gradients and nothing in this file calls {min(models)}.eval()"


def _sets_eval(call: ast.Call) -> bool:
    """`model.eval()`, `model.train(False)`, `model.train(was_training)`."""
    return name_of(call) == "eval" or (
        name_of(call) == "train" and isinstance(call.func, ast.Attribute) and bool(call.args)
    )


def _learns(inside: list[ast.AST]) -> bool:
    """A step of an optimiser: this is training, whatever its name."""
    return any(isinstance(node, ast.Call) and name_of(node) == "step" for node in inside)


def _train_call(function: Function, source: Source, models: set[str]) -> ast.Call | None:
    """`model.train()` before the first `model.eval()`: afterwards it only restores."""
    for node in source.own(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and name_of(node.func.value) in models:
            if _sets_eval(node) and not (node.args and constant(node.args[0]) is not None):
                return None
            if node.func.attr == "train" and not node.args and not node.keywords:
                return node
    return None


RULE = Rule.of("WB006", __doc__, find)

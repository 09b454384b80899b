"""Gradients are measured with the model left in train mode: dropout and batch statistics change the network.

Why: in train mode reference and credit each get their own dropout mask, and batch norm mixes the samples; the cosine
is then between two networks, and measuring changes the running statistics.
Instead: call `model.eval()` first, restore the mode afterwards, and take reference and credit from one forward pass.
Pitfall: 10
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import compares_gradients, takes_gradient
from walkback.linting.identifier_words import literal_number, name_of, split_identifier
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Function, Source

_MEASURING_WORDS = {
    "align",
    "alignment",
    "alignments",
    "cos",
    "cosine",
    "cosines",
    "measure",
    "measurement",
    "diagnose",
}
_MEASURING_WORDS |= {"diagnostic", "diagnostics", "evaluate", "evaluation"}
TRAINING_WORDS = {"train", "training", "fit", "loss"}
_MODEL_WORDS = {"model", "net", "network"}


def find(source: Source) -> Iterator[Hit]:
    file_sets_eval = any(_sets_eval(call) for call in source.nodes(ast.Call))
    for function in source.nodes(ast.FunctionDef):
        named = split_identifier(function.name)
        if not named & _MEASURING_WORDS or named & TRAINING_WORDS:
            continue
        inside = source.scope_nodes(function)
        models = {argument.arg for argument in function.args.args if split_identifier(argument.arg) & _MODEL_WORDS}
        models |= {n.attr for n in inside if isinstance(n, ast.Attribute) and split_identifier(n.attr) & _MODEL_WORDS}
        runs_model = any(isinstance(node, ast.Call) and name_of(node) in models for node in inside)
        takes_gradients = any(takes_gradient(source, node) or compares_gradients(source, node) for node in inside)
        if not (runs_model and takes_gradients) or _steps_an_optimiser(inside):
            continue
        train_call = _train_call(function, source, models)
        if train_call is not None:
            yield train_call, f"{function.name} measures gradients in train mode: dropout and batch norm are on"
        elif not file_sets_eval:
            yield function, f"{function.name} measures gradients and nothing in this file calls {min(models)}.eval()"


def _sets_eval(call: ast.Call) -> bool:
    """Whether a call is `model.eval()`, `model.train(False)` or `model.train(was_training)`."""
    return name_of(call) == "eval" or (
        name_of(call) == "train" and isinstance(call.func, ast.Attribute) and bool(call.args)
    )


def _steps_an_optimiser(inside: list[ast.AST]) -> bool:
    """Whether a function calls an optimiser's step: then it trains, whatever its name."""
    return any(isinstance(node, ast.Call) and name_of(node) == "step" for node in inside)


def _train_call(function: Function, source: Source, models: set[str]) -> ast.Call | None:
    """The `model.train()` before the first `model.eval()`, if any; a later one only restores the mode."""
    for node in source.scope_nodes(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and name_of(node.func.value) in models:
            if _sets_eval(node) and not (node.args and literal_number(node.args[0]) is not None):
                return None
            if node.func.attr == "train" and not node.args and not node.keywords:
                return node
    return None


RULE = Rule.of("WB006", __doc__, find)

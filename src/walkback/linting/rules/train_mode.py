"""Gradients are measured with the model left in train mode: dropout and batch statistics change the network.

Why: in train mode reference and credit each get their own dropout mask, and batch norm mixes the samples; the cosine
is then between two networks, and measuring changes the running statistics.
Instead: call `model.eval()` first, restore the mode afterwards, and take reference and credit from one forward pass.
Pitfall: 10
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import compares_gradients, file_measures_alignment, takes_gradient
from walkback.linting.identifier_words import argument, name_of, split_identifier
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
TRAINING_WORDS = {"train", "training", "fit", "loss", "penalty", "clip", "checkpoint", "accumulate", "step"}
TRAINING_WORDS |= {"test", "check"}
_GRADIENT_NAMES = {"grad", "grads", "gradient", "gradients"}
_PART_METHODS = {"forward", "head", "stem", "backbone", "encoder", "features", "classifier", "blocks"}
"""Calls of these on a model run part of it."""
_SIZE_WORDS = {"norm", "norms", "reference"}
_MODEL_WORDS = {"model", "net", "network"}
_FUNCTIONAL_CALLS = {"torch.func.functional_call", "torch.nn.utils.stateless.functional_call"}


def find(source: Source) -> Iterator[Hit]:
    setting_eval = [call for call in source.nodes(ast.Call) if _sets_eval(call)]
    for function in source.nodes(ast.FunctionDef):
        named = split_identifier(function.name)
        if not _is_measuring(source, named) or named & TRAINING_WORDS:
            continue
        inside = source.scope_nodes(function)
        models = {argument.arg for argument in function.args.args if split_identifier(argument.arg) & _MODEL_WORDS}
        models |= {n.attr for n in inside if isinstance(n, ast.Attribute) and split_identifier(n.attr) & _MODEL_WORDS}
        runs_model = any(isinstance(node, ast.Call) and _runs(node, models) for node in inside)
        # functional_call is in a function of its own, which torch.func.grad differentiates.
        runs_model = runs_model or any(_calls_functionally(source, n, models) for n in source.nodes(ast.Call, function))
        taken = [node for node in inside if takes_gradient(source, node) or compares_gradients(source, node)]
        if not (runs_model and taken) or _steps_an_optimiser(inside):
            continue
        train_call = _train_call(function, source, models)
        if train_call is not None:
            yield train_call, f"{function.name} measures gradients in train mode: dropout and batch norm are on"
        elif not any(function not in source.ancestors(call) or _is_before(call, taken) for call in setting_eval):
            yield function, f"{function.name} measures gradients and nothing in this file calls {min(models)}.eval()"


def _is_measuring(source: Source, named: frozenset[str]) -> bool:
    """Whether a function is named after a measurement; one that returns gradients may also belong to training."""
    if named & _MEASURING_WORDS:
        return True
    return bool(named & _GRADIENT_NAMES) and (bool(named & _SIZE_WORDS) or file_measures_alignment(source))


def _sets_eval(call: ast.Call) -> bool:
    """Whether a call is `model.eval()`, `model.train(False)` or `model.train(was_training)`."""
    if name_of(call) == "eval":
        return True
    if name_of(call) != "train" or not isinstance(call.func, ast.Attribute):
        return False
    mode = argument(call, 0, "mode")
    return mode is not None and not (isinstance(mode, ast.Constant) and mode.value is True)


def _calls_functionally(source: Source, call: ast.Call, models: set[str]) -> bool:
    is_functional = source.called_name(call) in _FUNCTIONAL_CALLS
    return is_functional and bool(call.args) and name_of(call.args[0]) in models


def _runs(call: ast.Call, models: set[str]) -> bool:
    """Whether a call is `model(x)` or `model.head(x)`."""
    if name_of(call) in models:
        return True
    match call.func:
        case ast.Attribute(value=ast.Name() | ast.Attribute() as owner, attr=method):
            # Parameters as a first argument: a functional network, which has no mode.
            return method in _PART_METHODS and name_of(owner) in models and len(call.args) == 1
    return False


def _is_before(call: ast.Call, taken: list[ast.AST]) -> bool:
    return (call.lineno, call.col_offset) < min((node.lineno, node.col_offset) for node in taken)  # type: ignore[attr-defined]


def _steps_an_optimiser(inside: list[ast.AST]) -> bool:
    """Whether a function calls an optimiser's step: then it trains, whatever its name."""
    return any(isinstance(node, ast.Call) and name_of(node) == "step" for node in inside)


def _train_call(function: Function, source: Source, models: set[str]) -> ast.Call | None:
    """The `model.train()` before the first `model.eval()`, if any; a later one only restores the mode."""
    for node in source.scope_nodes(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and name_of(node.func.value) in models:
            if _sets_eval(node):
                return None
            if node.func.attr == "train":
                return node
    return None


RULE = Rule.of("WB006", __doc__, find)

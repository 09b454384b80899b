"""Words of identifiers, and the words that name a gradient, a cosine, a layer, a seed; argument and literal lookup."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache

GRADIENT_WORDS = {
    "grad",
    "grads",
    "gradient",
    "gradients",
    "credit",
    "credits",
    "delta",
    "deltas",
    "cotangent",
    "cotangents",
}
NOT_GRADIENT_WORDS = {
    "norm",
    "norms",
    "scaler",
    "scale",
    "clip",
    "fn",
    "cam",
    "no",
    "requires",
    "steps",
    "accumulation",
}
NOT_GRADIENT_WORDS |= {"enabled", "checkpoint", "checkpointing", "penalty", "loss", "time", "stats"}
NOT_GRADIENT_WORDS |= {"cos", "cosine", "angle"}
COSINE_WORDS = {"cos", "cosine", "cosines", "cossim", "cosim"}
ALIGNMENT_WORDS = {"alignment", "alignments"}
NOT_COSINE_WORDS = {"lr", "annealing", "scheduler", "schedule", "decay", "warmup", "loss", "losses"}
NOT_COSINE_WORDS |= {"embedding", "distance"}
NOT_COSINE_WORDS |= {"sin", "beta", "betas", "rotary", "rope", "freqs", "cached", "cache", "table", "window", "theta"}
LAYER_WORDS = {"layer", "layers", "block", "blocks", "depth", "depths", "parameters", "modules", "children"}
SEED_WORDS = {"seed", "seeds", "accs", "accuracies", "runs", "trials", "repeats", "repetitions", "replicates", "folds"}
HELD_OUT_WORDS = {"val", "valid", "validation", "dev", "heldout"}
FEEDBACK_WORDS = {"feedback", "feedbacks", "fb", "bridge", "bridges"}

_JOINED_WORDS = re.compile(r"(?<![a-z])(train|test|val|valid)(set|loader)(?![a-z])")


@cache
def split_identifier(name: str) -> frozenset[str]:
    """The lower-case words of an identifier: bp, grads, l and 2 for `bpGrads_l2`; test and loader for `testloader`."""
    name = _JOINED_WORDS.sub(r"\1_\2", name)
    return frozenset(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name))


def name_of(node: ast.AST) -> str:
    """The last identifier of an expression: "bp_grads" for `self.bp_grads[0]`; of a call, that of its function."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return name
        case ast.Subscript(value=value, slice=ast.Constant(value=str(key))):
            return key or name_of(value)
        case ast.Subscript(value=value) | ast.Starred(value=value):
            return name_of(value)
        case ast.Call(func=func):
            return name_of(func)
    return ""


def words_of_name(node: ast.AST) -> frozenset[str]:
    """The words of an expression's last identifier."""
    return split_identifier(name_of(node))


def words_of_all_names(node: ast.AST) -> set[str]:
    """The words of every identifier in an expression."""
    named = (n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))
    return {word for n in named for word in words_of_name(n)}


def argument(call: ast.Call, index: int | None, *names: str) -> ast.expr | None:
    """An argument of a call by position (None: keyword only) or by one of its keywords; None where it is not given."""
    for keyword in call.keywords:
        if keyword.arg in names:
            return keyword.value
    if index is not None and index < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
        return call.args[index]
    return None


def literal_number(node: ast.AST | None) -> float | None:
    """The number of a literal such as `-1` or `1e-8`; None for anything else."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            # float() of a longer integer raises an OverflowError.
            return float(value) if abs(value) <= sys.float_info.max else None
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            positive = literal_number(inner)
            return None if positive is None else -positive
    return None

"""What names say: the words of an identifier, and the words by which a gradient, a cosine or a seed is called."""

from __future__ import annotations

import ast
import re
from functools import cache

GRADIENT = {"grad", "grads", "gradient", "gradients", "credit", "credits", "delta", "deltas", "cotangent", "cotangents"}
NOT_A_GRADIENT = {"norm", "norms", "scaler", "scale", "clip", "fn", "cam", "no", "requires", "steps", "accumulation"}
NOT_A_GRADIENT |= {"enabled", "checkpoint", "checkpointing", "penalty", "loss", "time", "stats"}
NOT_A_GRADIENT |= {"cos", "cosine", "angle"}
COSINE_WORDS = {"cos", "cosine", "cosines", "cossim", "cosim"}
ALIGNMENT = {"alignment", "alignments"}
NOT_A_COSINE = {"lr", "annealing", "scheduler", "schedule", "decay", "warmup", "loss", "losses"}
NOT_A_COSINE |= {"embedding", "distance"}
NOT_A_COSINE |= {"sin", "beta", "betas", "rotary", "rope", "freqs", "cached", "cache", "table", "window", "theta"}
LAYER_WORDS = {"layer", "layers", "block", "blocks", "depth", "depths", "parameters", "modules", "children"}
SEED_WORDS = {"seed", "seeds", "accs", "accuracies", "runs", "trials", "repeats", "repetitions", "replicates", "folds"}
HELD_OUT = {"val", "valid", "validation", "dev", "heldout"}
FEEDBACK = {"feedback", "feedbacks", "fb", "bridge", "bridges"}


@cache
def name_words(name: str) -> frozenset[str]:
    """The lower-case words of an identifier: `bpGrads_l2` has bp, grads, l, 2."""
    return frozenset(word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name))


def name_of(node: ast.AST) -> str:
    """The last identifier of an expression: `self.bp_grads[0]` is called bp_grads."""
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


def label_words(node: ast.AST) -> frozenset[str]:
    return name_words(name_of(node))


def all_words(node: ast.AST) -> set[str]:
    """The words of every identifier in an expression."""
    named = (n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute))
    return {word for n in named for word in label_words(n)}


def argument(call: ast.Call, index: int | None, *names: str) -> ast.expr | None:
    """An argument by position or by one of its keywords."""
    for keyword in call.keywords:
        if keyword.arg in names:
            return keyword.value
    if index is not None and index < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
        return call.args[index]
    return None


def constant(node: ast.AST | None) -> float | None:
    """The number an expression spells out: `-1`, `1e-8`; None for anything else."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            value_inside = constant(inner)
            return None if value_inside is None else -value_inside
    return None

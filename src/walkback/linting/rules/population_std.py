"""A spread over seeds with ddof = 0, the default of `np.std` and `statistics.pstdev`: too small for few seeds.

Why: numpy divides by n, not n - 1. From 3 seeds the spread is understated by a factor of 0.82, and an interval made
of it covers less than it states. torch, pandas and `statistics.stdev` divide by n - 1.
Instead: `np.std(values, ddof=1)` or `statistics.stdev(values)`, a t-interval for ±, and state n, ddof and what ± is.
Pitfall: 16
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import has_value_per_seed, resolve_number
from walkback.linting.identifier_words import argument, literal_number
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

NUMPY_CALLS = {"numpy.std", "numpy.var", "numpy.nanstd", "numpy.nanvar"}
TORCH_CALLS = {"torch.std", "torch.var", "torch.std_mean", "torch.var_mean"}
POPULATION_CALLS = {"statistics.pstdev", "statistics.pvariance"}
_ARRAY_CALLS = {"numpy.array", "numpy.asarray", "numpy.stack", "numpy.zeros", "numpy.empty", "numpy.concatenate"}


def find(source: Source) -> Iterator[Hit]:
    for call in source.nodes(ast.Call):
        values = _population_spread_operand(source, call)
        if values is not None and has_value_per_seed(source, values) and not _is_corrected(source, call):
            yield call, "this spread over seeds or runs divides by n: too small for few of them, pass ddof=1"


def _population_spread_operand(source: Source, call: ast.Call) -> ast.expr | None:
    """The values of which a call computes a spread with ddof = 0; None for other calls."""
    called = source.called_name(call)
    ddof = argument(call, None, "ddof", "correction")
    unbiased = argument(call, None, "unbiased")
    is_zero = resolve_number(source, ddof) == 0 or (isinstance(unbiased, ast.Constant) and unbiased.value is False)
    if called in POPULATION_CALLS and call.args:
        return call.args[0]
    if called in NUMPY_CALLS and call.args and (ddof is None or is_zero):
        # ddof is the fifth positional argument.
        return call.args[0] if len(call.args) < 5 else None
    if called in (*TORCH_CALLS, "scipy.stats.sem") and call.args and is_zero:
        return call.args[0]
    if not called and isinstance(call.func, ast.Attribute) and call.func.attr in ("std", "var"):
        owner = call.func.value
        if is_zero or (ddof is None and unbiased is None and _is_numpy(source, owner)):
            return owner
    return None


def _is_corrected(source: Source, call: ast.Call) -> bool:
    """Whether n - 1 enters beside the spread: np.std(values) / np.sqrt(len(values) - 1) is the standard error."""
    outer = source.parents.get(call)
    if not isinstance(outer, ast.BinOp) or not isinstance(outer.op, ast.Div | ast.Mult):
        return False
    other = outer.right if outer.left is call else outer.left
    return any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and literal_number(node.right) == 1
        for node in ast.walk(other)
    )


def _is_numpy(source: Source, node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        values = [binding.value for binding in source.bindings(node, node.id)]
        return bool(values) and all(value is not None and source.called_name(value) in _ARRAY_CALLS for value in values)
    return source.called_name(node) in _ARRAY_CALLS


RULE = Rule.of("WB004", __doc__, find)

"""A bootstrap over a handful of seeds: from 3 seeds its 95% interval covers about 75%.

Why: resampling three numbers gives only ten different samples; the percentile interval cannot reach beyond the smallest
and largest of them and is far too narrow.
Instead: a t-interval with ddof = 1 over seeds, paired by seed where methods are compared; or run more seeds.
Pitfall: 16
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import has_value_per_seed
from walkback.linting.identifier_words import argument, literal_number, name_of, split_identifier
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_CONTAINER_CALLS = {"numpy.array", "numpy.asarray", "torch.tensor", "pandas.Series", "list", "tuple", "sorted"}
_ENOUGH_SEEDS = 10


def find(source: Source) -> Iterator[Hit]:
    for node in source.nodes(ast.expr):
        values = _resampled_values(source, node)
        if values is None or not has_value_per_seed(source, values):
            continue
        count = _seed_count(source, values)
        if count is not None and count < _ENOUGH_SEEDS:
            yield node, f"a bootstrap over {count} seeds covers far less than it states: use a t-interval with ddof = 1"


def _resampled_values(source: Source, call: ast.expr) -> ast.expr | None:
    """The values that an expression draws from with replacement."""
    if isinstance(call, ast.Subscript):
        return call.value if _draws_indices(source, call.slice) else None
    if not isinstance(call, ast.Call):
        return None
    if source.called_name(call) == "sklearn.utils.resample":
        return call.args[0] if call.args else None
    if source.called_name(call) == "jax.random.choice":
        return argument(call, 1, "a")
    if isinstance(call.func, ast.Attribute) and call.func.attr == "sample" and not source.called_name(call):
        return call.func.value if source.constant(argument(call, None, "replace")) is True else None
    if source.called_name(call) == "scipy.stats.bootstrap":
        data = argument(call, 0, "data")
        return data.elts[0] if isinstance(data, ast.Tuple) and data.elts else data
    if name_of(call) == "choice" and source.called_name(call) != "random.choice":
        size, replace = argument(call, 1, "size"), argument(call, 2, "replace")
        draws_all = isinstance(size, ast.Call | ast.Tuple)
        without = isinstance(replace, ast.Constant) and replace.value is False
        return call.args[0] if call.args and draws_all and not without else None
    if source.called_name(call) == "random.choices":
        return argument(call, 0, "population")
    return None


def _draws_indices(source: Source, index: ast.expr) -> bool:
    """Whether an index is a matrix of random integers, directly or under a name."""
    if isinstance(index, ast.Name):
        binding = source.latest_binding(index)
        index = binding.value if binding is not None and binding.value is not None else index
    if not isinstance(index, ast.Call):
        return False
    return name_of(index) == "randint" or (name_of(index) == "integers" and not source.called_name(index))


def _seed_count(source: Source, values: ast.expr) -> int | None:
    """The number of seeds, where the file states it; otherwise None."""
    if isinstance(values, ast.Name):
        lengths = [_length(source, binding.value) for binding in source.bindings(values, values.id)]
        known = [count for count in lengths if count]
        if known:
            return max(known)
    lists = [
        node for node in source.nodes(ast.Assign) if split_identifier(name_of(node.targets[0])) & {"seed", "seeds"}
    ]
    counts = [count for count in (_length(source, node.value) for node in lists) if count]
    return max(counts) if counts else None


def _length(source: Source, value: ast.expr | None, depth: int = 4) -> int | None:
    if not depth:
        return None
    match value:
        case ast.ListComp(generators=[loop]) | ast.GeneratorExp(generators=[loop]) | ast.DictComp(generators=[loop]):
            return None if loop.ifs else _length(source, loop.iter, depth - 1)
        case ast.Name(id=name):
            lengths = {_length(source, binding.value, depth - 1) for binding in source.bindings(value, name)}
            return lengths.pop() if len(lengths) == 1 else None
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return len(parts)
        case ast.Call(func=ast.Name(id="range"), args=[stop]):
            length = literal_number(stop)
            return None if length is None else int(length)
        case ast.Call(args=[ast.List() | ast.ListComp() | ast.DictComp() | ast.Name() as values, *_]) if (
            source.called_name(value) in _CONTAINER_CALLS
        ):
            return _length(source, values, depth - 1)
    return None


RULE = Rule.of("WB020", __doc__, find)

"""One mean of cosines over all layers: it hides which layer dominates it, and another average gives another number.

Why: four usual ways of averaging differ several-fold on the same network and can differ in sign, a layer whose credit
is exact by construction lifts the mean, and one aligned layer beside dead ones looks like weak alignment everywhere.
Instead: report the cosine of each layer with its norms, leave exact layers out, and where one number is needed say
which average it is and how much of it comes from the largest layer.
Pitfall: 5, 6, 15
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.expression_kinds import is_cosine, is_over_layers, values_added_in_loops
from walkback.linting.identifier_words import argument, name_of, words_of_name
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

MEAN_CALLS = {"numpy.mean", "numpy.nanmean", "numpy.average", "torch.mean", "torch.nanmean", "statistics.mean"}
MEAN_CALLS |= {"statistics.fmean"}
_MEAN_WORDS = {"mean", "average", "avg"}
STACKING_CALLS = {
    "torch.stack",
    "torch.tensor",
    "torch.as_tensor",
    "torch.cat",
    "numpy.array",
    "numpy.stack",
    "numpy.asarray",
    "pandas.Series",
}


def find(source: Source) -> Iterator[Hit]:
    for node in source.nodes(ast.expr):
        values = _averaged_values(source, node)
        if (values is not None and _is_one_cosine_per_layer(source, values)) or _is_mean_of_running_total(source, node):
            yield node, "cosines are averaged over layers: the mean hides which layer dominates it"


def _averaged_values(source: Source, node: ast.expr) -> ast.expr | None:
    """The values whose mean over all entries an expression computes."""
    match node:
        case ast.Call(args=[values, pattern, kind]) if source.called_name(node) == "einops.reduce":
            kept = str(source.constant(pattern)).partition("->")[2].strip()
            return values if not kept and source.constant(kind) == "mean" else None
        case ast.Call() if argument(node, 1, "dim", "axis") is not None:
            return None
        case ast.Call(args=[values]) if source.function(node) and words_of_name(node) & _MEAN_WORDS:
            return values
        case ast.Call(args=[values, *_]) if source.called_name(node) in MEAN_CALLS:
            return values
        case ast.Call(func=ast.Attribute(value=values, attr="mean"), args=[]) if not source.called_name(node):
            return values
        case ast.BinOp(op=ast.Div(), left=ast.Call(args=[values, *_]) as total, right=ast.Call() as count):
            if source.called_name(count) != "len":
                return None
            if source.called_name(total) in ("sum", "math.fsum"):
                return values
            if source.called_name(total) == "functools.reduce" and len(total.args) > 1:
                return total.args[1]
    return None


def _is_mean_of_running_total(source: Source, node: ast.expr) -> bool:
    """Whether a node is `total / count` where a loop over layers adds cosines to `total`."""
    match node:
        case ast.BinOp(op=ast.Div(), left=ast.Name(id=name), right=ast.Name() | ast.Call()):
            for added in source.scope_nodes(source.enclosing_scope(node)):
                match added:
                    case ast.AugAssign(target=ast.Name(id=target), op=ast.Add(), value=value) if target == name:
                        loop = next((o for o in source.ancestors(added) if isinstance(o, ast.For)), None)
                        if loop is not None and is_over_layers(source, loop) and is_cosine(source, value):
                            return True
    return False


def _is_one_cosine_per_layer(source: Source, values: ast.expr, depth: int = 8) -> bool:
    if not depth:
        return False
    if isinstance(values, ast.Call):
        if source.called_name(values) in STACKING_CALLS and values.args:
            return _is_one_cosine_per_layer(source, values.args[0], depth - 1)
        if isinstance(values.func, ast.Attribute) and values.func.attr == "values":
            return _is_one_cosine_per_layer(source, values.func.value, depth - 1)
        if source.called_name(values) in ("list", "tuple") and values.args:
            return _is_one_cosine_per_layer(source, values.args[0], depth - 1)
    if isinstance(values, ast.ListComp | ast.GeneratorExp | ast.DictComp):
        item = values.value if isinstance(values, ast.DictComp) else values.elt
        return any(is_over_layers(source, loop) for loop in values.generators) and is_cosine(source, item)
    if isinstance(values, ast.Attribute) and name_of(values.value) == "self":
        return any(
            is_over_layers(source, loop) and is_cosine(source, value)
            for loop, value in _added_to_attribute(source, values.attr)
        )
    if isinstance(values, ast.Name):
        bindings = source.bindings(values, values.id)
        passed = [v for b in bindings if isinstance(b.node, ast.arg) for v in source.passed_values(b.node)]
        if any(_is_one_cosine_per_layer(source, value, depth - 1) for value in passed):
            return True
        assigned = [binding.value for binding in bindings]
        if any(
            isinstance(v, ast.ListComp | ast.DictComp | ast.Call) and _is_one_cosine_per_layer(source, v, depth - 1)
            for v in assigned
        ):
            return True
        added = values_added_in_loops(source, values)
        of_cosines = [loop for loop, value in added if is_cosine(source, values) or is_cosine(source, value)]
        return any(is_over_layers(source, loop) for loop in of_cosines)
    return False


def _added_to_attribute(source: Source, name: str) -> Iterator[tuple[ast.For, ast.expr]]:
    """(loop, value) of every `self.<name>.append(value)` in a loop."""
    for call in source.nodes(ast.Call):
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=attr), attr="append"),
                args=[value],
            ) if attr == name:
                loop = next((outer for outer in source.ancestors(call) if isinstance(outer, ast.For)), None)
                if loop is not None:
                    yield loop, value


RULE = Rule.of("WB005", __doc__, find)

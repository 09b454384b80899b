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
from walkback.linting.identifier_words import argument
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

MEAN_CALLS = {"numpy.mean", "numpy.nanmean", "numpy.average", "torch.mean", "torch.nanmean", "statistics.mean"}
MEAN_CALLS |= {"statistics.fmean"}
STACKING_CALLS = {
    "torch.stack",
    "torch.tensor",
    "torch.as_tensor",
    "torch.cat",
    "numpy.array",
    "numpy.stack",
    "numpy.asarray",
}


def find(source: Source) -> Iterator[Hit]:
    for node in source.nodes(ast.expr):
        values = _averaged_values(source, node)
        if values is not None and _is_one_cosine_per_layer(source, values):
            yield node, "cosines are averaged over layers: the mean hides which layer dominates it"


def _averaged_values(source: Source, node: ast.expr) -> ast.expr | None:
    """The values whose mean over all entries an expression computes."""
    match node:
        case ast.Call() if argument(node, 1, "dim", "axis") is not None:
            return None
        case ast.Call(args=[values, *_]) if source.called_name(node) in MEAN_CALLS:
            return values
        case ast.Call(func=ast.Attribute(value=values, attr="mean"), args=[]) if not source.called_name(node):
            return values
        case ast.BinOp(op=ast.Div(), left=ast.Call(args=[values, *_]) as total, right=ast.Call() as count):
            if source.called_name(total) in ("sum", "math.fsum") and source.called_name(count) == "len":
                return values
    return None


def _is_one_cosine_per_layer(source: Source, values: ast.expr) -> bool:
    if isinstance(values, ast.Call):
        if source.called_name(values) in STACKING_CALLS and values.args:
            return _is_one_cosine_per_layer(source, values.args[0])
        if isinstance(values.func, ast.Attribute) and values.func.attr == "values":
            return _is_one_cosine_per_layer(source, values.func.value)
        if source.called_name(values) in ("list", "tuple") and values.args:
            return _is_one_cosine_per_layer(source, values.args[0])
    if isinstance(values, ast.ListComp | ast.GeneratorExp | ast.DictComp):
        item = values.value if isinstance(values, ast.DictComp) else values.elt
        return any(is_over_layers(source, loop) for loop in values.generators) and is_cosine(source, item)
    if isinstance(values, ast.Name):
        assigned = [binding.value for binding in source.bindings(values, values.id)]
        if any(isinstance(v, ast.ListComp | ast.DictComp) and _is_one_cosine_per_layer(source, v) for v in assigned):
            return True
        added = values_added_in_loops(source, values)
        of_cosines = [loop for loop, value in added if is_cosine(source, values) or is_cosine(source, value)]
        return any(is_over_layers(source, loop) for loop in of_cosines)
    return False


RULE = Rule.of("WB005", __doc__, find)

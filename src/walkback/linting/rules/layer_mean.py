"""One mean of cosines over all layers: it hides which layer carries it, and another average gives another number.

Why: four usual ways of averaging differ several-fold on the same network and can differ in sign, a layer whose credit
is exact by construction lifts the mean, and one aligned layer beside dead ones reads like weak alignment everywhere.
Instead: report the cosine of each layer with its norms, leave exact layers out, and where one number is needed say
which average it is and how much of it the largest layer carries.
Pitfall: 5, 6, 15
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from walkback.linting.meaning import filled, is_cosine, is_over_layers
from walkback.linting.names import argument
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

MEANS = {"numpy.mean", "numpy.nanmean", "numpy.average", "torch.mean", "torch.nanmean", "statistics.mean"}
MEANS |= {"statistics.fmean"}
STACKS = {"torch.stack", "torch.tensor", "torch.as_tensor", "torch.cat", "numpy.array", "numpy.stack", "numpy.asarray"}


def find(source: Source) -> Iterator[Hit]:
    for node in source.all(ast.expr):
        values = _averaged(source, node)
        if values is not None and _is_one_cosine_per_layer(source, values):
            yield node, "cosines are averaged over layers: the mean hides which layer carries it"


def _averaged(source: Source, node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Call() if argument(node, 1, "dim", "axis") is not None:
            return None
        case ast.Call(args=[values, *_]) if source.calls(node) in MEANS:
            return values
        case ast.Call(func=ast.Attribute(value=values, attr="mean"), args=[]) if not source.calls(node):
            return values
        case ast.BinOp(op=ast.Div(), left=ast.Call(args=[values, *_]) as total, right=ast.Call() as count):
            if source.calls(total) in ("sum", "math.fsum") and source.calls(count) == "len":
                return values
    return None


def _is_one_cosine_per_layer(source: Source, values: ast.expr) -> bool:
    if isinstance(values, ast.Call):
        if source.calls(values) in STACKS and values.args:
            return _is_one_cosine_per_layer(source, values.args[0])
        if isinstance(values.func, ast.Attribute) and values.func.attr == "values":
            return _is_one_cosine_per_layer(source, values.func.value)
        if source.calls(values) in ("list", "tuple") and values.args:
            return _is_one_cosine_per_layer(source, values.args[0])
    if isinstance(values, ast.ListComp | ast.GeneratorExp | ast.DictComp):
        item = values.value if isinstance(values, ast.DictComp) else values.elt
        return any(is_over_layers(source, loop) for loop in values.generators) and is_cosine(source, item)
    if isinstance(values, ast.Name):
        made = [binding.value for binding in source.bindings(values, values.id)]
        if any(isinstance(v, ast.ListComp | ast.DictComp) and _is_one_cosine_per_layer(source, v) for v in made):
            return True
        put = filled(source, values)
        of_cosines = [loop for loop, value in put if is_cosine(source, values) or is_cosine(source, value)]
        return any(is_over_layers(source, loop) for loop in of_cosines)
    return False


RULE = Rule.of("WB005", __doc__, find)

"""What an expression most likely is: a gradient, a cosine, a norm, something of many seeds. By call, then by name.

Rules that must not raise false alarms ask these questions instead of matching text. An unclear answer is "no".
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable

from walkback.linting.names import (
    ALIGNMENT,
    COSINE_WORDS,
    GRADIENT,
    LAYER_WORDS,
    NOT_A_COSINE,
    NOT_A_GRADIENT,
    SEED_WORDS,
    all_words,
    argument,
    constant,
    label_words,
    name_of,
    name_words,
)
from walkback.linting.source import Source

Test = Callable[[ast.expr], bool | None]
"""Whether an expression is such a thing by itself; None where its parts have to be asked."""


GRADIENT_CALLS = {"torch.autograd.grad", "torch.func.grad", "torch.func.vjp", "torch.autograd.functional.vjp"}
COSINE_CALL = "torch.nn.functional.cosine_similarity"
COSINE_CLASS = "torch.nn.CosineSimilarity"
TRIGONOMETRY = re.compile(r"^(torch|math|numpy|cmath|jax\.numpy|tensorflow|tensorflow\.math)\.(cos|cosh)$")
NORM_CALLS = {"torch.norm", "torch.linalg.norm", "torch.linalg.vector_norm", "numpy.linalg.norm"}

# What keeps a thing what it is: the flattened gradient is a gradient, the mean of cosines is a cosine.
PASSES_METHOD = {"detach", "clone", "copy", "double", "float", "half", "to", "cpu", "cuda", "type", "astype", "numpy"}
PASSES_METHOD |= {"view", "reshape", "flatten", "ravel", "squeeze", "unsqueeze", "contiguous", "t", "transpose"}
PASSES_METHOD |= {"permute", "mean", "sum", "item", "tolist", "expand", "narrow", "chunk", "split", "values", "items"}
PASSES_CALL = {f"torch.{name}" for name in ("cat", "concat", "stack", "hstack", "tensor", "as_tensor", "mean", "sum")}
PASSES_CALL |= {f"torch.{name}" for name in ("flatten", "reshape", "squeeze", "nn.utils.parameters_to_vector")}
PASSES_CALL |= {f"numpy.{name}" for name in ("array", "asarray", "concatenate", "stack", "hstack", "mean", "nanmean")}
PASSES_CALL |= {"numpy.ravel", "numpy.squeeze", "list", "tuple", "float", "sum", "statistics.mean", "statistics.fmean"}


def holds(source: Source, node: ast.expr, test: Test) -> bool:
    """Whether `node` is, or is by reshaping, picking, stacking or binding made of, what `test` looks for."""
    return _holds(source, node, test, {}, 12)


def _holds(source: Source, node: ast.expr, test: Test, asked: dict[ast.AST, bool], depth: int) -> bool:
    if node not in asked:
        asked[node] = False  # What leads back to itself is nothing.
        verdict = test(node)
        asked[node] = _part_holds(source, node, test, asked, depth - 1) if verdict is None and depth else bool(verdict)
    return asked[node]


def _part_holds(source: Source, node: ast.expr, test: Test, asked: dict[ast.AST, bool], depth: int) -> bool:
    def also(part: ast.expr) -> bool:
        return _holds(source, part, test, asked, depth)

    match node:
        case ast.Name(id=name):
            for binding in source.bindings(node, name):
                # A parameter is what the calls in this file pass for it; its default says nothing.
                own = [binding.value] if binding.value is not None else []
                values = source.passed(binding.at) if isinstance(binding.at, ast.arg) else own
                if any(also(value) for value in values):
                    return True
            return False
        case ast.Subscript(value=part) | ast.Starred(value=part) | ast.UnaryOp(operand=part):
            return also(part)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return bool(parts) and all(also(part) for part in parts)
        case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part) | ast.DictComp(value=part):
            return also(part)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            return also(left) or (isinstance(node.op, ast.Mult) and also(right))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return also(left) and also(right)
        case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in PASSES_METHOD and not source.calls(
            node
        ):
            return also(owner)
        case ast.Call(args=[first, *_]) if source.calls(node) in PASSES_CALL:
            return also(first)
    return False


def is_gradient(source: Source, node: ast.expr) -> bool:
    def test(part: ast.expr) -> bool | None:
        if isinstance(part, ast.Attribute) and part.attr == "grad":
            return True
        if source.calls(part) in GRADIENT_CALLS:
            return True
        if isinstance(part, ast.Name | ast.Attribute):
            named = label_words(part)
            if named & GRADIENT and not named & NOT_A_GRADIENT:
                return True
        return None

    return holds(source, node, test)


def is_cosine_call(source: Source, node: ast.AST) -> bool:
    """A call that computes a cosine between vectors; not trigonometry and not a learning-rate schedule."""
    if not isinstance(node, ast.Call):
        return False
    called = source.calls(node)
    if called == COSINE_CALL or cosine_instance(source, node) is not None:
        return True
    named = label_words(node)
    return bool(
        len(node.args) + len(node.keywords) >= 2
        and named & COSINE_WORDS
        and not named & NOT_A_COSINE
        and not TRIGONOMETRY.match(called)
        and called != COSINE_CLASS
    )


def cosine_instance(source: Source, node: ast.AST) -> ast.Call | None:
    """The `nn.CosineSimilarity(...)` whose instance a call calls."""
    if not isinstance(node, ast.Call):
        return None
    match node.func:
        case ast.Call():
            makers: Iterable[ast.expr | None] = [node.func]
        case ast.Name(id=name):
            makers = [binding.value for binding in source.bindings(node, name)]
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            makers = source.attribute_values(name)
        case _:
            makers = []
    return next((m for m in makers if isinstance(m, ast.Call) and source.calls(m) == COSINE_CLASS), None)


def is_cosine(source: Source, node: ast.expr) -> bool:
    """A cosine, by the call that made it or by its name; alignments count where gradients are about."""

    def test(part: ast.expr) -> bool | None:
        if is_cosine_call(source, part):
            return True
        if isinstance(part, ast.Name | ast.Attribute):
            named = label_words(part)
            if named & NOT_A_COSINE or _is_angle_of_something_else(source, part):
                return False
            if named & COSINE_WORDS or (named & ALIGNMENT and sees_gradients(source)):
                return True
        return None

    return holds(source, node, test)


def _is_angle_of_something_else(source: Source, part: ast.Name | ast.Attribute) -> bool:
    """`cos, sin = ...` of rotary embeddings, `cos = torch.cos(angle)`."""
    if not isinstance(part, ast.Name):
        return False
    if any(source.bindings(part, twin) for twin in (part.id.replace("cos", "sin"),) if twin != part.id):
        return True
    made = [binding.value for binding in source.bindings(part, part.id)]
    return any(
        isinstance(value, ast.Call) and name_of(value) in ("cos", "cosh") and len(value.args) < 2 for value in made
    )


def is_norm_call(source: Source, node: ast.AST) -> bool:
    """`x.norm(...)`, `torch.norm(x)`, `np.linalg.norm(x)` and the like."""
    if not isinstance(node, ast.Call):
        return False
    called = source.calls(node)
    if called:
        return called in NORM_CALLS
    # `self.norm(x)` is a layer; a tensor's own norm takes no tensor.
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr == "norm"
    return is_method and name_of(node.func.value) != "self" and all(_is_plain(argument) for argument in node.args)  # type: ignore[attr-defined]


def _is_plain(node: ast.expr) -> bool:
    return constant(node) is not None or isinstance(node, ast.Constant | ast.Tuple | ast.Starred)


def norm_operand(source: Source, node: ast.Call) -> ast.expr | None:
    """What a norm is taken of."""
    if source.calls(node):
        return node.args[0] if node.args else argument(node, None, "input", "x", "A")
    return node.func.value if isinstance(node.func, ast.Attribute) else None


def is_norm(source: Source, node: ast.expr) -> bool:
    """A norm by its call, or a plain name that says so."""

    def test(part: ast.expr) -> bool | None:
        if is_norm_call(source, part) or (isinstance(part, ast.Name) and label_words(part) & {"norm", "norms"}):
            return True
        return None

    return holds(source, node, test)


def number_of(source: Source, node: ast.expr | None, depth: int = 3) -> float | None:
    """A number spelt out here or where its name was bound (also as a parameter's default, or as `self.name`)."""
    match node:
        case ast.Name(id=name):
            bound = [binding.value for binding in source.bindings(node, name)]
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            bound = list(source.attribute_values(name))
        case _:
            return constant(node)
    values = {number_of(source, value, depth - 1) for value in bound} if depth else set()
    return values.pop() if len(values) == 1 else None


def is_dtype(source: Source, node: ast.expr | None, dtype: str) -> bool:
    return node is not None and (source.dotted(node) == f"torch.{dtype}" or getattr(node, "value", None) == dtype)


def takes_gradient(source: Source, node: ast.AST) -> bool:
    """`torch.autograd.grad(...)`, `loss.backward()`, a read of `p.grad`."""
    if isinstance(node, ast.Call):
        if source.calls(node) in GRADIENT_CALLS:
            return True
        return isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
    return isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Load)


def compares_gradients(source: Source, node: ast.AST) -> bool:
    """A cosine of which at least one side is a gradient."""
    return is_cosine_call(source, node) and any(is_gradient(source, part) for part in node.args)  # type: ignore[attr-defined]


def sees_gradients(source: Source) -> bool:
    """Whether gradients are taken anywhere in the file."""
    if "sees_gradients" not in source.remembered:
        source.remembered["sees_gradients"] = any(takes_gradient(source, node) for node in ast.walk(source.tree))
    return source.remembered["sees_gradients"]


def measures(source: Source) -> bool:
    """Whether the file measures alignment: a cosine of gradients, or a function of that name beside gradients."""
    if "measures" not in source.remembered:
        defined = source.all(ast.FunctionDef)
        named = any(name_words(function.name) & ALIGNMENT for function in defined) and sees_gradients(source)
        source.remembered["measures"] = named or any(compares_gradients(source, node) for node in source.all(ast.Call))
    return source.remembered["measures"]


def is_of_seeds(source: Source, node: ast.expr) -> bool:
    """Something with one value for each seed or run."""
    if all_words(node) & SEED_WORDS:
        return True
    if not isinstance(node, ast.Name):
        return False
    for binding in source.bindings(node, node.id):
        if (
            binding.value is not None
            and isinstance(binding.value, ast.Call | ast.ListComp)
            and all_words(binding.value) & SEED_WORDS
        ):
            return True
    return any(words_of_loop(loop) & SEED_WORDS for loop, _ in filled(source, node))


def words_of_loop(loop: ast.For) -> set[str]:
    return all_words(loop.target) | all_words(loop.iter)


def is_over_layers(source: Source, loop: ast.For | ast.comprehension) -> bool:
    """A loop over layers by its words, or over the names of stored gradients."""
    if (all_words(loop.target) | all_words(loop.iter)) & LAYER_WORDS:
        return True
    return bool(all_words(loop.target) & {"name", "param", "module", "key"}) and is_gradient(source, loop.iter)


def filled(source: Source, name: ast.Name) -> list[tuple[ast.For, ast.expr]]:
    """What `name.append(value)` or `name[...] = value` puts in, with the innermost loop it stands in."""
    found = []
    for node in source.own(source.scope(name)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=id), attr="append"), args=[value]) if id == name.id:
                put: ast.expr | None = value
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=id))], value=value) if id == name.id:
                put = value
            case _:
                put = None
        loop = next((outer for outer in source.above(node) if isinstance(outer, ast.For)), None) if put else None
        if put is not None and loop is not None:
            found.append((loop, put))
    return found

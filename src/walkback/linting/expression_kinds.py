"""Detect what an expression most likely is: a gradient, a cosine, a norm, values per seed. By call, then by name.

Rules use these functions instead of matching text, to avoid false positives. An unclear case gives False.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable

from walkback.linting.identifier_words import (
    ALIGNMENT_WORDS,
    COSINE_WORDS,
    GRADIENT_WORDS,
    LAYER_WORDS,
    NOT_COSINE_WORDS,
    NOT_GRADIENT_WORDS,
    SEED_WORDS,
    argument,
    literal_number,
    name_of,
    split_identifier,
    words_of_all_names,
    words_of_name,
)
from walkback.linting.source import Source

ExpressionTest = Callable[[ast.expr], bool | None]
"""True or False where the expression alone decides; None where its operands or bindings have to be tested."""

GRADIENT_CALLS = {"torch.autograd.grad", "torch.func.grad", "torch.func.vjp", "torch.autograd.functional.vjp"}
GRADIENT_CALLS |= {"jax.grad", "jax.value_and_grad", "jax.vjp"}
COSINE_CALL = "torch.nn.functional.cosine_similarity"
COSINE_CLASS = "torch.nn.CosineSimilarity"
TRIGONOMETRY = re.compile(r"^(torch|math|numpy|cmath|jax\.numpy|tensorflow|tensorflow\.math)\.(cos|cosh)$")
NORM_CALLS = {"torch.norm", "torch.linalg.norm", "torch.linalg.vector_norm", "numpy.linalg.norm"}

# A flattened gradient is a gradient and the mean of cosines is a cosine: these methods and calls preserve the kind.
SAME_KIND_METHODS = {"detach", "clone", "copy", "double", "float", "half", "to", "cpu", "cuda", "type", "astype"}
SAME_KIND_METHODS |= {"view", "reshape", "flatten", "ravel", "squeeze", "unsqueeze", "contiguous", "t", "transpose"}
SAME_KIND_METHODS |= {"permute", "mean", "sum", "item", "tolist", "expand", "narrow", "chunk", "split", "values"}
SAME_KIND_METHODS |= {"numpy", "items"}
SAME_KIND_CALLS = {f"torch.{name}" for name in ("cat", "concat", "stack", "hstack", "tensor", "as_tensor", "mean")}
SAME_KIND_CALLS |= {f"torch.{name}" for name in ("sum", "flatten", "reshape", "squeeze")}
SAME_KIND_CALLS |= {f"numpy.{name}" for name in ("array", "asarray", "concatenate", "stack", "hstack", "mean")}
SAME_KIND_CALLS |= {"numpy.nanmean", "numpy.ravel", "numpy.squeeze", "torch.nn.utils.parameters_to_vector"}
SAME_KIND_CALLS |= {"einops.rearrange", "numpy.average", "torch.nanmean", "numpy.abs", "torch.abs"}
SAME_KIND_CALLS |= {"list", "tuple", "float", "sum", "statistics.mean", "statistics.fmean"}


def derives_from(source: Source, node: ast.expr, test: ExpressionTest) -> bool:
    """Whether `test` accepts `node`, or what `node` was made from by reshaping, indexing, stacking or assignment."""
    return _derives_from(source, node, test, {}, 12)


def _derives_from(
    source: Source, node: ast.expr, test: ExpressionTest, answers: dict[ast.AST, bool], depth: int
) -> bool:
    if node not in answers:
        answers[node] = False  # For a name that is bound to an expression of itself.
        answer = test(node)
        answers[node] = (
            _part_derives_from(source, node, test, answers, depth - 1) if answer is None and depth else bool(answer)
        )
    return answers[node]


def _part_derives_from(
    source: Source, node: ast.expr, test: ExpressionTest, answers: dict[ast.AST, bool], depth: int
) -> bool:
    def recurse(part: ast.expr) -> bool:
        return _derives_from(source, part, test, answers, depth)

    match node:
        case ast.Name(id=name):
            for binding in source.bindings(node, name):
                # A parameter has the values that calls in this file pass for it; its default is not used.
                assigned = [binding.value] if binding.value is not None else []
                values = source.passed_values(binding.node) if isinstance(binding.node, ast.arg) else assigned
                if any(recurse(value) for value in values):
                    return True
            return False
        case ast.Subscript(value=part) | ast.Starred(value=part) | ast.UnaryOp(operand=part):
            return recurse(part)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return bool(parts) and all(recurse(part) for part in parts)
        case ast.ListComp(elt=part) | ast.GeneratorExp(elt=part) | ast.DictComp(value=part):
            return recurse(part)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            return recurse(left) or (isinstance(node.op, ast.Mult) and recurse(right))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return recurse(left) and recurse(right)
        case ast.Call(func=ast.Attribute(value=owner, attr=method)) if (
            method in SAME_KIND_METHODS and not source.called_name(node)
        ):
            return recurse(owner)
        case ast.Call(args=[first, *_]) if source.called_name(node) in SAME_KIND_CALLS:
            return recurse(first)
    return False


def is_gradient(source: Source, node: ast.expr) -> bool:
    """Whether a value is a gradient or a credit, by its call, by `.grad` or by its name."""

    def test(part: ast.expr) -> bool | None:
        if isinstance(part, ast.Attribute) and part.attr == "grad":
            return True
        if source.called_name(part) in GRADIENT_CALLS:
            return True
        # torch.func.grad(f)(x)
        if isinstance(part, ast.Call) and source.called_name(part.func) in GRADIENT_CALLS:
            return True
        if isinstance(part, ast.Name | ast.Attribute):
            named = words_of_name(part)
            if named & GRADIENT_WORDS and not named & NOT_GRADIENT_WORDS:
                return True
        return None

    return derives_from(source, node, test)


def is_cosine_call(source: Source, node: ast.AST) -> bool:
    """Whether a node is a call that computes a cosine between vectors, not trigonometry or a learning-rate schedule."""
    if not isinstance(node, ast.Call):
        return False
    called = source.called_name(node)
    if called == COSINE_CALL or cosine_module_of(source, node) is not None:
        return True
    named = words_of_name(node)
    return bool(
        len(node.args) + len(node.keywords) >= 2
        and named & COSINE_WORDS
        and not named & NOT_COSINE_WORDS
        and not TRIGONOMETRY.match(called)
        and called != COSINE_CLASS
    )


def cosine_module_of(source: Source, node: ast.AST) -> ast.Call | None:
    """The `nn.CosineSimilarity(...)` that made the module which a call calls; None for other calls."""
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
    return next((m for m in makers if isinstance(m, ast.Call) and source.called_name(m) == COSINE_CLASS), None)


def is_cosine(source: Source, node: ast.expr) -> bool:
    """Whether a value is a cosine, by its call or its name; "alignment" is one where the file takes gradients."""

    def test(part: ast.expr) -> bool | None:
        if is_cosine_call(source, part):
            return True
        is_key = isinstance(part, ast.Subscript) and isinstance(part.slice, ast.Constant)
        if isinstance(part, ast.Name | ast.Attribute) or is_key:
            named = words_of_name(part)
            if named & NOT_COSINE_WORDS or _is_trigonometric_cosine(source, part):
                return False
            if named & COSINE_WORDS or (named & ALIGNMENT_WORDS and file_takes_gradients(source)):
                return True
        return None

    return derives_from(source, node, test)


def _is_trigonometric_cosine(source: Source, part: ast.expr) -> bool:
    """Whether a name is the cosine of an angle: `cos, sin = ...` of rotary embeddings, `cos = torch.cos(angle)`."""
    if not isinstance(part, ast.Name):
        return False
    if any(source.bindings(part, twin) for twin in (part.id.replace("cos", "sin"),) if twin != part.id):
        return True
    values = [binding.value for binding in source.bindings(part, part.id)]
    return any(
        isinstance(value, ast.Call) and name_of(value) in ("cos", "cosh") and len(value.args) < 2 for value in values
    )


def is_norm_call(source: Source, node: ast.AST) -> bool:
    """Whether a node is `x.norm(...)`, `torch.norm(x)`, `np.linalg.norm(x)` or the like."""
    if not isinstance(node, ast.Call):
        return False
    called = source.called_name(node)
    if called:
        return called in NORM_CALLS
    # `self.norm(x)` is a layer; the norm method of a tensor takes no tensor.
    is_method = isinstance(node.func, ast.Attribute) and node.func.attr == "norm"
    return is_method and name_of(node.func.value) != "self" and all(_is_literal(argument) for argument in node.args)  # type: ignore[attr-defined]


def _is_literal(node: ast.expr) -> bool:
    return literal_number(node) is not None or isinstance(node, ast.Constant | ast.Tuple | ast.Starred)


def norm_operand(source: Source, node: ast.Call) -> ast.expr | None:
    """The expression that a norm call measures."""
    if source.called_name(node):
        return node.args[0] if node.args else argument(node, None, "input", "x", "A")
    return node.func.value if isinstance(node.func, ast.Attribute) else None


def is_norm(source: Source, node: ast.expr) -> bool:
    """Whether a value is a norm, by its call or by a name that contains "norm"."""

    def test(part: ast.expr) -> bool | None:
        if is_norm_call(source, part) or (isinstance(part, ast.Name) and words_of_name(part) & {"norm", "norms"}):
            return True
        # A function of the user's own: norm(u).
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "norm" and part.args:
            return True
        return None

    return derives_from(source, node, test)


def is_product_of_norms(source: Source, node: ast.expr) -> bool:
    """Whether an expression is norm * norm, the denominator of a cosine, or a name bound to nothing else."""
    if isinstance(node, ast.Name):
        values = [b.value for b in source.bindings(node, node.id) if b.value is not None and b.value is not node]
        return bool(values) and all(
            not isinstance(value, ast.Name) and is_product_of_norms(source, value) for value in values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return is_norm(source, node.left) and is_norm(source, node.right)
    return False


def is_cosine_by_hand(source: Source, node: ast.AST) -> bool:
    """Whether an expression is dot / (norm * norm) or dot / norm / norm."""
    match node:
        case ast.BinOp(op=ast.Div(), left=ast.BinOp(op=ast.Div(), right=one), right=other):
            return is_norm(source, one) and is_norm(source, other)
        case ast.BinOp(op=ast.Div(), right=denominator):
            return is_product_of_norms(source, denominator)
    return False


def sum_of_squares_operand(source: Source, node: ast.expr) -> ast.expr | None:
    """The vector of which an expression is the sum of squares: (z**2).sum(-1), z.pow(2).sum(), einsum(..., z, z)."""
    match node:
        case ast.Call(func=ast.Attribute(value=squares, attr="sum")) if not source.called_name(node):
            return square_operand(source, squares)
        case ast.Call(args=[squares, *_]) if source.called_name(node) in ("torch.sum", "numpy.sum"):
            return square_operand(source, squares)
        case ast.Call(args=[_, one, other]) if source.called_name(node) in ("torch.einsum", "numpy.einsum"):
            return one if ast.dump(one) == ast.dump(other) else None
    return None


def square_operand(source: Source, node: ast.expr) -> ast.expr | None:
    """The x of x**2, x * x, x.square() or x.pow(2)."""
    match node:
        case ast.BinOp(left=operand, op=ast.Pow(), right=power) if literal_number(power) == 2:
            return operand
        case ast.BinOp(left=one, op=ast.Mult(), right=other) if ast.dump(one) == ast.dump(other):
            return one
        case ast.Call(func=ast.Attribute(value=operand, attr="square")) if not source.called_name(node):
            return operand
        case ast.Call(func=ast.Attribute(value=operand, attr="pow"), args=[power]) if literal_number(power) == 2:
            return operand
        case ast.Call(args=[operand]) if source.called_name(node) in ("torch.square", "numpy.square"):
            return operand
    return None


def square_root_operand(source: Source, node: ast.AST) -> ast.expr | None:
    """The operand of a square root, as a function or a method."""
    match node:
        case ast.Call(args=[operand]) if source.called_name(node) in ("torch.sqrt", "numpy.sqrt", "math.sqrt"):
            return operand
        case ast.Call(func=ast.Attribute(value=operand, attr="sqrt" | "sqrt_"), args=[]) if not source.called_name(
            node
        ):
            return operand
    return None


def resolve_number(source: Source, node: ast.expr | None, depth: int = 3) -> float | None:
    """The number that an expression has, as a literal or through one binding (a parameter's default, `self.name`)."""
    match node:
        case ast.Name(id=name):
            assigned = [binding.value for binding in source.bindings(node, name)]
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            assigned = list(source.attribute_values(name))
        case _:
            return literal_number(node)
    values = {resolve_number(source, value, depth - 1) for value in assigned} if depth else set()
    return values.pop() if len(values) == 1 else None


def is_dtype(source: Source, node: ast.expr | None, dtype: str) -> bool:
    return node is not None and (
        source.qualified_name(node) in (f"torch.{dtype}", f"numpy.{dtype}") or getattr(node, "value", None) == dtype
    )


def takes_gradient(source: Source, node: ast.AST) -> bool:
    """Whether a node computes or reads a gradient: `torch.autograd.grad(...)`, `loss.backward()`, `p.grad`."""
    if isinstance(node, ast.Call):
        if source.called_name(node) in GRADIENT_CALLS:
            return True
        return isinstance(node.func, ast.Attribute) and node.func.attr == "backward"
    return isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.ctx, ast.Load)


def compares_gradients(source: Source, node: ast.AST) -> bool:
    """Whether a node is a cosine call with a gradient on at least one side."""
    return is_cosine_call(source, node) and any(is_gradient(source, part) for part in node.args)  # type: ignore[attr-defined]


def file_takes_gradients(source: Source) -> bool:
    """Whether the file computes or reads gradients anywhere."""
    if "takes_gradients" not in source.file_answers:
        source.file_answers["takes_gradients"] = any(takes_gradient(source, node) for node in ast.walk(source.tree))
    return source.file_answers["takes_gradients"]


def file_measures_alignment(source: Source) -> bool:
    """Whether the file has a cosine of gradients, or takes gradients and defines a function named after alignment."""
    if "measures_alignment" not in source.file_answers:
        source.file_answers["measures_alignment"] = any(
            _is_alignment_function(source, function) for function in source.nodes(ast.FunctionDef)
        ) or any(compares_gradients(source, node) for node in source.nodes(ast.Call))
    return source.file_answers["measures_alignment"]


def _is_alignment_function(source: Source, function: ast.FunctionDef) -> bool:
    """Whether a function is named after alignment in a file that takes gradients, or computes a cosine of gradients."""
    named = split_identifier(function.name)
    if named & ALIGNMENT_WORDS and file_takes_gradients(source):
        return True
    if not named & (ALIGNMENT_WORDS | COSINE_WORDS):
        return False
    given = [
        a for a in function.args.args if words_of_name(a) & GRADIENT_WORDS and not words_of_name(a) & NOT_GRADIENT_WORDS
    ]
    return bool(given) and any(is_cosine_by_hand(source, node) for node in source.scope_nodes(function))


def has_value_per_seed(source: Source, node: ast.expr) -> bool:
    """Whether a value has one entry for each seed or run, by its names or the loop that fills it."""
    if words_of_all_names(node) & SEED_WORDS:
        return True
    if not isinstance(node, ast.Name):
        return False
    for binding in source.bindings(node, node.id):
        if (
            binding.value is not None
            and isinstance(binding.value, ast.Call | ast.ListComp)
            and words_of_all_names(binding.value) & SEED_WORDS
        ):
            return True
    return any(loop_words(loop) & SEED_WORDS for loop, _ in values_added_in_loops(source, node))


def loop_words(loop: ast.For) -> set[str]:
    return words_of_all_names(loop.target) | words_of_all_names(loop.iter)


def is_over_layers(source: Source, loop: ast.For | ast.comprehension) -> bool:
    """Whether a loop is over layers, by its names, or over the names of stored gradients."""
    if (words_of_all_names(loop.target) | words_of_all_names(loop.iter)) & LAYER_WORDS:
        return True
    return bool(words_of_all_names(loop.target) & {"name", "param", "module", "key"}) and is_gradient(source, loop.iter)


def values_added_in_loops(source: Source, name: ast.Name) -> list[tuple[ast.For, ast.expr]]:
    """(loop, value) of every `name.append(value)` and `name[...] = value` in a loop; the loop is the innermost one."""
    found = []
    for node in source.scope_nodes(source.enclosing_scope(name)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=id), attr="append"), args=[value]) if id == name.id:
                added: ast.expr | None = value
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=id))], value=value) if id == name.id:
                added = value
            case _:
                added = None
        loop = next((outer for outer in source.ancestors(node) if isinstance(outer, ast.For)), None) if added else None
        if added is not None and loop is not None:
            found.append((loop, added))
    return found

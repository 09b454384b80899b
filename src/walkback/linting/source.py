"""One parsed file: the ancestors of a node, the bindings of a name, and the qualified name of an imported object.

This is not a type checker. A name's bindings are collected per function without regard to branches, which is enough
to resolve `import torch.nn.functional as F`, `g, = torch.autograd.grad(...)` and `for a, g in zip(credits, grads)`.
"""

from __future__ import annotations

import ast
import builtins
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

Node = TypeVar("Node", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


LONGEST_CHECK_S = 20.0
"""Processor seconds after which the check of one file is given up; ordinary files take well under one."""


class CheckTooLong(Exception):  # noqa: N818
    """The check of a file took longer than LONGEST_CHECK_S."""


@dataclass(frozen=True)
class Binding:
    """One binding of a name: by an import, an assignment, a loop, a parameter or a definition."""

    node: ast.AST
    """The statement, comprehension or parameter that binds the name."""
    value: ast.expr | None = None
    is_item: bool = False
    """The name is bound to one item of `value`, not to `value` itself."""
    imported: str | None = None
    """The qualified name of what is imported; None where the binding is not an import."""


@dataclass
class Source:
    """A module's syntax tree with the lookups that the rules share."""

    tree: ast.Module
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    file_answers: dict[str, bool] = field(default_factory=dict)
    """Cached properties of the whole file, such as whether it takes gradients; several rules use them."""
    _nodes_by_kind: dict[type, list[Any]] = field(default_factory=dict)
    _called_names: dict[ast.AST, str] = field(default_factory=dict)
    _give_up_at: float = field(default_factory=lambda: time.process_time() + LONGEST_CHECK_S)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node

    def nodes(self, kind: type[Node], under: ast.AST | None = None) -> list[Node]:
        """All nodes of a kind in source order; with `under`, those of that subtree, breadth first."""
        self._check_time()
        if under is not None:
            return [node for node in ast.walk(under) if isinstance(node, kind)]
        if kind not in self._nodes_by_kind:
            self._nodes_by_kind[kind] = [node for node in self._ordered if isinstance(node, kind)]
        return cast("list[Node]", self._nodes_by_kind[kind])

    def scopes(self) -> list[Scope]:
        """The module and all functions."""
        return [self.tree, *self.nodes(ast.FunctionDef), *self.nodes(ast.AsyncFunctionDef)]

    @cached_property
    def _ordered(self) -> list[ast.AST]:
        """All nodes that have a position, in source order."""
        placed = [node for node in ast.walk(self.tree) if hasattr(node, "lineno")]
        return sorted(placed, key=lambda node: (node.lineno, node.col_offset))  # type: ignore[attr-defined]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes that enclose a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def enclosing_scope(self, node: ast.AST) -> Scope:
        """The innermost function that contains a node, or the module."""
        for outer in self.ancestors(node):
            if isinstance(outer, Scope):
                return outer
        return self.tree

    def scope_nodes(self, scope: Scope) -> list[ast.AST]:
        """The nodes of a function or module without those of functions inside it, in source order."""
        self._check_time()
        return self._nodes_by_scope.get(scope, [])

    @cached_property
    def _nodes_by_scope(self) -> dict[ast.AST, list[ast.AST]]:
        found: dict[ast.AST, list[ast.AST]] = {}
        for node in self._ordered:
            found.setdefault(self.enclosing_scope(node), []).append(node)
        return found

    @cached_property
    def _bindings(self) -> dict[ast.AST, dict[str, list[Binding]]]:
        table: dict[ast.AST, dict[str, list[Binding]]] = {}
        for node in self._ordered:
            for name, binding in _bindings_of(node):
                # A parameter belongs to its function, everything else to the scope that contains it.
                scope = node if isinstance(node, Function) and binding.node is not node else self.enclosing_scope(node)
                table.setdefault(scope, {}).setdefault(name, []).append(binding)
        for names in table.values():
            for bound in names.values():
                bound.sort(key=lambda binding: _position(binding.node))
        return table

    def bindings(self, node: ast.AST, name: str) -> list[Binding]:
        """All bindings of `name` in the innermost scope around `node` that binds it."""
        self._check_time()
        scope: Scope = node if isinstance(node, Scope) else self.enclosing_scope(node)
        while True:
            found = self._bindings.get(scope, {}).get(name)
            if found or scope is self.tree:
                return found or []
            scope = self.enclosing_scope(scope)

    def latest_binding(self, use: ast.Name) -> Binding | None:
        """The last binding before a use of a name, in the same function."""
        self._check_time()
        found = self._bindings.get(self.enclosing_scope(use), {}).get(use.id, [])
        # In `h = normalise(h)` the h on the right has its earlier binding.
        for index in range(bisect_left(found, _position(use), key=lambda b: _position(b.node)) - 1, -1, -1):
            if found[index].node not in self.ancestors(use):
                return found[index]
        return None

    def _check_time(self) -> None:
        """The rules' lookups call this, so that no file keeps a check busy for minutes."""
        if time.process_time() > self._give_up_at:
            raise CheckTooLong

    def passed_values(self, parameter: ast.arg) -> list[ast.expr]:
        """The arguments that calls in this file pass for a parameter, by position or by name."""
        function = self.enclosing_scope(parameter)
        if not isinstance(function, Function):
            return []
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        found = []
        for call in self._calls_by_name.get(function.name, []):
            # A method's first parameter is the object the call is made on.
            skip = isinstance(call.func, ast.Attribute)
            if skip and not (names and names[0] in ("self", "cls")):
                continue
            given = dict(zip(names[skip:], call.args, strict=False))
            given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
            found += [given[parameter.arg]] if parameter.arg in given else []
        return found

    @cached_property
    def _calls_by_name(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = {}
        for call in self.nodes(ast.Call):
            match call.func:
                case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
                    found.setdefault(name, []).append(call)
        return found

    def attribute_values(self, name: str) -> list[ast.expr]:
        """The values assigned to `self.<name>` anywhere in the file."""
        return self._attributes.get(name, [])

    @cached_property
    def _attributes(self) -> dict[str, list[ast.expr]]:
        found: dict[str, list[ast.expr]] = {}
        for node in self.nodes(ast.Assign):
            for target in node.targets:
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    found.setdefault(target.attr, []).append(node.value)
        return found

    def qualified_name(self, node: ast.AST) -> str:
        """The full name of an imported object or a builtin: `F.normalize` gives "torch.nn.functional.normalize".

        Empty for names that are defined in the file. Synonyms are mapped to one spelling.
        """
        attributes: list[str] = []
        for _ in range(_LONGEST_NAME):
            if isinstance(node, ast.Attribute):
                attributes.insert(0, node.attr)
                node = node.value
            elif isinstance(node, ast.Name) and (alias := self._alias_value(node)) is not None:
                node = alias
            else:
                break
        if not isinstance(node, ast.Name):
            return ""
        bindings = self.bindings(node, node.id)
        imported = [binding.imported for binding in bindings if binding.imported]
        first = imported[-1] if imported else node.id if not bindings and hasattr(builtins, node.id) else ""
        return _one_spelling(".".join([first, *attributes])) if first else ""

    def _alias_value(self, name: ast.Name) -> ast.expr | None:
        """The value of `length = torch.linalg.vector_norm`: an attribute or name that is the name's only binding."""
        bindings = self.bindings(name, name.id)
        if len(bindings) != 1 or bindings[0].is_item or not isinstance(bindings[0].node, ast.Assign):
            return None
        value = bindings[0].value
        return value if isinstance(value, ast.Attribute | ast.Name) else None

    def constant(self, node: ast.expr | None) -> object:
        """The value of a literal, or of a name that is bound to one literal only; None for anything else."""
        if isinstance(node, ast.Name):
            values = [binding.value for binding in self.bindings(node, node.id)]
            node = values[0] if len(values) == 1 else None
        return node.value if isinstance(node, ast.Constant) else None

    def function(self, call: ast.Call) -> Function | None:
        """The function of the file that a call calls by its name or as `self.<name>`."""
        match call.func:
            case ast.Name(id=name):
                defined = [binding.node for binding in self.bindings(call, name)]
                return defined[-1] if defined and isinstance(defined[-1], Function) else None
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return self._functions.get(name)
        return None

    @cached_property
    def _functions(self) -> dict[str, Function]:
        return {function.name: function for function in self.scopes() if isinstance(function, Function)}

    def called_name(self, node: ast.AST) -> str:
        """The qualified name of a call's function; empty for a function of the file and for nodes that are no call."""
        if not isinstance(node, ast.Call):
            return ""
        if node not in self._called_names:
            self._called_names[node] = self.qualified_name(node.func)
        return self._called_names[node]


_LONGEST_NAME = 50
"""Attributes and aliases that a name is followed through; a longer chain is no name of a library."""
_PREFIXES = {"jax.numpy.": "numpy.", "torch.Tensor.": "torch.", "jax.scipy.": "scipy."}
SYNONYMS = {
    "torch.cosine_similarity": "torch.nn.functional.cosine_similarity",
    "torch.nn.modules.distance.CosineSimilarity": "torch.nn.CosineSimilarity",
    "torch.functional.norm": "torch.norm",
    "torch.special.softmax": "torch.softmax",
    "torch.nn.functional.softmax": "torch.softmax",
    "torch.half": "torch.float16",
    "torch.double": "torch.float64",
    "torch.clip": "torch.clamp",
    "torch.absolute": "torch.abs",
    "numpy.absolute": "numpy.abs",
    "numpy.half": "numpy.float16",
    "torch.vmap": "torch.func.vmap",
    "jax.nn.softmax": "torch.softmax",
    "scipy.special.softmax": "torch.softmax",
    "jax.nn.one_hot": "torch.nn.functional.one_hot",
}
"""Qualified names of the same object, or of one that behaves alike, mapped to the spelling the rules compare with."""


def _position(node: ast.AST) -> tuple[int, int]:
    return node.lineno, node.col_offset  # type: ignore[attr-defined]


def _one_spelling(name: str) -> str:
    for prefix, other in _PREFIXES.items():
        name = other + name.removeprefix(prefix) if name.startswith(prefix) else name
    return SYNONYMS.get(name, name)


def _bindings_of(node: ast.AST) -> Iterator[tuple[str, Binding]]:
    """The names that a node binds in its scope, each with its binding."""
    match node:
        case ast.Import(names=names):
            for alias in names:
                # `import torch.nn` binds torch; `import torch.nn as nn` binds nn.
                first = alias.name.partition(".")[0]
                yield alias.asname or first, Binding(node, imported=alias.name if alias.asname else first)
        case ast.ImportFrom(module=module, names=names, level=level):
            for alias in names:
                yield alias.asname or alias.name, Binding(node, imported="." * level + f"{module or ''}.{alias.name}")
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                yield from _target_bindings(node, target, value, is_item=False)
        case ast.AnnAssign(target=target, value=value) if value is not None:
            yield from _target_bindings(node, target, value, is_item=False)
        case ast.NamedExpr(target=target, value=value):
            yield target.id, Binding(node, value)
        case ast.AugAssign(target=ast.Name(id=name)):
            yield name, Binding(node)
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
            yield from _target_bindings(node, target, value, is_item=True)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for part in node.generators:
                yield from _target_bindings(node, part.target, part.iter, is_item=True)
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if isinstance(item.optional_vars, ast.Name):
                    yield item.optional_vars.id, Binding(node)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.name, Binding(node)
            positional = [*node.args.posonlyargs, *node.args.args]
            defaults = [None] * (len(positional) - len(node.args.defaults)) + list(node.args.defaults)
            for argument, default in (*zip(positional, defaults, strict=True), *_keyword_only(node)):
                yield argument.arg, Binding(argument, default)
            for rest in (node.args.vararg, node.args.kwarg):
                if rest is not None:
                    yield rest.arg, Binding(rest)
        case ast.ClassDef(name=name):
            yield name, Binding(node)


def _keyword_only(node: Function) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    return zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)


def _target_bindings(
    node: ast.AST, target: ast.expr, value: ast.expr, *, is_item: bool
) -> Iterator[tuple[str, Binding]]:
    """The bindings of `target = value`, or with `is_item` of `for target in value`."""
    if isinstance(target, ast.Starred):
        target = target.value
    if isinstance(target, ast.Name):
        yield target.id, Binding(node, value, is_item)
    elif isinstance(target, ast.Tuple | ast.List):
        for index, inner in enumerate(target.elts):
            part, part_is_item = _unpacked_value(value, index, is_item)
            yield from _target_bindings(node, inner, part, is_item=part_is_item)


def _unpacked_value(value: ast.expr, index: int, is_item: bool) -> tuple[ast.expr, bool]:
    """(expression that the index-th target is bound to, whether it is bound to one item of that expression)."""
    if not is_item:
        if isinstance(value, ast.Tuple | ast.List) and index < len(value.elts):
            return value.elts[index], False
        return value, True
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        if value.func.id == "zip" and index < len(value.args):
            return value.args[index], True
        if value.func.id == "enumerate" and value.args and index == 1:
            return value.args[0], True
    return value, True

"""One parsed file: what encloses what, what a name was bound to, and what a dotted name is called outside the file.

This is not a type checker. A name's bindings are collected per function without regard to branches, which is enough
to see through `import torch.nn.functional as F`, `g, = torch.autograd.grad(...)` and `for a, g in zip(credits, grads)`.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

Node = TypeVar("Node", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Binding:
    """One thing a name was bound to."""

    at: ast.AST
    value: ast.expr | None = None
    each: bool = False
    """The name is one of the items of `value`, not `value` itself."""
    imported: str | None = None


@dataclass
class Source:
    """A module's tree with what the rules ask of it."""

    tree: ast.Module
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)
    remembered: dict[str, bool] = field(default_factory=dict)
    """Answers about the whole file that several rules ask for."""
    _kinds: dict[type, list[Any]] = field(default_factory=dict)
    _names: dict[ast.AST, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node

    def all(self, kind: type[Node], under: ast.AST | None = None) -> list[Node]:
        """All nodes of a kind, in the order in which they stand."""
        if under is not None:
            return [node for node in ast.walk(under) if isinstance(node, kind)]
        if kind not in self._kinds:
            self._kinds[kind] = [node for node in self._ordered if isinstance(node, kind)]
        return cast("list[Node]", self._kinds[kind])

    def scopes(self) -> list[Scope]:
        """The module and all functions."""
        return [self.tree, *self.all(ast.FunctionDef), *self.all(ast.AsyncFunctionDef)]

    @cached_property
    def _ordered(self) -> list[ast.AST]:
        placed = [node for node in ast.walk(self.tree) if hasattr(node, "lineno")]
        return sorted(placed, key=lambda node: (node.lineno, node.col_offset))  # type: ignore[attr-defined]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What encloses a node, from the inside out."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scope(self, node: ast.AST) -> Scope:
        """The function a node stands in, or the module."""
        for outer in self.above(node):
            if isinstance(outer, Scope):
                return outer
        return self.tree

    def own(self, scope: Scope) -> list[ast.AST]:
        """The nodes of a function without those of functions and classes inside it, in order."""
        return self._contents.get(scope, [])

    @cached_property
    def _contents(self) -> dict[ast.AST, list[ast.AST]]:
        found: dict[ast.AST, list[ast.AST]] = {}
        for node in self._ordered:
            found.setdefault(self.scope(node), []).append(node)
        return found

    @cached_property
    def _bindings(self) -> dict[ast.AST, dict[str, list[Binding]]]:
        table: dict[ast.AST, dict[str, list[Binding]]] = {}
        for node in self._ordered:
            for name, binding in _bound(node):
                # A parameter belongs to its function, everything else to where it stands.
                scope = node if isinstance(node, Function) and binding.at is not node else self.scope(node)
                table.setdefault(scope, {}).setdefault(name, []).append(binding)
        return table

    def bindings(self, node: ast.AST, name: str) -> list[Binding]:
        """What `name` was bound to in the innermost scope around `node` that binds it."""
        scope: Scope = node if isinstance(node, Scope) else self.scope(node)
        while True:
            found = self._bindings.get(scope, {}).get(name)
            if found or scope is self.tree:
                return found or []
            scope = self.scope(scope)

    def latest(self, use: ast.Name) -> Binding | None:
        """The binding that stands last before a use, in the use's own function."""
        found = self._bindings.get(self.scope(use), {}).get(use.id, [])
        before = [b for b in found if (b.at.lineno, b.at.col_offset) < (use.lineno, use.col_offset)]  # type: ignore[attr-defined]
        # In `h = normalise(h)` the h on the right is still the earlier one.
        outside = [b for b in before if b.at not in self.above(use)]
        return outside[-1] if outside else None

    def passed(self, parameter: ast.arg) -> list[ast.expr]:
        """What the calls in this file pass for a parameter, by position or by name."""
        function = self.scope(parameter)
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
        for call in self.all(ast.Call):
            match call.func:
                case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
                    found.setdefault(name, []).append(call)
        return found

    def attribute_values(self, name: str) -> list[ast.expr]:
        """What `self.<name>` was set to anywhere in the file."""
        return self._attributes.get(name, [])

    @cached_property
    def _attributes(self) -> dict[str, list[ast.expr]]:
        found: dict[str, list[ast.expr]] = {}
        for node in self.all(ast.Assign):
            for target in node.targets:
                if (
                    isinstance(target, ast.Attribute)
                    and isinstance(target.value, ast.Name)
                    and target.value.id == "self"
                ):
                    found.setdefault(target.attr, []).append(node.value)
        return found

    def dotted(self, node: ast.AST) -> str:
        """The name by which the world knows an expression: `F.normalize` is "torch.nn.functional.normalize".

        Empty for what is local to the file.
        """
        if isinstance(node, ast.Attribute):
            owner = self.dotted(node.value)
            return SYNONYMS.get(f"{owner}.{node.attr}", f"{owner}.{node.attr}") if owner else ""
        if isinstance(node, ast.Name):
            bindings = self.bindings(node, node.id)
            imported = [binding.imported for binding in bindings if binding.imported]
            if imported:
                return SYNONYMS.get(imported[-1], imported[-1])
            return node.id if not bindings and hasattr(builtins, node.id) else ""
        return ""

    def calls(self, node: ast.AST) -> str:
        """The dotted name a call calls; empty for anything else."""
        if not isinstance(node, ast.Call):
            return ""
        if node not in self._names:
            self._names[node] = self.dotted(node.func)
        return self._names[node]


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
}


def _bound(node: ast.AST) -> Iterator[tuple[str, Binding]]:
    """The names a node binds in its scope."""
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
                yield from _unpacked(node, target, value, each=False)
        case ast.AnnAssign(target=target, value=value) if value is not None:
            yield from _unpacked(node, target, value, each=False)
        case ast.NamedExpr(target=target, value=value):
            yield target.id, Binding(node, value)
        case ast.AugAssign(target=ast.Name(id=name)):
            yield name, Binding(node)
        case ast.For(target=target, iter=value) | ast.AsyncFor(target=target, iter=value):
            yield from _unpacked(node, target, value, each=True)
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for part in node.generators:
                yield from _unpacked(node, part.target, part.iter, each=True)
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


def _unpacked(at: ast.AST, target: ast.expr, value: ast.expr, *, each: bool) -> Iterator[tuple[str, Binding]]:
    """The bindings of `target = value`, or of `for target in value` where `each`."""
    if isinstance(target, ast.Starred):
        target = target.value
    if isinstance(target, ast.Name):
        yield target.id, Binding(at, value, each)
    elif isinstance(target, ast.Tuple | ast.List):
        for index, inner in enumerate(target.elts):
            part, one = _part(value, index, each)
            yield from _unpacked(at, inner, part, each=one)


def _part(value: ast.expr, index: int, each: bool) -> tuple[ast.expr, bool]:
    """What the index-th name gets, and whether it gets one item of it."""
    if not each:
        if isinstance(value, ast.Tuple | ast.List) and index < len(value.elts):
            return value.elts[index], False
        return value, True
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        if value.func.id == "zip" and index < len(value.args):
            return value.args[index], True
        if value.func.id == "enumerate" and value.args and index == 1:
            return value.args[0], True
    return value, True

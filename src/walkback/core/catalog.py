"""Catalogs: packages with one module per item (a rule, a network, ...), registered under the module's file name.

A module is imported only when its item is requested by name. Listings read docstrings from the source files, so that
`walkback ls` needs no torch. Other packages add items through entry points of the group `walkback.<plural>`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from walkback.core.errors import InputError, unknown
from walkback.core.plugins import broken_plugin, module_of, registered


@dataclass(frozen=True)
class Entry:
    """One line of a listing, read from the module's docstring without importing the module."""

    name: str
    module: str
    summary: str
    facts: dict[str, str] = field(default_factory=dict)
    """The docstring's "Key: value" lines, such as Citation or Feedback."""


@dataclass(frozen=True)
class Catalog:
    """All items of one kind, by name.

    Each module of `package` binds its item to the attribute `attribute`; `group` is the entry point group for items of
    other packages, and `kind` names an item in messages.
    """

    kind: str
    package: str
    attribute: str
    group: str

    def names(self) -> list[str]:
        return sorted(self._modules())

    def get(self, name: str) -> Any:
        """Import the module registered as `name` and return its item."""
        module = self.module(name)
        if not hasattr(module, self.attribute):
            raise InputError(
                f"The {self.kind} '{name}' of the package '{module.__name__}' defines no {self.attribute}. "
                "Ask its author, or remove that package."
            )
        return getattr(module, self.attribute)

    def module(self, name: str) -> ModuleType:
        """Import and return the module registered as `name`."""
        modules = self._modules()
        if name not in modules:
            raise unknown(self.kind, name, modules)
        clash = _module_names(self.package, self.group).clashes.get(name)
        if clash:
            raise InputError(clash)
        try:
            return importlib.import_module(modules[name])
        except Exception as error:
            if modules[name].startswith(("walkback.", "walkback_papers.")):
                raise
            raise broken_plugin(self.kind, name, modules[name], error) from error

    def entries(self) -> list[Entry]:
        """Every item; what is wrong with one of another package is said in its place, and the others are listed."""
        found = _module_names(self.package, self.group)
        entries = []
        for name, module in sorted(found.modules.items()):
            try:
                if name in found.clashes:
                    raise InputError(found.clashes[name])
                entries.append(describe_module(name, module))
            except (InputError, SyntaxError, ValueError, OSError, RecursionError, MemoryError) as error:
                reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}."
                entries.append(Entry(name, module, f"broken: {' '.join(reason.split())}"))
        return entries

    def _modules(self) -> dict[str, str]:
        return _module_names(self.package, self.group).modules


@dataclass(frozen=True)
class _Found:
    modules: dict[str, str]
    """The module of each registered name."""
    clashes: dict[str, str]
    """By name, what is wrong where two modules are registered under it."""


@cache
def _module_names(package: str, group: str) -> _Found:
    """Map each registered name to its module: those of `package`, then those that other packages register."""
    folder = Path(_source_file(package)).parent
    own = {path.stem: f"{package}.{path.stem}" for path in folder.glob("*.py") if not path.stem.startswith("_")}
    others: dict[str, str] = {}
    clashes: dict[str, str] = {}
    for point in registered(group):
        module = module_of(point)
        if others.setdefault(point.name, module) != module:
            clashes[point.name] = (
                f"Two installed packages register '{point.name}' in '{group}': '{others[point.name]}' and '{module}'. "
                "Uninstall one of them."
            )
    for name in own.keys() & others.keys():
        clashes[name] = (
            f"The installed package behind '{others[name]}' registers '{name}' in '{group}', a name walkback "
            "already uses. Rename it there or uninstall that package."
        )
    return _Found(others | own, clashes)


def describe_module(name: str, module: str) -> Entry:
    """Read a module's docstring from its source: the first line, then the "Key: value" lines."""
    source = Path(_source_file(module)).read_text(encoding="utf-8")
    lines = (ast.get_docstring(ast.parse(source)) or "").splitlines()
    facts = dict(line.split(": ", 1) for line in lines[1:] if ": " in line and line.split(": ", 1)[0].isalpha())
    return Entry(name, module, lines[0].strip() if lines else "", facts)


def _source_file(module: str) -> str:
    """The path of a module's source file, without importing the module."""
    try:
        spec = importlib.util.find_spec(module)
    except Exception:  # The parent package is missing, too, or is broken; or the name is none.
        spec = None
    if spec is None or spec.origin is None:
        raise InputError(f"The module '{module}' cannot be found. Is the package that registers it still installed?")
    return spec.origin

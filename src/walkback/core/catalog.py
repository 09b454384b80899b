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
from walkback.core.plugins import registered


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
        try:
            return importlib.import_module(modules[name])
        except ImportError as error:
            if modules[name].startswith(("walkback.", "walkback_papers.")):
                raise
            raise InputError(
                f"The {self.kind} '{name}' of the package '{modules[name]}' could not be imported: {error}. "
                "Reinstall that package or remove it."
            ) from error

    def entries(self) -> list[Entry]:
        return [describe_module(name, module) for name, module in sorted(self._modules().items())]

    def _modules(self) -> dict[str, str]:
        return _module_names(self.package, self.group)


@cache
def _module_names(package: str, group: str) -> dict[str, str]:
    """Map each registered name to its module: those of `package`, then those that other packages register."""
    folder = Path(_source_file(package)).parent
    own = {path.stem: f"{package}.{path.stem}" for path in folder.glob("*.py") if not path.stem.startswith("_")}
    others: dict[str, str] = {}
    for point in registered(group):
        if others.setdefault(point.name, point.module) != point.module:
            raise InputError(
                f"Two installed packages register '{point.name}' in '{group}': '{others[point.name]}' and "
                f"'{point.module}'. Uninstall one of them."
            )
    clash = own.keys() & others.keys()
    if clash:
        name = sorted(clash)[0]
        raise InputError(
            f"The installed package behind '{others[name]}' registers '{name}' in '{group}', a name walkback "
            "already uses. Rename it there or uninstall that package."
        )
    return own | others


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
    except ModuleNotFoundError:  # The parent package is missing, too.
        spec = None
    if spec is None or spec.origin is None:
        raise InputError(f"The module '{module}' cannot be found. Is the package that registers it still installed?")
    return spec.origin

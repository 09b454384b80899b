"""Entry points, through which other packages (walkback_papers among them) add commands, rules, networks, studies, ...

An entry point has a group (`walkback.rules`), a name and a module, and an attribute of it where the group needs one.
"""

from __future__ import annotations

import importlib
import tomllib
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from walkback.core.errors import InputError, unknown


@cache
def registered(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of one group, from all installed packages.

    In a checkout, walkback's own entry points are read from pyproject.toml: installed metadata is missing or outdated
    if the checkout was not installed, or was installed before pyproject.toml changed.
    """
    own = _checkout_entry_points()
    installed = entry_points(group=group)
    if own is None:
        return tuple(installed)
    others = [point for point in installed if point.dist is None or point.dist.name != "walkback"]
    return (*others, *(EntryPoint(name, value, group) for name, value in own.get(group, {}).items()))


def load_registered(group: str, kind: str, name: str) -> Any:
    """Import and return the object registered as `name`; `kind` names it in messages."""
    known = {point.name: point for point in registered(group)}
    if name not in known:
        raise unknown(kind, name, known)
    point = known[name]
    try:
        found = importlib.import_module(point.module)
        return getattr(found, point.attr) if point.attr else found
    except Exception as error:  # Whatever another package's module raises.
        raise broken_plugin(kind, name, point.value, error) from error


def broken_plugin(kind: str, name: str, module: str, error: Exception) -> InputError:
    """The error for a module of another package that cannot be imported."""
    reason = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
    return InputError(
        f"The {kind} '{name}' of the package '{module}' could not be imported: {reason}. "
        "Reinstall that package or remove it."
    )


def module_of(point: EntryPoint) -> str:
    """The module that an entry point names; empty where its text names none."""
    try:
        return point.module
    except AttributeError:  # As importlib says it of a malformed one.
        return ""


@cache
def _checkout_entry_points() -> dict[str, dict[str, str]] | None:
    """The entry points in the pyproject.toml of walkback's own checkout; None for an installed copy."""
    file = Path(__file__).parents[3] / "pyproject.toml"
    if not (Path(__file__).parents[2].name == "src" and file.is_file()):
        return None
    project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    return project.get("entry-points", {}) if project.get("name") == "walkback" else None

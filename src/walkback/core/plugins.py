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
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"The {kind} '{name}' of the package '{point.module}' could not be imported: {error}. "
            "Reinstall that package or remove it."
        ) from error


@cache
def _checkout_entry_points() -> dict[str, dict[str, str]] | None:
    """The entry points in the pyproject.toml of walkback's own checkout; None for an installed copy."""
    file = Path(__file__).parents[3] / "pyproject.toml"
    if not (Path(__file__).parents[2].name == "src" and file.is_file()):
        return None
    project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    return project.get("entry-points", {}) if project.get("name") == "walkback" else None

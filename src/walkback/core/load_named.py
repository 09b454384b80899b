"""Load what a user names as `package.module:name` or `path/to/file.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from walkback.core.errors import InputError


def load_named(text: str, what: str) -> Callable[..., Any]:
    """The callable that `text` names; modules in the current folder are found, too. `what` says in messages where the
    text was given."""
    place, colon, name = text.rpartition(":")
    if not colon or not place or not name:
        raise InputError(
            f"{what} is '{text}'; expected package.module:function or file.py:function, such as my_nets:build."
        )
    module = load_file(Path(place), what) if place.endswith(".py") else _import(place, what)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise InputError(f"{what}: the module '{place}' has no function '{name}' and no class of that name.")
    made: Callable[..., Any] = found
    return made


def load_file(path: Path, what: str) -> ModuleType:
    """A file as the module of its name; files beside it can be imported by it."""
    full = path.resolve()
    if not full.is_file():
        raise InputError(f"{what}: there is no file '{path}'. Give its path from the current folder.")
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None):
        if Path(str(known.__file__)).resolve() == full:
            return known
        raise InputError(
            f"{what}: another module named '{path.stem}' is imported already, from another file. Rename '{path.name}'."
        )
    if str(full.parent) not in sys.path:
        sys.path.insert(0, str(full.parent))
    return _import(path.stem, what)


def _import(name: str, what: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except InputError:
        raise
    except Exception as error:
        is_missing = isinstance(error, ModuleNotFoundError) and error.name in (name, name.partition(".")[0])
        advice = " Run from the folder that holds it." if is_missing else ""
        raise InputError(f"{what}: cannot import '{name}' ({type(error).__name__}: {error}).{advice}") from error

"""Load what a user names as `package.module:name` or `path/to/file.py:name`."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
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


def call_named(text: str, what: str) -> Any:
    """What the function that `text` names returns; it is called without arguments."""
    function = load_named(text, what)
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise InputError(f"{what}: {text} {error}; expected a function that needs no arguments.") from error
    except ValueError:  # Some functions of other languages have no signature.
        pass
    return _run(function, f"{what}: {text}() failed")


def user_items(items: Iterable[Any], text: str, what: str) -> Iterator[Any]:
    """The items of an iterable of the user's; its errors name file and line."""
    iterator, end = iter(items), object()
    while (item := _run(partial(next, iterator, end), f"{what}: {text}() failed")) is not end:
        yield item


def _import(name: str, what: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")
    own = (name, name.partition(".")[0])
    made: ModuleType = _run(partial(importlib.import_module, name), f"{what}: cannot import '{name}'", own)
    return made


def _run(function: Callable[[], Any], failed: str, modules: Collection[str] = ()) -> Any:
    """Run code of the user's; its errors name file and line. `modules` are those that it imports."""
    try:
        return function()
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        is_missing = isinstance(error, ModuleNotFoundError) and error.name in modules
        remedy = "Run from the folder that holds it." if is_missing else "Correct it."
        raise InputError(
            f"{failed} ({type(error).__name__}: {' '.join(text.split())}{_place_of(error)}). {remedy}"
        ) from error


def _place_of(error: BaseException) -> str:
    """File and line in the user's code, as text."""
    if isinstance(error, SyntaxError):
        return f" in {Path(error.filename or '').name}, line {error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    last = frames[-1]
    return "" if last.filename == __file__ else f" in {Path(last.filename).name}, line {last.lineno}"

"""A function by its file and its qualified name, so that another process can import it; and hashes of source files."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from walkback.core.errors import InputError

_FOREIGN = {"site-packages", "dist-packages"}
_state = {"importing": False}


@dataclass(frozen=True)
class FunctionReference:
    """Where a function (or a class) is defined."""

    file: str
    """The path of its source file; empty if it has none."""
    name: str

    @staticmethod
    def of(function: Any) -> FunctionReference:
        plain = function.func if isinstance(function, partial) else function
        plain = inspect.unwrap(plain) if inspect.isroutine(plain) or inspect.isclass(plain) else type(plain)
        try:
            file = Path(inspect.getsourcefile(plain) or "").resolve()
        except (TypeError, OSError):
            file = Path()
        if inspect.isclass(plain) and not _is_in_its_module(plain):
            file = Path()
        name = getattr(function, "__qualname__", f"an object of {type(function).__qualname__}")
        return FunctionReference(str(file) if file.is_file() else "", name)

    @staticmethod
    def from_json(stored: dict[str, str]) -> FunctionReference:
        return FunctionReference(stored["file"], stored["name"])

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    @property
    def shown(self) -> str:
        """The file's name and the function's, without the folder."""
        return f"{Path(self.file).name}:{self.name}" if self.file else self.name

    @property
    def problem(self) -> str:
        """Why another process cannot import it; empty if it can."""
        if not self.file:
            return f"'{self.name}' has no source file"
        if "<" in self.name or not all(part.isidentifier() for part in self.name.split(".")):
            return f"'{self.shown}' is defined inside of a function, or is no function of its own"
        return ""

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        if self.problem:
            raise InputError(f"{self.problem}, so it cannot be imported. Define it at the top level of a file.")
        found: Any = _import_file(Path(self.file))
        for part in self.name.split("."):
            found = getattr(found, part, None)
        if not callable(found):
            raise InputError(f"{self.file} has no function '{self.name}'. Restore it, or audit again.")
        made: Callable[..., Any] = found
        return made


def is_importing() -> bool:
    """Whether a user's file is being imported, whose top level must not start an audit."""
    return _state["importing"]


def source_hashes(references: Iterable[FunctionReference]) -> dict[str, str]:
    """sha256 of these functions' source files and of every imported module below their folders, by relative path."""
    found: dict[str, str] = {}
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    for folder, file in {(Path(ref.file).parent, Path(ref.file)) for ref in references if ref.file}:
        for path in {file, *(Path(each).resolve() for each in loaded if each)}:
            if path.suffix == ".py" and path.is_relative_to(folder) and path.is_file():
                inside = path.relative_to(folder)
                if not any(part in _FOREIGN or part.startswith(".") for part in inside.parts):
                    found[inside.as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return dict(sorted(found.items()))


def changed_sources(stored: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The files that both know and that differ."""
    return sorted(name for name in stored.keys() & now.keys() if stored[name] != now[name])


def _is_in_its_module(found: type) -> bool:
    """Whether a class is where its module's name says; one made by `exec` is not."""
    holder: Any = sys.modules.get(found.__module__)
    for part in found.__qualname__.split("."):
        holder = getattr(holder, part, None)
    return holder is found or "<" in found.__qualname__


def _import_file(file: Path) -> ModuleType:
    """The module in `file`, by its name in its package, so that relative imports work."""
    if not file.is_file():
        raise InputError(f"There is no file {file}. The function was defined there: restore it, or audit again.")
    parts = [file.stem] if file.stem != "__init__" else []
    folder = file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    name = ".".join(parts)
    known = sys.modules.get(name)
    if known is not None and Path(getattr(known, "__file__", None) or "").resolve() == file:
        return known
    if _is_main(file):
        return sys.modules["__main__"]
    if known is not None or len(parts) == 1:
        # A script may have the name of an installed module, which must stay importable.
        return _execute(f"_walkback_{name}" if known is not None else name, file)
    with _importing(file):
        return importlib.import_module(name)


def _is_main(file: Path) -> bool:
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return main is not None and Path(main).resolve() == file


def _execute(name: str, file: Path) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(file):
        return known
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _importing(file):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _importing(file: Path) -> Iterator[None]:
    before, _state["importing"] = _state["importing"], True
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{file} cannot be imported: {type(error).__name__}: {error}.") from error
    finally:
        _state["importing"] = before

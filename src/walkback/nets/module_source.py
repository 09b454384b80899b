"""Where the module of a network comes from: a class or function, its arguments, and the hash of its source.

A configuration records the name by which it can be imported (never a path) and the hash of the source files: that of
the function and of all that it imports from the same folder. A run is refused where the source is another one.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import random
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from walkback.core.errors import InputError
from walkback.core.load_named import load_named
from walkback.core.settings import MODULE, Scalar, Spec
from walkback.nets.find_blocks import unwrap

SOURCE, WEIGHTS, BLOCKS = "source", "weights", "blocks"
"""With MODULE the settings of a configuration's arch that say which module it is; all others are the function's
arguments."""
HASH_LENGTH = 32
_GIVEN: dict[tuple[str, str, str], Callable[..., Any]] = {}
"""What was given or imported in this process, by name, source hash and weights hash."""


@dataclass(frozen=True)
class ModuleSource:
    """A class or function that builds an nn.Module, by name."""

    reference: str
    """`package.module:name`."""
    source: str
    """Hash of its source files."""
    arguments: tuple[tuple[str, Scalar], ...] = ()
    weights: str = ""
    """Hash of the weights of a module that was given ready made; empty if it is built for each seed."""

    @property
    def name(self) -> str:
        return self.reference.rpartition(":")[2].rpartition(".")[2].strip("<>")

    @property
    def settings(self) -> dict[str, Scalar]:
        found: dict[str, Scalar] = {MODULE: self.reference, SOURCE: self.source, **dict(self.arguments)}
        return {**found, WEIGHTS: self.weights} if self.weights else found

    def build(self, seed: int, input_shape: tuple[int, ...], classes: int) -> nn.Module:
        """A new module; torch's, numpy's and Python's random numbers are seeded and restored afterwards.

        A parameter named `classes`, `num_classes` or `input_shape` gets the data's value where none was given.
        """
        build = _GIVEN[self.reference, self.source, self.weights]
        given: dict[str, Any] = dict(self.arguments)
        sizes = {"classes": classes, "num_classes": classes, "input_shape": input_shape}
        accepted = _parameters(build)
        given = {**{name: value for name, value in sizes.items() if name in accepted}, **given}
        with seeded(seed):
            try:
                made = build(**given)
            except TypeError as error:
                raise InputError(
                    f"The network '{self.reference}' cannot be built: {error}. Give arguments as "
                    f"'{self.reference}:key=value', or a function that needs none."
                ) from error
        if not isinstance(made, nn.Module):
            raise InputError(f"'{self.reference}' returned a {type(made).__name__}; expected a torch.nn.Module.")
        if isinstance(made, torch.jit.ScriptModule):
            raise InputError(f"'{self.reference}' is a ScriptModule. Give the module that it was made from.")
        return unwrap(made)[0]


def source_of_object(given: Any) -> ModuleSource:
    """The source of a class, a function or a ready made module that was passed in Python."""
    arguments: dict[str, Any] = {}
    build = given
    while isinstance(build, functools.partial):
        if build.args:
            raise InputError("The network is a partial with positional arguments. Give them by name: partial(f, k=v).")
        arguments = {**build.keywords, **arguments}
        build = build.func
    for name, value in arguments.items():
        if not isinstance(value, bool | int | float | str):
            raise InputError(
                f"The network's argument '{name}' is a {type(value).__name__}; only numbers and text can be recorded. "
                "Write a function without arguments that builds it."
            )
    weights = ""
    if isinstance(build, nn.Module):
        weights, ready = _weights_hash(build), build
        named: Any = type(ready)
        build = functools.partial(_itself, ready)
    elif callable(build):
        named = build
    else:
        raise InputError(
            f"The network is a {type(given).__name__}; expected the name of one, an nn.Module class, or a function "
            "that builds a module."
        )
    reference, is_importable = _reference(named)
    source = _loaded_hash(named)
    _GIVEN[reference, source, weights] = build
    if weights or not is_importable:
        what = "a ready made module" if weights else f"'{reference}', which no other process can import,"
        warnings.warn(
            f"The network is {what}: it is trained and measured here, and its runs can be resumed or verified only "
            "where the same network is passed in Python again. Give a class or function of a module file instead.",
            stacklevel=2,
        )
    return ModuleSource(reference, source, tuple(arguments.items()), weights)


def spec_of_object(given: Any) -> Spec:
    """The network of a configuration for a class, a function or a module that was passed in Python."""
    source = source_of_object(given)
    return Spec(source.name, source.settings)


def with_blocks(spec: Spec, blocks: str | Sequence[str]) -> Spec:
    """The same network with its blocks named."""
    if MODULE not in spec.settings:
        raise InputError(f"blocks= names the blocks of an nn.Module, and '{spec.name}' is a network of walkback.")
    names = [blocks] if isinstance(blocks, str) else list(blocks)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"blocks is {blocks!r}; expected the path of a ModuleList ('stages'), or a list of names.")
    return Spec(spec.name, {**spec.settings, BLOCKS: "+".join(names)})


def source_of_spec(spec: Spec) -> ModuleSource:
    """The source of a network named in a configuration or on the command line; refused if the source has changed."""
    reference = str(spec.settings[MODULE])
    recorded, weights = (str(spec.settings.get(key, "")) for key in (SOURCE, WEIGHTS))
    known = (MODULE, SOURCE, WEIGHTS, BLOCKS)
    arguments = tuple((key, _scalar(value)) for key, value in spec.settings.items() if key not in known)
    if (reference, recorded, weights) in _GIVEN:
        return ModuleSource(reference, recorded, arguments, weights)
    if weights or "<" in reference:
        raise InputError(
            f"The network '{reference}' was given in Python as an object that cannot be imported. Pass the same one "
            "again, in the same call."
        )
    build = load_named(reference, "--arch")
    place, _, name = reference.rpartition(":")
    if place.endswith(".py"):
        reference = f"{Path(place).stem}:{name}"
    source = _loaded_hash(build)
    if recorded and source != recorded:
        raise InputError(
            f"The source of the network '{reference}' is not the one that the run was trained with (its hash is "
            f"{source[:12]}…, recorded is {recorded[:12]}…). Restore it, or train into another --out."
        )
    _GIVEN[reference, source, weights] = build
    return ModuleSource(reference, source, arguments, weights)


def _itself(module: nn.Module) -> nn.Module:
    return module


def _parameters(build: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(build).parameters
    except (TypeError, ValueError):  # Some callables have no signature.
        return {}


def _scalar(value: Scalar) -> Scalar:
    """The value of an argument that may be text, as on the command line."""
    if not isinstance(value, str):
        return value
    try:
        found = ast.literal_eval({"true": "True", "false": "False"}.get(value, value))
    except (ValueError, SyntaxError):
        return value
    return found if isinstance(found, bool | int | float | str) else value


def _reference(named: Any) -> tuple[str, bool]:
    """The name by which an object can be imported, and whether it can."""
    module = getattr(named, "__module__", None) or type(named).__module__
    name = getattr(named, "__qualname__", type(named).__qualname__)
    if module == "__main__":
        # A script is imported by its file's name; what was typed or executed belongs to no file.
        main = sys.modules["__main__"]
        file = Path(str(getattr(main, "__file__", "")))
        is_file = file.suffix == ".py" and file.stem.isidentifier() and getattr(main, name, None) is named
        return f"{file.stem if is_file else '<session>'}:{name}", is_file
    return f"{module}:{name}", "<" not in name


def _weights_hash(module: nn.Module) -> str:
    state = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        state.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        state.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return state.hexdigest()[:HASH_LENGTH]


@functools.cache
def _loaded_hash(named: Any) -> str:
    """The hash when an object was first seen: a file that is changed later does not change what is loaded."""
    return source_hash(named)


def source_hash(named: Any) -> str:
    """The hash of the files that define a class or function: its own, and those it imports from the same folder."""
    state = hashlib.sha256()
    for line in (*_file_hashes(named), *_closure(named)):
        state.update(f"{line}\n".encode())
    return state.hexdigest()[:HASH_LENGTH]


def _closure(named: Any) -> Iterator[str]:
    """The numbers and texts that a local function has from outside."""
    code, cells = getattr(named, "__code__", None), getattr(named, "__closure__", None)
    for name, cell in zip(code.co_freevars if code else (), cells or (), strict=True):
        if isinstance(cell.cell_contents, bool | int | float | str):
            yield f"{name}={cell.cell_contents!r}"


def _file_hashes(named: Any) -> list[str]:
    try:
        file = Path(str(inspect.getsourcefile(named)))
    except TypeError:
        file = Path("none")
    if not file.is_file():
        try:
            return [inspect.getsource(named)]
        except (OSError, TypeError):
            return [str(getattr(getattr(named, "__code__", None), "co_code", named))]
    module = getattr(named, "__module__", "__main__") or "__main__"
    depth = 0 if module == "__main__" else module.count(".") + (file.name == "__init__.py")
    root = file.resolve().parents[depth]
    own = file.resolve().relative_to(root)
    if any(part in ("site-packages", "dist-packages") for part in root.parts):
        package = module.partition(".")[0]
        versions = [f"{name}=={version(name)}" for name in packages_distributions().get(package, ())]
        return [*sorted(versions), _file_line(root, own)]
    return [_file_line(root, each) for each in sorted(_imported_files(root, own))]


def _file_line(root: Path, relative: Path) -> str:
    return f"{relative.as_posix()} {hashlib.sha256((root / relative).read_bytes()).hexdigest()}"


def _imported_files(root: Path, start: Path) -> set[Path]:
    """The files below `root` that the file `start` imports, directly or through others, and itself."""
    found, waiting = {start}, [start]
    while waiting:
        file = waiting.pop()
        try:
            tree = ast.parse((root / file).read_bytes())
        except SyntaxError:  # A notebook's or another language's file: its own hash is taken.
            continue
        for name in _imported_names(tree, file):
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                stem = Path(*parts[:end])
                for candidate in (stem.with_suffix(".py"), stem / "__init__.py"):
                    if candidate not in found and (root / candidate).is_file():
                        found.add(candidate)
                        waiting.append(candidate)
    return found


def _imported_names(tree: ast.AST, file: Path) -> Iterator[str]:
    package = list(file.parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed all random numbers, and restore their states afterwards."""
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])

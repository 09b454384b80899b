"""Read a grid of runs from a YAML file; the runs are all combinations of its lists.

`walkback sweep --help` shows an example.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from walkback.core.configuration import PARTS, RunConfig, grid
from walkback.core.errors import InputError, unknown
from walkback.core.reading.regular_files import fault_of, read_text
from walkback.core.reading.yaml_text import YAML_BYTES, parse_yaml
from walkback.core.settings import Scalar

KEYS = ("methods", "arch", "data", "seeds", "epochs", "settings", "baselines")
OWN_KEYS = {"method": "methods", "arch": "arch", "data": "data", "seed": "seeds", "epochs": "epochs"}
"""Fields of `RunConfig` that are given by a key beside `settings`, and that key."""
MAX_RUNS = 100_000
"""The most runs of one grid."""
SETTINGS = [field.name for field in fields(RunConfig) if field.name not in (*PARTS, "seed", "epochs")]


@dataclass(frozen=True)
class GridFile:
    """The content of a grid file."""

    methods: tuple[str, ...]
    archs: tuple[str, ...]
    datas: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: tuple[tuple[str, tuple[Scalar, ...]], ...]
    """Fields of `RunConfig`, epochs included, with the values to combine."""
    baselines: bool
    """Whether to add the baselines that a claim of depth is compared with."""

    @property
    def count(self) -> int:
        """The number of configurations, baselines not counted."""
        lists = [self.methods, self.archs, self.datas, self.seeds, *(choices for _, choices in self.settings)]
        return math.prod(map(len, lists))

    def configs(self) -> list[RunConfig]:
        """One configuration for each combination; the seed varies fastest."""
        names = [name for name, _ in self.settings]
        return [
            config
            for arch, data in itertools.product(self.archs, self.datas)
            for values in itertools.product(*(choices for _, choices in self.settings))
            for config in grid(
                self.methods, arch=arch, data=data, seeds=self.seeds, **dict(zip(names, values, strict=True))
            )
        ]


def read_grid(path: Path) -> GridFile:
    """Read and check a grid file; errors name the file."""
    fault = fault_of(path, "`walkback sweep --help` shows an example.")
    text = read_text(path, fault, limit=YAML_BYTES, follow=True)
    try:
        return parse_grid(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def parse_grid(text: str) -> GridFile:
    given = parse_yaml(text, fault_of("The grid", "`walkback sweep --help` shows an example."))
    if not isinstance(given, dict) or not given:
        raise InputError(f"A grid file has keys and values, such as 'methods: [bp, dfa]'. Keys: {', '.join(KEYS)}.")
    for key in given:
        if key not in KEYS:
            raise unknown("key", key, KEYS)
    if "methods" not in given:
        raise InputError("The key 'methods' is missing. Write, for example, methods: [bp, dfa].")
    settings = _settings(given.get("settings", {}))
    if "epochs" in given:
        settings = (("epochs", _list("epochs", given["epochs"], int)), *settings)
    baselines = given.get("baselines", False)
    if not isinstance(baselines, bool):
        raise InputError(f"'baselines' is {baselines!r}; expected true or false.")
    made = GridFile(
        methods=_list("methods", given["methods"], str),
        archs=_list("arch", given.get("arch", "resmlp"), str),
        datas=_list("data", given.get("data", "prototypes"), str),
        seeds=_list("seeds", given.get("seeds", 42), int),
        settings=settings,
        baselines=baselines,
    )
    # Counted before they are expanded.
    if made.count > MAX_RUNS:
        raise InputError(f"The grid has {made.count:,} combinations; expected at most {MAX_RUNS:,}. Divide it.")
    return made


def _settings(given: Any) -> tuple[tuple[str, tuple[Scalar, ...]], ...]:
    if not isinstance(given, dict):
        raise InputError(f"'settings' is {given!r}; expected keys and values, such as {{lr: [1e-3, 3e-4]}}.")
    for key in given:
        if key in OWN_KEYS or key in KEYS:
            raise InputError(
                f"'{key}' is not one of 'settings': write the key '{OWN_KEYS.get(key, key)}' beside 'settings'."
            )
        if key not in SETTINGS:
            raise unknown("key of 'settings'", key, SETTINGS)
    return tuple((key, _list(f"settings.{key}", value, str | int | float)) for key, value in given.items())


def _list(key: str, value: Any, kind: Any) -> tuple[Any, ...]:
    """One value or a list of values as a tuple; refuses values that are not of type `kind`."""
    values = value if isinstance(value, list) else [value]
    word = {str: "text", int: "a whole number"}.get(kind, "text or a number")
    for item in values:
        # bool is a subclass of int.
        if isinstance(item, bool) or not isinstance(item, kind):
            raise InputError(f"'{key}' has {item!r}; expected {word}, or a list of it.")
    if not values:
        raise InputError(f"'{key}' is an empty list, so there is nothing to train. Leave it out, or add values.")
    return tuple(values)

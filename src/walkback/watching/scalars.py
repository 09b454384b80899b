"""What the loggers share: a row of the journal as named scalars, and packages that are imported when they are used."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from walkback.core.errors import InputError

SCALARS = ("growth", "grad_top", "direction", "eval_loss", "eval_acc")
_BY_LAYER = ("hidden", "grad", "cosine")


class ScalarLogger(ABC):
    """A logger of a watch that writes each row as scalars; values that could not be measured are left out."""

    def __init__(self, prefix: str = "walkback"):
        self._prefix = prefix

    def __call__(self, row: Mapping[str, Any]) -> None:
        self.write(row["step"], {f"{self._prefix}/{name}": value for name, value in row_scalars(row).items()})

    @abstractmethod
    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write the values measured after `step` optimiser steps."""


def row_scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row by name: `growth`, `cosine/3`, and `raised/D2`, which is 1 where the detector fails."""
    values: dict[str, Any] = {name: row.get(name) for name in SCALARS}
    for name in _BY_LAYER:
        values |= {f"{name}/{layer}": value for layer, value in enumerate(row.get(name) or ())}
    flags = row.get("flags") or {}
    values |= {f"raised/{name}": float(status == "raised") for name, status in flags.items()}
    return {name: value for name, value in values.items() if value is not None}


def import_extra(module: str, extra: str, instead: str) -> Any:
    """Import what an extra of walkback installs; without it, an error that says what to pass instead."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{module} cannot be imported ({error}). Install it with pip install 'walkback[{extra}]', "
            f"or pass {instead}."
        ) from error

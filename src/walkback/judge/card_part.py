"""Base class of the dataclasses that an audit card consists of.

`CardPart.to_json` writes a part, and `card_schema` generates the card's schema from the same keys and type hints, so
that a new field or a new threshold is written and accepted without a second list of names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar


@dataclass(frozen=True)
class JsonKeys:
    """Annotates a mapping: its keys are these, and all of them must be there if `required`. Those that are `later` came
    with format 2."""

    names: tuple[str, ...]
    required: bool = True
    later: tuple[str, ...] = ()


@dataclass(frozen=True)
class JsonLimits:
    """Annotates a number: the smallest and the largest one allowed."""

    minimum: float
    maximum: float | None = None


@dataclass(frozen=True)
class JsonChoice:
    """Annotates a string: one of these."""

    names: tuple[str, ...]


NonNegative = Annotated[int, JsonLimits(0)]
"""A count or an index."""
AccuracySeeds = tuple[Annotated[float, JsonLimits(0, 1)], ...]
"""Accuracies from 0 to 1, one for each seed."""


class CardPart:
    """A dataclass with a JSON form: an object with one key for each of its fields, unless it says otherwise."""

    JSON_KEYS: ClassVar[tuple[str, ...]] = ()
    """The keys in the order in which they are written; empty means the names of all fields."""
    JSON_ATTRIBUTES: ClassVar[Mapping[str, str]] = {}
    """The field or property behind each key that does not have its name."""
    JSON_REQUIRED: ClassVar[tuple[str, ...] | None] = None
    """The keys that a stored part must have; None means all of them."""
    JSON_OPTIONAL: ClassVar[tuple[str, ...]] = ()
    """Keys that a stored part may lack all the same."""
    JSON_LATER: ClassVar[tuple[str, ...]] = ()
    """The keys that cards of format 1 do not have."""

    @classmethod
    def json_keys(cls) -> tuple[str, ...]:
        return cls.JSON_KEYS or tuple(field.name for field in fields(cls))  # type: ignore[arg-type]  # Parts are dataclasses.

    def to_json(self) -> dict[str, Any]:
        """This part as plain JSON values, without NaN or infinity."""
        return {key: _value(getattr(self, self.JSON_ATTRIBUTES.get(key, key))) for key in self.json_keys()}


def _value(value: Any) -> Any:
    """The JSON form of a field: a float that is not finite becomes null."""
    if isinstance(value, CardPart):
        return value.to_json()
    if isinstance(value, Mapping):
        return {name: _value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    return finite(value) if isinstance(value, float) else value


def finite(value: float | None) -> float | None:
    """`value`, or None where it is not finite: JSON has no NaN and no infinity."""
    return value if value is not None and math.isfinite(value) else None

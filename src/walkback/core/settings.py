"""Settings from text: `name:key=value,key=value`, checked against the fields of a frozen dataclass.

Every rule, network and data set is a frozen dataclass that is its own configuration, so one checker serves them all:
unknown keys get a suggestion, values are converted to the field's type or refused with a sentence.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from walkback.core.errors import InputError, unknown

Scalar = bool | int | float | str
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Spec:
    """A name from a catalog with the settings given for it."""

    name: str
    settings: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)

    @staticmethod
    def parse(text: str) -> Spec:
        """Read `dfa`, `dfa:scale=unit_error` or `dfa:scale=unit_error,shell=method`."""
        name, _, rest = text.partition(":")
        settings: dict[str, Scalar] = {}
        for item in filter(None, rest.split(",")):
            key, equals, value = item.partition("=")
            if not equals or not key or not value:
                raise InputError(f"Cannot read '{item}' in '{text}'. Write name:key=value,key=value.")
            if key in settings:
                raise InputError(f"The setting '{key}' is given twice in '{text}'. Give it once.")
            settings[key] = value
        if not name:
            raise InputError(f"Cannot read '{text}': the name before ':' is missing.")
        return Spec(name, settings)

    def __str__(self) -> str:
        settings = ",".join(f"{key}={_plain(value)}" for key, value in self.settings.items())
        return f"{self.name}:{settings}" if settings else self.name


def build_settings(cls: type[T], settings: Mapping[str, Any], what: str, **given: Any) -> T:
    """Make the dataclass `cls` from settings and from fields that are not the user's to set.

    `what` names the thing in error messages ("the method 'dfa'").
    """
    hints = hints_of(cls)  # type: ignore[arg-type]  # Every class is hashable, whatever its metaclass says.
    names = [f.name for f in dataclasses.fields(cls) if f.name not in given]  # type: ignore[arg-type]
    for key in settings:
        if key not in names:
            raise unknown(f"setting of {what}", key, names)
    return cls(**given, **{key: convert(value, hints[key], f"{key} of {what}") for key, value in settings.items()})


@functools.cache
def hints_of(cls: type) -> dict[str, Any]:
    """The types of a class's fields: slow to find, and asked for thousands of times."""
    return typing.get_type_hints(cls)


def omitted_at_default(default: Any) -> Any:
    """A setting that came when runs had been published: a configuration is without it where it has its default, so that
    they keep their names."""
    return dataclasses.field(default=default, metadata={"later": True})


def recorded_settings(thing: Any) -> dict[str, Any]:
    """What a configuration keeps of a thing's settings."""
    left_out = {f.name for f in dataclasses.fields(thing) if f.metadata.get("later")} - changed_settings(thing).keys()
    return {name: value for name, value in all_settings(thing).items() if name not in left_out}


def all_settings(thing: Any) -> dict[str, Any]:
    """Every field of a dataclass that a user can set, by name."""
    return {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.default is not dataclasses.MISSING}


def changed_settings(thing: Any) -> dict[str, Any]:
    """Those of them that differ from their defaults."""
    defaults = {f.name: f.default for f in dataclasses.fields(thing)}
    return {name: value for name, value in all_settings(thing).items() if value != defaults[name]}


def convert(value: Any, hint: Any, what: str) -> Any:
    """`value`, from text where needed, as the annotated type; refuses with a sentence what does not fit."""
    if typing.get_origin(hint) is typing.Literal:
        choices = typing.get_args(hint)
        if value not in choices:
            raise unknown(what, value, map(str, choices))
        return value
    if isinstance(hint, types.UnionType):
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        if value is None or value == "none":
            return None
        return convert(value, options[0], what)
    if hint is bool:
        return _to_bool(value, what)
    if hint is int:
        return _to_int(value, what)
    if hint is float:
        return _to_float(value, what)
    if hint is str and isinstance(value, str):
        return value
    raise InputError(f"{what} is {value!r}, which is not a {getattr(hint, '__name__', hint)}.")


def _to_bool(value: Any, what: str) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise InputError(f"{what} is {value!r}; expected true or false.")


def _to_int(value: Any, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            pass
    raise InputError(f"{what} is {value!r}; expected a whole number.")


def _to_float(value: Any, what: str) -> float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number):
            return number
    raise InputError(f"{what} is {value!r}; expected a finite number.")


def require_at_least(value: float, least: float, what: str) -> None:
    """Refuse a value under its smallest sensible one."""
    if value < least:
        raise InputError(f"{what} is {value}; expected at least {least}.")


def require_above(value: float, bound: float, what: str) -> None:
    """Refuse a value that is not strictly above `bound`."""
    if not value > bound:
        raise InputError(f"{what} is {value}; expected more than {bound}.")


def _plain(value: Scalar | None) -> str:
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Settings from text: `name:key=value,key=value`, checked against the fields of a frozen dataclass.

Every rule, network and data set is a frozen dataclass whose fields are its settings, so the same code checks all of
them: unknown keys raise an error with a suggestion, values are converted to the field's type or raise an error.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from walkback.core.errors import InputError, unknown
from walkback.core.machine import memory_bytes

Scalar = bool | int | float | str
T = TypeVar("T")
_OMITTED_AT_DEFAULT = "omitted_at_default"


@dataclasses.dataclass(frozen=True)
class Spec:
    """A name from a catalog with the settings given for it."""

    name: str
    settings: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)

    @staticmethod
    def parse(text: str | Spec) -> Spec:
        """Read `dfa`, `dfa:scale=unit_error` or `dfa:scale=unit_error,shell=method`; a Spec is returned unchanged."""
        if isinstance(text, Spec):
            return text
        name, _, rest = text.partition(":")
        settings = parse_pairs(filter(None, rest.split(",")), f"'{text}'", "name:key=value,key=value")
        if not name:
            raise InputError(f"Cannot read '{text}': the name before ':' is missing.")
        return Spec(name, settings)

    def __str__(self) -> str:
        settings = ",".join(f"{key}={_format_value(value)}" for key, value in self.settings.items())
        return f"{self.name}:{settings}" if settings else self.name


MODULE = "module"
"""The setting of an arch that names a user's nn.Module, as `package.module:name` or `file.py:name`."""


def parse_arch(text: str | Spec) -> Spec:
    """Read a network's name with settings, or a module: `my_nets:ResNet14`, `file.py:ResNet14:width=16`."""
    if isinstance(text, Spec):
        return text
    place, _, rest = text.partition(":")
    name, _, settings = rest.partition(":")
    if not name or "=" in name:
        return Spec.parse(text)
    if not place or any(not part.isidentifier() for part in name.split(".")):
        raise InputError(f"Cannot read '{text}'. Write a network's name:key=value, my_nets:Name, or file.py:Name.")
    pairs = parse_pairs(filter(None, settings.split(",")), f"'{text}'", f"{place}:{name}:key=value,key=value")
    return Spec(name.rpartition(".")[2], {MODULE: f"{place}:{name}", **pairs})


def parse_pairs(items: Iterable[str], what: str, form: str) -> dict[str, str]:
    """Read texts such as `lr=0.01` into a dict, and refuse other texts and repeated keys.

    `what` says in messages where the items were given (`--set`), `form` how to write them (`key=value`).
    """
    pairs: dict[str, str] = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key or not value:
            raise InputError(f"Cannot read '{item}' in {what}. Write {form}.")
        if key in pairs:
            raise InputError(f"'{key}' is given twice in {what}. Give it once.")
        pairs[key] = value
    return pairs


def build_settings(cls: type[T], settings: Mapping[str, Any], what: str, **given: Any) -> T:
    """Make the dataclass `cls` from the user's `settings` and from the fields `given`, which a user cannot set.

    `what` names the object in error messages ("the method 'dfa'").
    """
    require_dataclass(cls, what)
    hints = hints_of(cls)  # type: ignore[arg-type]  # Classes are hashable; mypy cannot tell.
    names = [f.name for f in dataclasses.fields(cls) if f.name not in given]  # type: ignore[arg-type]
    for key in settings:
        if key not in names:
            raise unknown(f"setting of {what}", key, names)
    return cls(**given, **{key: convert(value, hints[key], f"{key} of {what}") for key, value in settings.items()})


@functools.cache
def hints_of(cls: type) -> dict[str, Any]:
    """The types of a class's fields, cached: `get_type_hints` is slow and is called thousands of times."""
    return typing.get_type_hints(cls)


def omitted_at_default(default: Any) -> Any:
    """A dataclass field that configurations record only where it differs from its default.

    For settings added after runs were published: those runs keep their digests and names.
    """
    return dataclasses.field(default=default, metadata={_OMITTED_AT_DEFAULT: True})


def recorded_settings(instance: Any) -> dict[str, Any]:
    """The settings that a configuration records: all but the `omitted_at_default` ones that have their default."""
    omitted = omitted_settings(instance)
    return {name: value for name, value in all_settings(instance).items() if name not in omitted}


def omitted_settings(instance: Any) -> set[str]:
    """The `omitted_at_default` fields of a dataclass that have their default."""
    omissible = {f.name for f in dataclasses.fields(instance) if f.metadata.get(_OMITTED_AT_DEFAULT)}
    return omissible - changed_settings(instance).keys()


def all_settings(instance: Any) -> dict[str, Any]:
    """All fields of a dataclass that a user can set (those with a default), by name."""
    names = [f.name for f in dataclasses.fields(instance) if f.default is not dataclasses.MISSING]
    return {name: getattr(instance, name) for name in names}


def changed_settings(instance: Any) -> dict[str, Any]:
    """The settings that differ from their defaults, by name."""
    defaults = {f.name: f.default for f in dataclasses.fields(instance)}
    return {name: value for name, value in all_settings(instance).items() if value != defaults[name]}


def convert(value: Any, hint: Any, what: str) -> Any:
    """Convert `value`, which may be text, to the annotated type `hint`; InputError if it does not fit."""
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
    if hint is Spec and isinstance(value, str | Spec):
        return Spec.parse(value)
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
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    raise InputError(f"{what} is {value!r}; expected a finite number.")


def require_at_least(value: float, least: float, what: str) -> None:
    """Raise InputError if `value` is below `least`."""
    if value < least:
        raise InputError(f"{what} is {value}; expected at least {least}.")


def require_at_most(value: float, most: float, what: str) -> None:
    """Raise InputError if `value` is above `most`."""
    if value > most:
        raise InputError(f"{what} is {value}; expected at most {most}.")


def require_dataclass(found: object, what: str) -> None:
    """Raise InputError unless `found`, which may come from another package, is a dataclass."""
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise InputError(f"{what} is {found!s:.60}; expected a dataclass. Ask the author of its package, or remove it.")


def require_memory(numbers: int, what: str) -> None:
    """Raise InputError, before any is taken, if so many float32 numbers need more than this machine's memory."""
    if 4 * numbers > memory_bytes():
        raise InputError(
            f"{what} would need {4 * numbers / 2**30:,.0f} GiB of memory; this machine has "
            f"{memory_bytes() / 2**30:,.0f} GiB. Choose smaller sizes."
        )


def require_above(value: float, bound: float, what: str) -> None:
    """Raise InputError unless `value` is strictly above `bound`."""
    if not value > bound:
        raise InputError(f"{what} is {value}; expected more than {bound}.")


def _format_value(value: Scalar | None) -> str:
    """The text that `convert` reads back as the same value."""
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)

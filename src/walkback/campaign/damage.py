"""Ways to damage a file's bytes, each drawn at random."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from walkback.core.errors import InputError
from walkback.core.reading.json_text import parse_json

Damage = Callable[[bytes, Random], bytes]

_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 7, 10**39, 1e308, -0.5, "", "x", "../x", "\x1b[31m[/x]", [], [[]], {}, {"x": 1},
)  # fmt: skip
_TEXTS = ("NaN", "Infinity", "1e999", "1" + "0" * 320, "[" * 5000 + "]" * 5000, '"\\ud800"', "{", "")
"""What no JSON file may have."""


def _truncated(data: bytes, draws: Random) -> bytes:
    return data[: draws.randrange(len(data))] if data else b"x"


def _flipped(data: bytes, draws: Random) -> bytes:
    changed = bytearray(data or b"x")
    for _ in range(draws.choice((1, 1, 1, 8))):
        changed[draws.randrange(len(changed))] ^= 1 << draws.randrange(8)
    return bytes(changed)


def _overwritten(data: bytes, draws: Random) -> bytes:
    start = draws.randrange(len(data) + 1)
    length = draws.choice((1, 8, 64))
    return (
        data[:start] + draws.choice((bytes(length), b"\xff" * length, draws.randbytes(length))) + data[start + length :]
    )


def _swapped(data: bytes, draws: Random) -> bytes:
    middle = draws.randrange(len(data) + 1)
    return data[middle:] + data[:middle]


def _repeated(data: bytes, draws: Random) -> bytes:
    start = draws.randrange(len(data) + 1)
    return data + data[start:]


def _replaced_value(data: bytes, draws: Random) -> bytes:
    """One value of a JSON document, or of one line of it, by a value of another type, or removed."""
    lines = data.splitlines(keepends=True)
    number = draws.randrange(len(lines)) if lines and _document(lines[0]) is not None else -1
    document = _document(lines[number] if number >= 0 else data)
    if document is None:
        return _flipped(data, draws)
    places = list(_places(document))
    holder, key = draws.choice(places)
    if draws.random() < 0.2 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = draws.choice(_VALUES)
    text = json.dumps(document).encode()
    return text if number < 0 else b"".join([*lines[:number], text + b"\n", *lines[number + 1 :]])


def _hostile_text(data: bytes, draws: Random) -> bytes:
    """A hostile text in place of one value."""
    marked = _replaced_value(data, draws)
    return marked.replace(b"null", draws.choice(_TEXTS).encode(), 1) if b"null" in marked else marked[:-1]


def _document(data: bytes) -> Any:
    try:
        found = parse_json(data, InputError)
    except InputError:
        return None
    return found if isinstance(found, dict) and found else None


def _places(value: Any) -> list[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [place for key in keys for place in [(value, key), *_places(value[key])]]


DAMAGES: dict[str, Damage] = {
    "truncated": _truncated,
    "flipped": _flipped,
    "overwritten": _overwritten,
    "swapped": _swapped,
    "repeated": _repeated,
    "value": _replaced_value,
    "hostile text": _hostile_text,
    "empty": lambda data, draws: b"",
    "deep": lambda data, draws: b"[" * 100_000,
}

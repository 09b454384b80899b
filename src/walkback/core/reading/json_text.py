"""Read JSON and JSON lines: limits on size, depth, elements and numbers, no NaN, no key given twice."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

from walkback.core.reading.regular_files import TEXT_BYTES, Fault, decoded, read_bytes

MAX_DEPTH = 64
"""Levels of brackets: cards and records have fewer than ten."""
MAX_ELEMENTS = 4_000_000
"""Entries of all lists and objects; they, not the bytes, are what needs memory."""
MAX_DIGITS = 40
"""Digits of a whole number: the states of numpy's generators have 39."""
LINE_BYTES = 2**20
"""Bytes of one line of a log."""

_BRACKET = re.compile(r"[\[\]{}]")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(path: Path, fault: Fault, *, limit: int = TEXT_BYTES, follow: bool = False) -> Any:
    """The value in a JSON file."""
    return parse_json(read_bytes(path, fault, limit=limit, follow=follow), fault)


def read_object(path: Path, fault: Fault, *, limit: int = TEXT_BYTES, follow: bool = False) -> dict[str, Any]:
    """The object in a JSON file."""
    return require_object(read_json(path, fault, limit=limit, follow=follow), fault)


def parse_json(data: bytes | str, fault: Fault) -> Any:
    """The value of a JSON text."""
    text = data if isinstance(data, str) else decoded(data, fault)
    if text.count(",") > MAX_ELEMENTS:
        raise fault(f"has more than {MAX_ELEMENTS:,} entries")
    # Fewer brackets than that cannot be nested deeper.
    if text.count("[") + text.count("{") > MAX_DEPTH:
        _check_depth(text, fault)
    try:
        value = _DECODER.decode(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise fault("has half of a surrogate pair, which is no character") from error
    except (ValueError, RecursionError) as error:
        raise fault(f"cannot be read as JSON ({error})") from error
    return value


def parse_json_lines(lines: Iterable[bytes], fault: Fault) -> Iterator[dict[str, Any]]:
    """The object on each line."""
    for number, line in enumerate(lines, 1):
        yield parse_json_line(line, number, fault)


def parse_json_line(line: bytes, number: int, fault: Fault) -> dict[str, Any]:
    """The object on one line."""
    if len(line) > LINE_BYTES:
        raise fault(f"has {len(line):,} bytes in line {number}; expected at most {LINE_BYTES:,}")

    def at_line(why: str) -> Exception:
        return fault(f"{why} in line {number}")

    return require_object(parse_json(line, at_line), at_line)  # type: ignore[arg-type]


def require_object(value: Any, fault: Fault) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise fault(f"has a {_NAMES.get(type(value), 'value')}; expected a JSON object")
    return value


_NAMES = {list: "list", str: "text", int: "number", float: "number", bool: "truth value", type(None): "null"}


def _check_depth(text: str, fault: Fault) -> None:
    steps = (1 if bracket in "[{" else -1 for bracket in _BRACKET.findall(_STRING.sub("", text)))
    if max(accumulate(steps), default=0) > MAX_DEPTH:
        raise fault(f"has brackets nested more than {MAX_DEPTH} deep")


def _whole_number(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a whole number has {len(text)} digits; expected at most {MAX_DIGITS}")
    return int(text)


def _decimal_number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"it contains {word}, which is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key '{twice[:60]}' is given twice")
    return found


_DECODER = json.JSONDecoder(
    object_pairs_hook=_once, parse_int=_whole_number, parse_float=_decimal_number, parse_constant=_no_number
)

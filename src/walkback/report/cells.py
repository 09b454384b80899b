"""Numbers as they are printed: formatted once, here, and the same in every format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

EMPTY_CELL = "–"
_WORDS = {"invalid": "INVALID", "missing": "NOT MEASURED"}
_SIZED = re.compile(r"(?<![\w.=])(?<!± )(?:\d(?:\.\d+)?e[+-]?\d+|0\.000\d*[1-9]\d*)(?![\w.]*[\da-wyz_])(?! ±)")
"""A number with a power of ten, or one that reads better with it. A mean and its spread keep one format, and what users
type (`penalty=0.0001`) is left as typed."""


@dataclass(frozen=True)
class Cell:
    """What stands in one place of a table; a number that may not be used has a word there, no value, and a reason."""

    text: str
    value: float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", tidy(self.text))

    @property
    def full(self) -> str:
        return f"{self.text} ({self.reason})" if self.reason else self.text


def tidy(text: str) -> str:
    """Sizes as people write them: 1e-7, 3e5, 210 and 3.9e-4 for 1e-07, 3e+05, 2.1e+02 and 0.00039."""
    return _SIZED.sub(lambda match: _sized(Decimal(match[0])), text)


def size(value: float) -> str:
    """A threshold or a tick as people write it: 50, 1e-7, 1e4."""
    return _sized(Decimal(f"{value:g}").normalize())


def _sized(value: Decimal) -> str:
    """Without a power of ten from a thousandth to ten thousand; all digits are kept."""
    if not value or 1e-3 <= value < 1e4:
        return f"{value:f}"
    digits, _, power = f"{value:e}".partition("e")
    return f"{digits}e{int(power)}"


def number_text(given: Mapping[str, Any], spec: str) -> Cell:
    """A number of the card: its value, or INVALID / NOT MEASURED; both with their reason."""
    if given["status"] != "ok":
        return Cell(_WORDS[given["status"]], None, given["reason"])
    return Cell(format(given["value"], spec), given["value"], given["reason"])


def counted(n: int, what: str) -> str:
    """`3 paired seeds`, `1 paired seed`."""
    return f"{n} {what.removesuffix('s') if n == 1 else what}"


def maybe(value: float | None, spec: str, unit: str = "") -> str:
    return EMPTY_CELL if value is None else f"{value:{spec}} {unit}".strip()


def interval(given: Sequence[float] | None, spec: str, unit: str = "") -> str:
    if given is None:
        return EMPTY_CELL
    low, high = (format(end, spec) for end in given)
    return f"[{low}, {high}] {unit}".strip()


def accuracies(given: Sequence[float]) -> str:
    """One accuracy per seed, or none."""
    return ", ".join(f"{value:.3f}" for value in given) or "not given"


def flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as `key: text` lines; a mapping of plain values fits on one line."""
    lines = []
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping) and any(isinstance(inner, Mapping) for inner in item.values()):
            lines += flat(item, f"{name}.")
        elif isinstance(item, Mapping):
            lines.append(
                (name, ", ".join(f"{inner}={plain_text(found)}" for inner, found in item.items()) or EMPTY_CELL)
            )
        else:
            lines.append((name, plain_text(item)))
    return lines


def plain_text(value: Any) -> str:
    if value is None:
        return "not recorded"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(plain_text, value)) or EMPTY_CELL
    if isinstance(value, float):
        return f"{value:.10g}"  # 0.1 + 0.2 is 0.3 to a reader; the card's JSON keeps every digit.
    return str(value)

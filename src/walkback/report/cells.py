"""Number formatting for tables, cards and pages: every output format uses these functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

EMPTY_CELL = "–"
_WORDS = {"invalid": "INVALID", "missing": "NOT MEASURED"}
_NUMBER = re.compile(r"(?<![\w.=])(?<!± )(?:\d(?:\.\d+)?e[+-]?\d+|0\.000\d*[1-9]\d*)(?![\w.]*[\da-wyz_])(?! ±)")
"""A number with a power of ten, or a small one that reads better with it. `mean ± spread` is excluded so that both keep
one format, and so are settings (`penalty=0.0001`), which stay as the user typed them."""


@dataclass(frozen=True)
class Cell:
    """A table cell. A number that must not be used has a word as its text, no value, and a reason."""

    text: str
    value: float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", tidy(self.text))

    @property
    def full(self) -> str:
        """The text, followed by the reason in parentheses where there is one."""
        return f"{self.text} ({self.reason})" if self.reason else self.text


def tidy(text: str) -> str:
    """Shorten the numbers in a text: 1e-07, 3e+05, 2.1e+02 and 0.00039 become 1e-7, 3e5, 210 and 3.9e-4."""
    return _NUMBER.sub(lambda match: _short(Decimal(match[0])), text)


def size(value: float) -> str:
    """A threshold or an axis tick in short form: 50, 1e-7, 1e4."""
    return _short(Decimal(f"{value:g}").normalize())


def _short(value: Decimal) -> str:
    """Plain decimals from 0.001 to 10000, otherwise with a power of ten; all digits are kept."""
    if not value or 1e-3 <= value < 1e4:
        return f"{value:f}"
    digits, _, power = f"{value:e}".partition("e")
    return f"{digits}e{int(power)}"


def number_text(given: Mapping[str, Any], spec: str) -> Cell:
    """A cell for a number of the card: its value formatted with `spec`, or INVALID / NOT MEASURED; with its reason."""
    if given["status"] != "ok":
        return Cell(_WORDS[given["status"]], None, given["reason"])
    return Cell(format(given["value"], spec), given["value"], given["reason"])


def counted(n: int, what: str) -> str:
    """The count with its noun, in the singular for 1: `3 paired seeds`, `1 paired seed`."""
    return f"{n} {what.removesuffix('s') if n == 1 else what}"


def maybe(value: float | None, spec: str, unit: str = "") -> str:
    """The formatted value with its unit, or an empty cell for None."""
    return EMPTY_CELL if value is None else f"{value:{spec}} {unit}".strip()


def interval(ends: Sequence[float] | None, spec: str, unit: str = "") -> str:
    """`[low, high] unit`, or an empty cell for None."""
    if ends is None:
        return EMPTY_CELL
    low, high = (format(end, spec) for end in ends)
    return f"[{low}, {high}] {unit}".strip()


def accuracies(values: Sequence[float]) -> str:
    """The accuracies of the seeds, separated by commas, or `not given`."""
    return ", ".join(f"{value:.3f}" for value in values) or "not given"


def flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested values as (key, text) pairs with dotted keys; a mapping without mappings inside becomes one pair."""
    pairs = []
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping) and any(isinstance(inner, Mapping) for inner in item.values()):
            pairs += flat(item, f"{name}.")
        elif isinstance(item, Mapping):
            pairs.append((name, ", ".join(f"{k}={plain_text(v)}" for k, v in item.items()) or EMPTY_CELL))
        else:
            pairs.append((name, plain_text(item)))
    return pairs


def plain_text(value: Any) -> str:
    """A stored value in words: `not recorded` for None, yes or no for a bool."""
    if value is None:
        return "not recorded"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(plain_text, value)) or EMPTY_CELL
    if isinstance(value, float):
        return f"{value:.10g}"  # 0.1 + 0.2 is 0.3 to a reader; the card's JSON keeps every digit.
    return str(value)

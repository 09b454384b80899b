"""Parse a number as a paper prints it: value, ±, and whether it is a bound or a range."""

from __future__ import annotations

import re
from dataclasses import dataclass

from walkback.core.errors import InputError

_NUMBER = r"[-+−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
_PRINTED = re.compile(
    rf"(?P<sign>[~≈<>≤≥])?\s*(?P<low>{_NUMBER})(?:\s*±\s*(?P<spread>{_NUMBER})|\s*[–…]\s*(?P<high>{_NUMBER}))?\s*"
    r"(?P<unit>pp|×|%|σ)?"
)


@dataclass(frozen=True)
class Printed:
    """A printed number."""

    low: float
    high: float
    """Equal to `low` unless a range is printed."""
    spread: float | None
    sign: str
    """~ or ≈ (about), < ≤ > ≥ (a bound), or nothing."""

    @property
    def bounds(self) -> str:
        """`above` or `below` for a bound, empty for a value."""
        return {"<": "below", "≤": "below", ">": "above", "≥": "above"}.get(self.sign, "")

    def times(self, factor: float) -> Printed:
        """The number in another unit: multiplied by a factor."""
        spread = None if self.spread is None else factor * self.spread
        return Printed(factor * self.low, factor * self.high, spread, self.sign)


def parse(text: str) -> Printed:
    """Parse `0.615 ± 0.003`, `~4e-4`, `4.0 ± 0.1e4`, `+26.6 pp`, `1e7–1e8`, `> 1e-6`."""
    found = _PRINTED.fullmatch(text)
    if found is None:
        raise InputError(f"Cannot read the printed figure '{text}'; expected a form such as '0.615 ± 0.003'.")
    first, second, spread = found["low"], found["high"], found["spread"]
    if spread is not None and "e" in spread and "e" not in first:
        first += spread[spread.index("e") :]  # 4.0 ± 0.1e4: the exponent applies to both.
    low = _read(first)
    high = low if second is None else _read(second)
    if found["unit"] == "%":
        low, high = low / 100, high / 100
    return Printed(min(low, high), max(low, high), None if spread is None else _read(spread), found["sign"] or "")


def _read(text: str) -> float:
    return float(text.replace("−", "-").replace(",", ""))

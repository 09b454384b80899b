"""Parse a number as a paper prints it: value, ±, printed precision, and whether it is a bound or a range."""

from __future__ import annotations

import math
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
    half: float
    """Half a unit of the last printed digit: the largest rounding error."""
    digits: int
    """Number of significant digits."""

    @property
    def is_range(self) -> bool:
        return self.high > self.low

    @property
    def is_rough(self) -> bool:
        """Printed as `about`, or with one digit."""
        return self.sign in ("~", "≈") or self.digits == 1

    @property
    def bounds(self) -> str:
        """`above` or `below` for a bound, empty for a value."""
        return {"<": "below", "≤": "below", ">": "above", "≥": "above"}.get(self.sign, "")

    def times(self, factor: float) -> Printed:
        """The number in another unit: multiplied by a factor."""
        spread = None if self.spread is None else factor * self.spread
        return Printed(factor * self.low, factor * self.high, spread, self.sign, factor * self.half, self.digits)


def parse(text: str) -> Printed:
    """Parse `0.615 ± 0.003`, `~4e-4`, `4.0 ± 0.1e4`, `+26.6 pp`, `1e7–1e8`, `> 1e-6`."""
    found = _PRINTED.fullmatch(text)
    if found is None:
        raise InputError(f"Cannot read the printed figure '{text}'; expected a form such as '0.615 ± 0.003'.")
    first, second, spread = found["low"], found["high"], found["spread"]
    if spread is not None and "e" in spread and "e" not in first:
        first += spread[spread.index("e") :]  # 4.0 ± 0.1e4: the exponent applies to both.
    low, half, digits = _read(first)
    high = low if second is None else _read(second)[0]
    if second is not None:
        half, digits = max(half, _read(second)[1]), min(digits, _read(second)[2])
    if found["unit"] == "%":
        low, high, half = low / 100, high / 100, half / 100
    return Printed(
        min(low, high), max(low, high), None if spread is None else _read(spread)[0], found["sign"] or "", half, digits
    )


def _read(text: str) -> tuple[float, float, int]:
    """Value, half a unit of its last digit, and significant digits; trailing zeros of a whole number do not count."""
    plain = text.replace("−", "-").replace(",", "")
    mantissa, _, exponent = plain.partition("e")
    whole, _, decimals = mantissa.lstrip("+-").partition(".")
    place = int(exponent or 0) - len(decimals)
    digits = (whole + decimals).lstrip("0")
    if not decimals and not exponent and digits.rstrip("0"):
        dropped = len(digits) - len(digits.rstrip("0"))
        digits, place = digits[: len(digits) - dropped], place + dropped
    return float(plain), 0.5 * math.pow(10, place), max(1, len(digits))

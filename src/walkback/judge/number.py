"""A number with a status, so that an invalid measurement cannot be printed by accident.

A number whose precondition failed has no value: tables, captions and format strings show INVALID and the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from walkback.judge.card_part import CardPart


@dataclass(frozen=True)
class Number(CardPart):
    """A value, or the reason why there is none. The reason of a valid number is a caveat ("direction not checked")."""

    value: float | None
    status: Literal["ok", "invalid", "missing"]
    reason: str = ""

    def __post_init__(self) -> None:
        assert (self.value is not None) == (self.status == "ok")
        assert self.status == "ok" or self.reason

    @staticmethod
    def of(value: float, caveat: str = "") -> Number:
        """A valid number, or an invalid one where `value` is not finite."""
        if not math.isfinite(value):
            return Number.invalid("it is not a finite number")
        return Number(float(value), "ok", caveat)

    @staticmethod
    def invalid(reason: str) -> Number:
        return Number(None, "invalid", reason)

    @staticmethod
    def missing(reason: str) -> Number:
        return Number(None, "missing", reason)

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def known(self) -> float:
        """The value; the caller has checked `ok`."""
        assert self.value is not None, self.reason
        return self.value

    @property
    def word(self) -> str:
        """The text shown in place of the value."""
        return "INVALID" if self.status == "invalid" else "NOT MEASURED"

    def short(self, spec: str) -> str:
        """The value without its reason, or `word`: for narrow columns with the reasons printed below."""
        return format(self.value, spec) if self.ok else self.word

    def __format__(self, spec: str) -> str:
        if self.ok:
            shown = format(self.value, spec)
            return f"{shown} ({self.reason})" if self.reason else shown
        return f"{self.word} ({self.reason})"

    def __str__(self) -> str:
        return format(self, ".4g")


def first_bad(numbers: Iterable[Number]) -> Number | None:
    """The first number without a value, an invalid one before a missing one; None if all have values."""
    bad = [number for number in numbers if not number.ok]
    return min(bad, key=lambda number: number.status, default=None)

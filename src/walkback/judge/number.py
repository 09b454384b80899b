"""A number that knows whether it may be shown.

A number whose precondition failed has no value at all, so no table, caption or format string can print it by accident:
it prints INVALID and its reason instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Number:
    """A value, or why there is none; a value may carry a caveat as its reason ("direction not checked")."""

    value: float | None
    status: Literal["ok", "invalid", "missing"]
    reason: str = ""

    def __post_init__(self) -> None:
        assert (self.value is not None) == (self.status == "ok")
        assert self.status == "ok" or self.reason

    @staticmethod
    def of(value: float, caveat: str = "") -> Number:
        """The number, or INVALID where it is not finite."""
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
        """The value, where the caller has seen that there is one."""
        assert self.value is not None, self.reason
        return self.value

    @property
    def word(self) -> str:
        """What stands where the value would stand."""
        return "INVALID" if self.status == "invalid" else "NOT MEASURED"

    def short(self, spec: str) -> str:
        """For a narrow column whose reasons are printed below it: the value, or the word in its place."""
        return format(self.value, spec) if self.ok else self.word

    def __format__(self, spec: str) -> str:
        if self.ok:
            shown = format(self.value, spec)
            return f"{shown} ({self.reason})" if self.reason else shown
        return f"{self.word} ({self.reason})"

    def __str__(self) -> str:
        return format(self, ".4g")

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "status": self.status, "reason": self.reason}


def first_bad(numbers: Iterable[Number]) -> Number | None:
    """The first number that may not be used: an invalid one before a missing one; None where all are good."""
    bad = [number for number in numbers if not number.ok]
    return min(bad, key=lambda number: number.status, default=None)

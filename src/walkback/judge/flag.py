"""The outcome of a check, with its value, threshold and reason.

A flag is `raised` where the check fails and `clear` where it passes; these are the words stored in cards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from walkback.judge.card_part import CardPart, NonNegative

FlagStatus = Literal["raised", "clear", "missing", "not_informative"]
FLAG_STATUSES: tuple[FlagStatus, ...] = ("raised", "clear", "missing", "not_informative")

ShownStatus = Literal["FAIL", "PASS", "NOT MEASURED", "NOT INFORMATIVE", "INVALID"]

RESULT_WORDS = {"PASS": "passes", "FAIL": "fails"}
"""Displayed words for a check's stored result; INVALID, NOT MEASURED and NOT INFORMATIVE are displayed as stored."""
STATUS_TEXT: dict[FlagStatus, ShownStatus] = {
    "raised": "FAIL",
    "clear": "PASS",
    "missing": "NOT MEASURED",
    "not_informative": "NOT INFORMATIVE",
}


@dataclass(frozen=True)
class Flag(CardPart):
    """The outcome of one check."""

    id: str
    name: str
    status: FlagStatus
    reason: str
    value: float | None = None
    unit: str = ""
    threshold: float | None = None
    side: Literal["above", "below"] = "above"
    """On which side of the threshold the check fails."""
    layer: NonNegative | None = None
    n: NonNegative = 0
    counts: str = "samples"
    """What n counts."""
    interval: tuple[float, float] | None = None
    margin: float | None = None
    """How far the value is from the threshold: a factor of at least 1, or for D3 a difference in percentage points."""
    flips_at: float | None = None
    """The threshold at which the result changes; None where there is no such threshold."""
    invalid: bool = False
    """Whether it is missing because a precondition failed rather than because nothing was measured."""
    is_fitted: bool = False
    """D2 only: whether a small error explains the small gradient, so that nothing has collapsed."""
    decides: bool = True
    """Whether an edition of the protocol may use it for its verdict."""

    JSON_KEYS = (
        "id", "name", "status", "shown", "value", "unit", "threshold", "side", "layer", "n", "counts", "interval",
        "margin", "flips_at", "decides", "reason",
    )  # fmt: skip

    def __post_init__(self) -> None:
        assert self.status == "missing" or not self.invalid

    @property
    def shown(self) -> ShownStatus:
        """The result as cards store it."""
        return "INVALID" if self.invalid else STATUS_TEXT[self.status]

    @property
    def displayed(self) -> str:
        """The result as people read it: fails, passes, or `shown`."""
        return RESULT_WORDS.get(self.shown, self.shown)

    @property
    def truth(self) -> bool | None:
        """True if raised, False if clear, None if unknown."""
        return {"raised": True, "clear": False}.get(self.status)


def factor(value: float, threshold: float) -> float | None:
    """The factor, at least 1, between a value and its threshold; None if one of them is not positive."""
    if value <= 0 or threshold <= 0:
        return None
    return max(value / threshold, threshold / value)

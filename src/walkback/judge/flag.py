"""What a check found: raised, clear, missing or not informative, with everything needed to argue about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

FlagStatus = Literal["raised", "clear", "missing", "not_informative"]
FLAG_STATUSES: tuple[FlagStatus, ...] = ("raised", "clear", "missing", "not_informative")

STATUS_TEXT: dict[FlagStatus, str] = {
    "raised": "FAIL",
    "clear": "PASS",
    "missing": "NOT MEASURED",
    "not_informative": "NOT INFORMATIVE",
}


@dataclass(frozen=True)
class Flag:
    """The outcome of one check."""

    id: str
    name: str
    status: FlagStatus
    reason: str
    value: float | None = None
    unit: str = ""
    threshold: float | None = None
    side: Literal["above", "below"] = "above"
    """On which side of the threshold the flag is raised."""
    layer: int | None = None
    n: int = 0
    counts: str = "samples"
    """What n counts."""
    interval: tuple[float, float] | None = None
    margin: float | None = None
    """How far the value is from the threshold: a factor of at least 1, or for D3 a difference in percentage points."""
    flips_at: float | None = None
    """The threshold at which the flag changes; None where none would."""
    invalid: bool = False
    """Missing because a precondition of the measurement failed, not because nothing was measured."""
    decides: bool = True
    """Whether an edition of the protocol may use it for its verdict."""

    def __post_init__(self) -> None:
        assert self.status == "missing" or not self.invalid

    @property
    def shown(self) -> str:
        return "INVALID" if self.invalid else STATUS_TEXT[self.status]

    @property
    def truth(self) -> bool | None:
        """Raised, not raised, or unknown."""
        return {"raised": True, "clear": False}.get(self.status)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "shown": self.shown,
            "value": finite(self.value),
            "unit": self.unit,
            "threshold": self.threshold,
            "side": self.side,
            "layer": self.layer,
            "n": self.n,
            "counts": self.counts,
            "interval": None if self.interval is None else list(self.interval),
            "margin": finite(self.margin),
            "flips_at": finite(self.flips_at),
            "decides": self.decides,
            "reason": self.reason,
        }


def factor(value: float, threshold: float) -> float | None:
    """How many-fold the value lies from its threshold, whichever is larger; None where a factor has no meaning."""
    if value <= 0 or threshold <= 0:
        return None
    return max(value / threshold, threshold / value)


def finite(value: float | None) -> float | None:
    """The value as JSON may hold it; the reason beside it says why there is none."""
    return value if value is not None and math.isfinite(value) else None

"""What became of a card that was checked against its run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class VerificationCheck:
    """One thing that was looked at."""

    what: str
    status: Literal["ok", "differs", "not_checked"]
    said: str
    """What was found: both values where they differ, the reason where nothing could be checked."""

    @property
    def shown(self) -> str:
        return {"ok": "OK", "differs": "DIFFERS", "not_checked": "NOT CHECKED"}[self.status]

    def to_json(self) -> dict[str, str]:
        return {"what": self.what, "status": self.status, "said": self.said}


@dataclass(frozen=True)
class Verification:
    """What became of a card."""

    card: str
    bundle: str
    checks: tuple[VerificationCheck, ...]
    unmeasured: str = ""
    """Why it could not be measured again; empty where it was, or where a difference came first."""
    notes: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[VerificationCheck, ...]:
        return tuple(check for check in self.checks if check.status == "differs")

    @property
    def outcome(self) -> Literal["confirmed", "refuted", "not_measured"]:
        """One difference refutes; without any, a card is confirmed only where its numbers were measured again."""
        if self.differences:
            return "refuted"
        return "not_measured" if self.unmeasured else "confirmed"

    @property
    def confirmed(self) -> bool:
        return self.outcome == "confirmed"

    @property
    def line(self) -> str:
        if self.outcome == "refuted":
            named = [f"{check.what} ({check.said})" for check in self.differences]
            more = f"; and {len(named) - 5} more" if len(named) > 5 else ""
            return f"VERIFY: refuted: {'; '.join(named[:5])}{more}"
        if self.outcome == "not_measured":
            return f"VERIFY: could not measure: {self.unmeasured}"
        unchecked = ", ".join(check.what for check in self.checks if check.status == "not_checked")
        return f"VERIFY: confirmed{f' (not re-checked: {unchecked})' if unchecked else ''}"

    def to_json(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "confirmed": self.confirmed,
            "card": self.card,
            "bundle": self.bundle,
            "checks": [check.to_json() for check in self.checks],
            "unmeasured": self.unmeasured,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        width = max(len(check.what) for check in self.checks)
        rows = [f"{check.what:<{width}}  {check.shown:<11}  {check.said}" for check in self.checks]
        return "\n".join([*rows, *(f"note: {note}" for note in self.notes), self.line])

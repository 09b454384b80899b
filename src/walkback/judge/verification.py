"""The result of verifying a card by measuring its run again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class VerificationCheck:
    """One part of the card that was compared."""

    what: str
    status: Literal["ok", "differs", "not_checked"]
    detail: str
    """Both values where they differ, the reason where nothing could be checked. Its JSON key is `said`."""

    @property
    def shown(self) -> str:
        return {"ok": "OK", "differs": "DIFFERS", "not_checked": "NOT CHECKED"}[self.status]

    def to_json(self) -> dict[str, str]:
        return {"what": self.what, "status": self.status, "said": self.detail}


@dataclass(frozen=True)
class Verification:
    """All comparisons of one card with its run."""

    card: str
    bundle: str
    checks: tuple[VerificationCheck, ...]
    unmeasured: str = ""
    """Why the run could not be measured again; empty if it was, or if a difference was found before that."""
    notes: tuple[str, ...] = ()

    @property
    def differences(self) -> tuple[VerificationCheck, ...]:
        return tuple(check for check in self.checks if check.status == "differs")

    @property
    def outcome(self) -> Literal["confirmed", "refuted", "not_measured"]:
        """Refuted by any difference; otherwise confirmed if the numbers were measured again, else not measured."""
        if self.differences:
            return "refuted"
        return "not_measured" if self.unmeasured else "confirmed"

    @property
    def confirmed(self) -> bool:
        return self.outcome == "confirmed"

    @property
    def line(self) -> str:
        if self.outcome == "refuted":
            named = [f"{check.what} ({check.detail})" for check in self.differences]
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
        rows = [f"{check.what:<{width}}  {check.shown:<11}  {check.detail}" for check in self.checks]
        return "\n".join([self.line, *rows, *(f"note: {note}" for note in self.notes)])

"""A claim and its outcome: what may be said about alignment, depth or credit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from walkback.judge.card_part import CardPart
from walkback.judge.decision_table import Facts, TableRow

Question = Literal["alignment", "depth", "credit"]

ClaimOutcome = Literal[
    "stands", "walked_back", "detectable_small", "trivial", "not_made", "not_applicable", "inconclusive",
    "invalid", "not_checked", "not_informative", "cannot_be_judged",
    "not_the_credit", "attributable_to_credit", "costs", "as_good_as_exact",
]  # fmt: skip

CHECKPOINT = "this checkpoint"
"""The scope of a claim that is based on one seed."""

_WORDS: dict[ClaimOutcome, str] = {
    "detectable_small": "detectable, small",
    "not_the_credit": "not the credit",
    "attributable_to_credit": "attributable to the credit",
    "as_good_as_exact": "as good as exact credit",
}


@dataclass(frozen=True)
class Claim(CardPart):
    """One claim and its outcome."""

    question: Question
    outcome: ClaimOutcome
    reason: str
    name: str = ""
    """What walks it back (noise, null, no margin, ...), or what the exact credit gains."""
    p: float | None = None
    """Depth only: two-sided p-value of the hypothesis that the true margin equals the threshold."""
    row: str = ""
    """The row of the claim's table that decided."""
    scope: str = ""
    """What a claim from one seed is about; empty where it is about the method."""

    JSON_KEYS = ("question", "outcome", "shown", "name", "reason", "p", "row", "scope")
    JSON_LATER = ("row", "scope")

    @property
    def words(self) -> str:
        """The outcome in words, without what walks it back."""
        return _WORDS.get(self.outcome, self.outcome.replace("_", " "))

    @property
    def shown(self) -> str:
        detail = f": {self.name}" if self.outcome == "walked_back" and self.name else ""
        cost = f" {self.name}" if self.outcome == "costs" else ""
        return f"{self.words}{detail}{cost}{f' ({self.scope})' if self.scope else ''}"

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Claim:
        """A stored claim; cards of format 1 have neither row nor scope."""
        names = ("question", "outcome", "reason", "name", "p", "row", "scope")
        return Claim(**{name: stored[name] for name in names if name in stored})


def claim_row(
    question: Question,
    row_id: str,
    matches: Callable[[Facts], bool],
    outcome: ClaimOutcome,
    reason: str | Callable[[Facts], str],
    name: str | Callable[[Facts], str] = "",
) -> TableRow[Facts, Claim]:
    """A row of a claim's table; `reason` and `name` are texts, or functions of the facts."""

    def result(facts: Facts) -> Claim:
        why, detail = (given if isinstance(given, str) else given(facts) for given in (reason, name))
        return Claim(question, outcome, why, detail, row=row_id)

    return TableRow(row_id, matches, result)

"""The headline: one word from the claims. `HEADLINE_TABLE` decides; it is the edition `claims`, the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from walkback.judge.claim import Claim
from walkback.judge.decision_table import TableRow, always, matching_row
from walkback.judge.editions import CLAIMS_EDITION, Verdict

CLAIMED: tuple[str, ...] = ("alignment", "depth")
"""The claims that a headline answers for, unless the user claims less."""


@dataclass(frozen=True)
class HeadlineFacts:
    """The claims of a method, and whether its residual stream grows."""

    depth: Claim
    alignment: Claim
    alignment_claimed: bool = True
    grows: bool = False
    """Whether D1 fails."""

    @property
    def alignment_fails(self) -> bool:
        return self.alignment_claimed and self.alignment.outcome in ("walked_back", "invalid")

    @property
    def alignment_holds(self) -> bool:
        return not self.alignment_claimed or self.alignment.outcome in ("stands", "trivial", "not_made")


def _failing(facts: HeadlineFacts) -> list[Claim]:
    alignment = [facts.alignment] if facts.alignment_fails else []
    return [*([facts.depth] if facts.depth.outcome == "walked_back" else []), *alignment]


def _open(facts: HeadlineFacts) -> list[Claim]:
    depth = [] if facts.depth.outcome == "stands" else [facts.depth]
    return [*depth, *([] if facts.alignment_holds else [facts.alignment])]


def _verdict(outcome: str, claims: Sequence[Claim], *notes: str) -> Verdict:
    reasons = tuple(f"{claim.question} {claim.shown}: {claim.reason}" for claim in claims)
    names = tuple(claim.question for claim in claims)
    return Verdict(outcome, CLAIMS_EDITION, names, reasons, "; ".join(note for note in notes if note))  # type: ignore[arg-type]


HEADLINE_TABLE: tuple[TableRow[HeadlineFacts, Verdict], ...] = (
    TableRow(
        "cannot be judged",
        lambda f: f.depth.outcome == "cannot_be_judged",
        lambda f: _verdict("cannot_be_judged", [f.depth]),
    ),
    TableRow("walked back", lambda f: bool(_failing(f)), lambda f: _verdict("walked_back", _failing(f), f.depth.scope)),
    TableRow(
        "trustworthy",
        lambda f: f.depth.outcome == "stands" and f.alignment_holds,
        lambda f: _verdict("trustworthy", [], "scale unstable: growth (D1) fails" if f.grows else "", f.depth.scope),
    ),
    TableRow(
        "inconclusive",
        always,
        lambda f: _verdict("inconclusive", _open(f), "depth not checked" if f.depth.outcome == "not_checked" else ""),
    ),
)
"""The rows of the headline; the first that matches decides."""


def judge_headline(claims: Mapping[str, Claim], claimed: Sequence[str] = CLAIMED, *, grows: bool = False) -> Verdict:
    """The verdict of the edition `claims`."""
    facts = HeadlineFacts(claims["depth"], claims["alignment"], "alignment" in claimed, grows)
    return matching_row(HEADLINE_TABLE, facts).result(facts)

"""Decision utility: what a reader concludes of each method who looks at more and more of the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from walkback.judge.audit_table import worst_outcome
from walkback.judge.editions import EDITIONS, Edition, Outcome, apply
from walkback.judge.flag import Flag
from walkback.judge.threshold_sweep import STRATEGIES
from walkback.report.audit_page.member import EditionVerdict, Member
from walkback.report.sections import Card

_WORDS: Mapping[Outcome, str] = {
    "trustworthy": "passes",
    "walked_back": "walked back",
    "inconclusive": "not decidable",
}
GROUPS = {
    "three": tuple(name for name in STRATEGIES if name.startswith("S")),
    "four": tuple(name for name in STRATEGIES if not name.startswith("S")),
}
"""The strategies by the edition they lead up to."""


@dataclass(frozen=True)
class _Conclusion:
    """What one strategy says of one method."""

    verdict: EditionVerdict
    words: str


def conclusion_grid(members: Sequence[Member]) -> list[tuple[Member, list[_Conclusion]]]:
    """A row for each method, a conclusion for each strategy: the worst of its seeds'."""
    names = [name for group in GROUPS.values() for name in group]
    return [(member, [_concluded(member.cards, STRATEGIES[name]) for name in names]) for member in members]


def outcome(card: Card, rules: Edition) -> tuple[Outcome, tuple[str, ...]]:
    """What a strategy concludes of one card, and by which checks."""
    for name, edition in EDITIONS.items():
        # Where a strategy is an edition, the card has its verdict, which may have been withheld.
        if (edition.terms, edition.skips_depth) == (rules.terms, rules.skips_depth):
            found = card["verdicts"][name]
            return found["verdict"], tuple(found["decided_by"])
    flags = {
        check["id"]: Flag(check["id"], check["name"], check["status"], check["reason"]) for check in card["checks"]
    }
    verdict = apply(rules, flags, bool(card["claim"]["frozen"]))
    return verdict.outcome, verdict.decided_by


def _concluded(cards: Sequence[Card], rules: Edition) -> _Conclusion:
    found = [outcome(card, rules) for card in cards]
    worst_one = worst_outcome([outcome for outcome, _ in found])
    alike = [by for outcome, by in found if outcome == worst_one]
    checks = dict.fromkeys(check for by in alike for check in by)
    by = f" ({', '.join(checks)})" if checks else ""
    share = "" if len(alike) == len(found) else f" in {len(alike)} of {len(found)} seeds"
    return _Conclusion(EditionVerdict(worst_one), f"{_WORDS[worst_one]}{by}{share}")

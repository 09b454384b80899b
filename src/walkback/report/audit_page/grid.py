"""Decision utility: what a reader concludes about each method from more and more of the protocol."""

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
    "cannot_be_judged": "cannot be judged",
}
STRATEGY_GROUPS = {
    "three": tuple(name for name in STRATEGIES if name.startswith("S")),
    "four": tuple(name for name in STRATEGIES if not name.startswith("S")),
}
"""Names of the strategies by the edition that they approach step by step."""


@dataclass(frozen=True)
class _Conclusion:
    """What one strategy concludes about one method."""

    verdict: EditionVerdict
    words: str


def conclusion_grid(members: Sequence[Member]) -> list[tuple[Member, list[_Conclusion]]]:
    """A row for each method with a conclusion for each strategy, which is the worst of its seeds'."""
    names = [name for group in STRATEGY_GROUPS.values() for name in group]
    return [(member, [_conclusion(member.cards, STRATEGIES[name]) for name in names]) for member in members]


def outcome(card: Card, rules: Edition) -> tuple[Outcome, tuple[str, ...]]:
    """What a strategy concludes about one card, and by which checks."""
    for name, edition in EDITIONS.items():
        # For a strategy that is an edition the card has a verdict, which may be withheld for missing evidence.
        if (edition.terms, edition.skips_depth) == (rules.terms, rules.skips_depth):
            found = card["verdicts"][name]
            return found["verdict"], tuple(found["decided_by"])
    flags = {
        check["id"]: Flag(check["id"], check["name"], check["status"], check["reason"]) for check in card["checks"]
    }
    verdict = apply(rules, flags, bool(card["claim"]["frozen"]))
    return verdict.outcome, verdict.decided_by


def _conclusion(cards: Sequence[Card], rules: Edition) -> _Conclusion:
    outcomes = [outcome(card, rules) for card in cards]
    worst = worst_outcome([outcome for outcome, _ in outcomes])
    alike = [by for outcome, by in outcomes if outcome == worst]
    checks = dict.fromkeys(check for by in alike for check in by)
    by = f" ({', '.join(checks)})" if checks else ""
    share = "" if len(alike) == len(outcomes) else f" in {len(alike)} of {len(outcomes)} seeds"
    return _Conclusion(EditionVerdict(worst), f"{_WORDS[worst]}{by}{share}")

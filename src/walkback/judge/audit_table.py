"""A table of several cards: one row per method over its seeds, depth claims corrected for multiple comparisons."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from walkback.core.errors import InputError
from walkback.judge.alignment_claim import alignment_of_seeds
from walkback.judge.claim import Claim
from walkback.judge.depth_claim import depth_of_seeds, holm_depth
from walkback.judge.editions import CLAIMS_EDITION, Outcome
from walkback.judge.headline import CLAIMED, judge_headline
from walkback.judge.thresholds import DiagnosticThresholds

_Card = Mapping[str, Any]


@dataclass(frozen=True)
class EditionRuling:
    """One edition's verdict on a method over its seeds: the worst verdict of any seed."""

    outcome: Outcome
    decided_by: tuple[str, ...]
    """The checks that decided it, in any of the seeds with this outcome."""
    agreeing_seeds: int
    """Seeds with this outcome."""
    seeds: int

    def to_json(self) -> dict[str, Any]:
        return {
            "outcome": self.outcome,
            "decided_by": self.decided_by,
            "like": self.agreeing_seeds,
            "seeds": self.seeds,
        }


@dataclass(frozen=True)
class AuditRow:
    """One method on one network and data set, over its seeds."""

    method: str
    arch: str
    data: str
    cards: tuple[_Card, ...]
    """One for each measured seed, sorted by seed."""
    rulings: Mapping[str, EditionRuling]
    """By edition."""
    claims: Mapping[str, Claim]
    """`alignment`: stands only if it stands in every seed. `depth`: after Holm's correction over the table. `credit`:
    over all seeds; cards of format 1 have none."""

    @property
    def place(self) -> str:
        return f"{self.arch} on {self.data}"

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "arch": self.arch,
            "data": self.data,
            "seeds": [card["claim"]["seed"] for card in self.cards],
            "rulings": {name: ruling.to_json() for name, ruling in self.rulings.items()},
            "claims": {name: claim.to_json() for name, claim in self.claims.items()},
            "cards": list(self.cards),
        }


@dataclass(frozen=True)
class AuditTable:
    """The judged rows of a table."""

    rows: tuple[AuditRow, ...]
    protocol: str
    """The edition that decides."""

    @property
    def verdict(self) -> Outcome:
        """The worst verdict of its methods."""
        return worst_outcome([row.rulings[self.protocol].outcome for row in self.rows])

    def to_json(self) -> dict[str, Any]:
        rows = [row.to_json() for row in self.rows]
        return {"format": 2, "protocol": self.protocol, "verdict": self.verdict, "rows": rows}


def make_audit_table(cards: Sequence[_Card]) -> AuditTable:
    """The table of the cards of several methods and seeds; methods in the order in which they first appear."""
    if not cards:
        raise InputError("There are no cards to put into a table; give at least one.")
    first = cards[0]
    thresholds = [DiagnosticThresholds.from_json(card["thresholds"]) for card in cards]
    if any(card["protocol"] != first["protocol"] for card in cards) or any(t != thresholds[0] for t in thresholds):
        raise InputError("The cards were judged by different editions or thresholds. Judge them all alike first.")
    methods = _by_method(cards)
    depth = {
        str(row): depth_of_seeds([Claim.from_json(card["claims"]["depth"]) for card in found])
        for row, found in enumerate(methods)
    }
    audited = {row: claim for row, claim in depth.items() if not is_reference(methods[int(row)][0]["claim"]["method"])}
    depth |= holm_depth(audited, thresholds[0])
    rows = []
    for index, found in enumerate(methods):
        alignments = [Claim.from_json(card["claims"]["alignment"]) for card in found]
        claims = {"alignment": alignment_of_seeds(alignments), "depth": depth[str(index)]}
        if "credit" in found[0]["claims"]:
            claims["credit"] = Claim.from_json(found[0]["claims"]["credit"])
        editions = {name: _ruling([card["verdicts"][name] for card in found]) for name in first["verdicts"]}
        if CLAIMS_EDITION in editions:
            editions[CLAIMS_EDITION] = _headline(found, claims, editions[CLAIMS_EDITION])
        rows.append(AuditRow(*_key(found[0]), tuple(found), editions, claims))
    return AuditTable(tuple(rows), first["protocol"])


def is_reference(method: str) -> bool:
    """Whether a row is backprop, an oracle or a frozen baseline: it is compared with, not audited."""
    name, _, settings = method.partition(":")
    return name == "bp" or any(text.startswith(("credit=", "shell=")) for text in settings.split(","))


def _headline(cards: Sequence[_Card], claims: Mapping[str, Claim], of_cards: EditionRuling) -> EditionRuling:
    """The headline over seeds, from the claims of the table; evidence that a card lacks leaves it inconclusive."""
    if any(not card["verdicts"][CLAIMS_EDITION]["decided_by"] for card in cards) and of_cards.outcome == "inconclusive":
        return of_cards
    grows = any(check["id"] == "D1" and check["status"] == "raised" for card in cards for check in card["checks"])
    verdict = judge_headline(claims, cards[0].get("claimed", CLAIMED), grows=grows)
    alike = sum(card["verdicts"][CLAIMS_EDITION]["verdict"] == verdict.outcome for card in cards)
    return EditionRuling(verdict.outcome, verdict.decided_by, alike or len(cards), len(cards))


def _key(card: _Card) -> tuple[str, str, str]:
    claim = card["claim"]
    return claim["method"], claim["arch"], claim["data"]


def _by_method(cards: Sequence[_Card]) -> list[list[_Card]]:
    """The cards of each method, sorted by seed; a card without a seed gets a row of its own."""
    methods: dict[Hashable, list[_Card]] = {}
    for index, card in enumerate(cards):
        own_row = index if card["claim"]["seed"] is None else None
        methods.setdefault((_key(card), own_row), []).append(card)
    return [sorted(found, key=lambda card: card["claim"]["seed"] or 0) for found in methods.values()]


def worst_outcome(outcomes: Sequence[Outcome]) -> Outcome:
    """The worst of several outcomes: walked back, cannot be judged, inconclusive, trustworthy."""
    order: tuple[Outcome, ...] = ("walked_back", "cannot_be_judged", "inconclusive", "trustworthy")
    return min(outcomes, key=order.index)


def _ruling(verdicts: Sequence[Mapping[str, Any]]) -> EditionRuling:
    found = worst_outcome([verdict["verdict"] for verdict in verdicts])
    alike = [verdict for verdict in verdicts if verdict["verdict"] == found]
    flags = tuple(dict.fromkeys(flag for verdict in alike for flag in verdict["decided_by"]))
    return EditionRuling(found, flags, len(alike), len(verdicts))

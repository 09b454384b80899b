"""The summary of an audit in a terminal: one line for each method, verdict first, and why a method may claim less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from textwrap import TextWrapper
from typing import Any

from walkback.judge.audit_table import AuditRow, AuditTable
from walkback.judge.claim import Claim
from walkback.judge.editions import CLAIMS_EDITION, Outcome
from walkback.judge.statistics import digits_of
from walkback.report.cells import tidy

MARKS: Mapping[Outcome, str] = {
    "trustworthy": "✓",
    "walked_back": "✗",
    "inconclusive": "?",
    "cannot_be_judged": "!",
}
ASCII_MARKS: Mapping[Outcome, str] = {
    "trustworthy": "ok",
    "walked_back": "no",
    "inconclusive": "?",
    "cannot_be_judged": "!",
}
"""The marks where the terminal cannot show the others."""
_SHOWN_CLAIMS = ("depth", "alignment")
_WIDTH = 100


def verdict_lines(table: AuditTable, marks: Mapping[Outcome, str] = MARKS) -> list[str]:
    """The lines of all methods, aligned; each method that is not trustworthy is followed by its reasons."""
    places = {row.place for row in table.rows}
    heads = [_head(row, table.protocol, marks, named=len(places) > 1) for row in table.rows]
    widths = [max(len(head[column]) for head in heads) for column in range(len(heads[0]))]
    lines = []
    for row, head in zip(table.rows, heads, strict=True):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(head, widths, strict=True)).rstrip())
        if row.rulings[table.protocol].outcome != "trustworthy":
            lines += _why(row, table.protocol)
    return lines


def _head(row: AuditRow, protocol: str, marks: Mapping[Outcome, str], named: bool) -> tuple[str, ...]:
    name = f"{row.method} ({row.place})" if named else row.method
    return marks[row.rulings[protocol].outcome], name, *facts_of(row), claims_text(row.claims)


def facts_of(row: AuditRow) -> tuple[str, str, str]:
    """Accuracy or loss, what the trained blocks add, and the growth of a method."""
    card = row.cards[0]
    claim = card["claim"]
    accuracies, losses = claim["headline_acc"], claim.get("losses")
    accuracy = f"{100 * fmean(accuracies):.1f} %" if accuracies else "accuracy not given"
    loss = f"loss {fmean(losses['headline']):.3f}" if losses and losses["headline"] else ""
    return loss or accuracy, _gain(card), _growth(row.cards)


def _checks(cards: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [check for card in cards for check in card["checks"] if check["id"] == name]


def _gain(card: Mapping[str, Any]) -> str:
    (depth_utility,) = _checks([card], "D3")
    value, unit = depth_utility["value"], depth_utility["unit"]
    return "no frozen baseline" if value is None else f"blocks add {value:+.{digits_of(unit)}f} {unit}"


def _growth(cards: Sequence[Mapping[str, Any]]) -> str:
    values = [check["value"] for check in _checks(cards, "D1")]
    if any(value is None for value in values):
        return "growth not measured"
    largest = max(values)
    return f"growth {largest:,.0f}×" if largest >= 10 else f"growth {largest:.1f}×"


def claims_text(claims: Mapping[str, Claim]) -> str:
    """What the method may claim."""
    shown = [claims[name] for name in _SHOWN_CLAIMS if name in claims]
    if all(claim.outcome == "walked_back" for claim in shown):
        return f"may claim {'neither ' if len(shown) > 1 else 'no '}{' nor '.join(claim.question for claim in shown)}"
    return ", ".join(f"{claim.question} {claim.shown}" for claim in shown)


def reasons_of(row: AuditRow, protocol: str) -> list[str]:
    """The reasons of the claims that do not stand, and of the checks that fail in any seed."""
    decided_by = row.rulings[protocol].decided_by
    reasons = [f"edition {protocol}: {', '.join(decided_by)}"] if protocol != CLAIMS_EDITION and decided_by else []
    reasons += [
        f"{claim.question}: {claim.reason}"
        for name in _SHOWN_CLAIMS
        if (claim := row.claims.get(name)) and claim.outcome not in ("stands", "trivial", "not_made", "not_applicable")
    ]
    return reasons + [
        words
        for name, words in _FAILING.items()
        if any(check["status"] == "raised" for check in _checks(row.cards, name))
    ]


def _why(row: AuditRow, protocol: str) -> list[str]:
    wrapper = TextWrapper(_WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
    first, *others = reasons_of(row, protocol) or ["see the card"]
    return [line for text in (f"Why: {first}", *others) for line in wrapper.wrap(tidy(text))]


_FAILING = {
    "D1": "growth (D1) fails: the residual stream grows from block to block",
    "D2": "the deepest reference gradient (D2) is under its floor",
}

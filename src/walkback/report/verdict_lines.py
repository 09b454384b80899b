"""The summary of an audit in a terminal: one line for each method, verdict first, and why a method may claim less."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from textwrap import TextWrapper
from typing import Any

from walkback.judge.audit_table import AuditRow, AuditTable
from walkback.judge.claim import Claim
from walkback.judge.editions import CLAIMS_EDITION, Outcome
from walkback.judge.glossary import LEGEND, SETTINGS_LEGEND
from walkback.judge.statistics import PERCENTAGE_POINTS, digits_of
from walkback.report.cells import tidy
from walkback.report.method_names import shared_settings, short_names

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
Paint = Callable[[Outcome, str], str]
"""Colours a text by a verdict."""
_SHOWN_CLAIMS = ("depth", "alignment")
_NOTHING_TO_SAY = ("trivial", "not_made", "not_applicable")
"""Outcomes of the alignment claim that the line of a method leaves out."""
_WIDTH = 100


def plain(verdict: Outcome, text: str) -> str:
    """The text without colour."""
    return text


def summary_lines(
    table: AuditTable, marks: Mapping[Outcome, str] = MARKS, paint: Paint = plain, decimals: int = 1
) -> list[str]:
    """The lines of all methods, then what their terms mean."""
    return [*verdict_lines(table, marks, paint, decimals), *_legend(table)]


def verdict_lines(
    table: AuditTable, marks: Mapping[Outcome, str] = MARKS, paint: Paint = plain, decimals: int = 1
) -> list[str]:
    """The lines of all methods, aligned; each method that is not trustworthy is followed by its reasons.

    `decimals` are those of accuracies and margins in percentage points.
    """
    places = {row.place for row in table.rows}
    names = short_names([row.method for row in table.rows])
    if len(places) > 1:
        names = [f"{name} ({row.place})" for name, row in zip(names, table.rows, strict=True)]
    verdicts = [row.rulings[table.protocol].outcome for row in table.rows]
    heads = [
        (marks[verdict], name, *facts_of(row, decimals), _short_claims(row.claims))
        for verdict, name, row in zip(verdicts, names, table.rows, strict=True)
    ]
    widths = [max(len(head[column]) for head in heads) for column in range(len(heads[0]) - 1)]
    lines = []
    for row, verdict, head in zip(table.rows, verdicts, heads, strict=True):
        mark, *middle = (cell.ljust(width) for cell, width in zip(head, widths, strict=False))
        lines.append("  ".join([paint(verdict, mark), *middle, paint(verdict, head[-1])]).rstrip())
        if verdict != "trustworthy":
            lines += _wrapped(
                f"Why: {'; '.join(_short_reasons(row, table.protocol, decimals)) or 'see the card'}.", "  "
            )
    return lines


def facts_of(row: AuditRow, decimals: int = 1) -> tuple[str, str, str]:
    """Accuracy or loss, what the trained blocks add, and the growth of a method."""
    card = row.cards[0]
    claim = card["claim"]
    accuracies, losses = claim["headline_acc"], claim.get("losses")
    accuracy = f"{100 * fmean(accuracies):.{decimals}f} %" if accuracies else "accuracy not given"
    loss = f"loss {fmean(losses['headline']):.3f}" if losses and losses["headline"] else ""
    return loss or accuracy, _gain(card, decimals), _growth(row.cards)


def _checks(cards: Sequence[Mapping[str, Any]], name: str) -> list[Mapping[str, Any]]:
    return [check for card in cards for check in card["checks"] if check["id"] == name]


def _gain(card: Mapping[str, Any], decimals: int) -> str:
    (depth_utility,) = _checks([card], "D3")
    value, unit = depth_utility["value"], depth_utility["unit"]
    return "no frozen baseline" if value is None else f"blocks add {value:+.{_digits(unit, decimals)}f} {unit}"


def _digits(unit: str, decimals: int) -> int:
    return decimals if unit == PERCENTAGE_POINTS else digits_of(unit)


def _growth(cards: Sequence[Mapping[str, Any]]) -> str:
    values = [check["value"] for check in _checks(cards, "D1")]
    if any(value is None for value in values):
        return "growth not measured"
    largest = max(values)
    if largest < 10:
        return f"growth {largest:.1f}×"
    # Two digits: the growth of a network that explodes differs from CPU to CPU after that.
    return f"growth {float(f'{largest:.1e}'):,.0f}×"


def claims_text(claims: Mapping[str, Claim]) -> str:
    """What the method may claim, with what walks a claim back."""
    return _claims_words(claims, lambda claim: claim.shown)


def _short_claims(claims: Mapping[str, Claim]) -> str:
    """The same in few words, without an alignment that says nothing."""
    kept = {
        name: claim
        for name, claim in claims.items()
        if claim.question == "depth" or claim.outcome not in _NOTHING_TO_SAY
    }
    return _claims_words(kept, lambda claim: claim.words)


def _claims_words(claims: Mapping[str, Claim], words: Callable[[Claim], str]) -> str:
    shown = [claims[name] for name in _SHOWN_CLAIMS if name in claims]
    if all(claim.outcome == "walked_back" for claim in shown):
        return f"may claim {'neither ' if len(shown) > 1 else 'no '}{' nor '.join(claim.question for claim in shown)}"
    return ", ".join(f"{claim.question} {words(claim)}" for claim in shown)


def reasons_of(row: AuditRow, protocol: str) -> list[str]:
    """The reasons of the claims that do not stand, and of the checks that fail in any seed."""
    open_claims = [f"{claim.question}: {claim.reason}" for claim in _open_claims(row)]
    return [*_deciding_checks(row, protocol), *open_claims, *_failing_checks(row)]


def _short_reasons(row: AuditRow, protocol: str, decimals: int) -> list[str]:
    """The same in few words: the card and the page have the numbers."""
    open_claims = [tidy(_short_reason(claim, row.cards[0], decimals)) for claim in _open_claims(row)]
    return [*_deciding_checks(row, protocol), *open_claims, *_failing_checks(row)]


def _deciding_checks(row: AuditRow, protocol: str) -> list[str]:
    decided_by = row.rulings[protocol].decided_by
    return [f"edition {protocol}: {', '.join(decided_by)}"] if protocol != CLAIMS_EDITION and decided_by else []


def _open_claims(row: AuditRow) -> list[Claim]:
    found = [row.claims[name] for name in _SHOWN_CLAIMS if name in row.claims]
    return [claim for claim in found if claim.outcome not in ("stands", *_NOTHING_TO_SAY)]


def _short_reason(claim: Claim, card: Mapping[str, Any], decimals: int) -> str:
    short = _SHORT_REASONS.get((claim.question, claim.row))
    if short is None:
        return f"{claim.question}: {claim.reason}"
    statistics = card["statistics"]
    if statistics["interval"] is None:
        return short
    digits, (low, high) = _digits(statistics["unit"], decimals), statistics["interval"]
    interval = f"{statistics['confidence']:.0%} interval {low:+.{digits}f} to {high:+.{digits}f} {statistics['unit']}"
    return short.format(interval=interval)


def _failing_checks(row: AuditRow) -> list[str]:
    return [
        words
        for name, words in _FAILING.items()
        if any(check["status"] == "raised" for check in _checks(row.cards, name))
    ]


_SHORT_REASONS: Mapping[tuple[str, str], str] = {
    ("depth", "no margin"): "trained blocks do no better than random ones ({interval})",
    ("depth", "undecided"): "whether the blocks help is open ({interval})",
    ("depth", "holm"): "whether the blocks help is open after correcting for the number of methods",
    ("alignment", "noise"): "the gradient that the credit is compared with is numerical noise",
    ("alignment", "anti-aligned"): "its credit points against the gradient",
    ("alignment", "absent"): "its credit is no closer to the gradient than chance",
    ("alignment", "absent, fresh"): "its credit is no closer to the gradient than chance",
    ("alignment", "not shown"): "its credit is not shown closer to the gradient than chance",
    ("alignment", "not shown, fresh"): "its credit is not shown closer to the gradient than chance",
    ("alignment", "skip path"): "its credit is aligned only via the skip connections",
    ("alignment", "blocks"): "some blocks get credit that is no closer to the gradient than chance",
    ("alignment", "update"): "some blocks get updates that are no closer to the gradient than chance",
    (
        "alignment",
        "blocks not shown",
    ): "not every block's credit is shown closer to the gradient than chance",
    (
        "alignment",
        "update not shown",
    ): "not every block's update is shown closer to the gradient than chance",
}
"""What a row of a claim's table means, in few words; for another row its whole reason is printed."""
_FAILING = {
    "D1": "hidden norms explode",
    "D2": "the deepest gradient vanishes",
}


def _legend(table: AuditTable) -> list[str]:
    """What the terms mean, and what all methods share."""
    seeds = max(len(row.cards[0]["claim"]["headline_acc"]) for row in table.rows)
    about = [f"mean of {seeds} seeds" if seeds > 1 else "one seed: claims are about these weights only"]
    shared = shared_settings([row.method for row in table.rows])
    if shared:
        about.append(f"all but bp with {', '.join(shared)}")
    names = ", ".join(short_names([row.method for row in table.rows])).split(", ")
    shown = {**{name: text for name, text in SETTINGS_LEGEND.items() if name in names}, **LEGEND}
    limit = table.rows[0].cards[0]["thresholds"]["h_norm_explosion_ratio"]
    terms = [f"{term}: {text.format(limit=limit)}" for term, text in shown.items()]
    return _wrapped(f"{'; '.join([*terms, *about])}.", "")


def _wrapped(text: str, indent: str) -> list[str]:
    return TextWrapper(_WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False).wrap(
        text
    )

"""The sentence at the top of the audit page: how many of the methods may claim what. `page.js` writes the same."""

from __future__ import annotations

from collections.abc import Sequence

from walkback.judge.audit_table import AuditTable
from walkback.judge.editions import CLAIMS_EDITION, Outcome
from walkback.report.sections import VERDICT_PHRASES

_OPEN_DEPTH = "Whether {} this network’s depth is not decided"


def audit_sentence(table: AuditTable) -> str:
    """What the methods of a table may claim, counted."""
    if table.protocol != CLAIMS_EDITION:
        return _by_edition(table.protocol, [row.rulings[table.protocol].outcome for row in table.rows])
    depth = _depth_sentence([row.claims["depth"].outcome for row in table.rows])
    unaligned = sum(row.claims["alignment"].outcome in ("walked_back", "invalid") for row in table.rows)
    if not unaligned:
        return depth
    its = "its" if unaligned == 1 else "their"
    who = "It" if len(table.rows) == 1 else str(unaligned)
    return f"{depth} {who} may not claim that {its} training signal is aligned with the gradient."


def _depth_sentence(outcomes: Sequence[str]) -> str:
    n = len(outcomes)
    may, may_not = outcomes.count("stands"), sum(each in ("walked_back", "cannot_be_judged") for each in outcomes)
    undecided = n - may - may_not
    if n == 1:
        word = "may" if may else "may not" if may_not else ""
        train = "that it trains this network’s depth"
        return f"The method {word} claim {train}." if word else f"{_OPEN_DEPTH.format('the method trains')}."
    if undecided == n:
        return f"{_OPEN_DEPTH.format(f'the {n} methods train')}."
    lead, word = (may_not, "may not") if may_not else (may, "may")
    trains = "it trains" if lead == 1 else "they train"
    others = [f"{may} may"] if may and may_not else []
    others += [f"for {undecided} this is not decided"] if undecided else []
    return "; ".join([f"Of {n} methods, {lead} {word} claim that {trains} this network’s depth", *others]) + "."


def _by_edition(name: str, outcomes: Sequence[Outcome]) -> str:
    what = "the method" if len(outcomes) == 1 else f"{len(outcomes)} methods"
    return f"By the rule of edition {name}, of {what}: {counted_verdicts(outcomes)}."


def counted_verdicts(outcomes: Sequence[Outcome]) -> str:
    """`2 need walk-back, 1 is trustworthy`."""
    counts = {outcome: list(outcomes).count(outcome) for outcome in VERDICT_PHRASES if outcome in outcomes}
    return ", ".join(f"{count} {VERDICT_PHRASES[outcome][count > 1]}" for outcome, count in counts.items())

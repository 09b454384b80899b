"""The depth claim: does training the blocks help, compared with blocks frozen at random?

`depth_facts` collects the margins, `DEPTH_TABLE` decides, `holm_depth` corrects for the number of methods in a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from walkback.judge.claim import CHECKPOINT, Claim, claim_row
from walkback.judge.decision_table import TableRow, always, matching_row
from walkback.judge.evidence import BP_SHELL, Evidence, mean
from walkback.judge.first_edition import first_edition_margin
from walkback.judge.statistics import (
    NATS,
    Margin,
    exact_lower_bound,
    holm,
    mean_interval,
    paired_score_margin,
    unpaired_score_margin,
    window_margin,
)
from walkback.judge.thresholds import DiagnosticThresholds

CHANCE_LEVEL = 0.975
"""Confidence of the one-sided bound on backprop's accuracy that is compared with the majority class."""
ADVISED_SEEDS = 5


@dataclass(frozen=True)
class DepthFacts:
    """The margins that the claim is decided by. Sentences are empty where there is nothing to say."""

    frozen: bool = False
    baseline: bool = True
    """Whether an accuracy and one of the deciding frozen baseline were given."""
    missing: str = ""
    """What is missing, if there is no baseline."""
    not_finite: str = ""
    """Why the model's predictions are no predictions."""
    at_chance: str = ""
    """That backprop itself is not above the majority class."""
    margin: Margin | None = None
    gate: Margin | None = None
    """Backprop's margin over its own frozen baseline."""
    line: float = 2.0
    confidence: float = 0.95

    @property
    def low(self) -> float:
        assert self.margin is not None
        assert self.margin.interval is not None
        return self.margin.interval[0]

    @property
    def high(self) -> float:
        assert self.margin is not None
        assert self.margin.interval is not None
        return self.margin.interval[1]

    @property
    def gate_interval(self) -> tuple[float, float] | None:
        return None if self.gate is None else self.gate.interval

    @property
    def unit(self) -> str:
        return "pp" if self.margin is None else self.margin.unit

    @property
    def margin_text(self) -> str:
        assert self.margin is not None
        return margin_words(self.margin, self.confidence)


def margin_words(margin: Margin, confidence: float) -> str:
    """A margin with its interval, and what the interval is over."""
    form = f"+.{margin.digits}f"
    if margin.interval is None:
        return f"{margin.mean:{form}} {margin.unit}"
    low, high = margin.interval
    counts = "windows" if margin.unit == NATS and margin.counts == "samples" else margin.counts
    over = f"over {margin.n} {counts}"
    return f"{margin.mean:{form}} {margin.unit}, {confidence:.0%} interval {low:{form}} to {high:{form}} {over}"


def _no_interval(facts: DepthFacts) -> str:
    assert facts.margin is not None
    if facts.margin.n > 1:
        why = "one number stands for several seeds on one side; give one accuracy per seed on both sides"
    else:
        why = "one seed and no sample size: give test_samples=, the size of the test set, or one accuracy per seed"
    return f"{facts.margin_text}: there is no interval ({why})"


def _gate_text(facts: DepthFacts) -> str:
    if facts.gate is None:
        return "backprop's margin over its own frozen baseline is not known: give bp_acc= and the baseline 'bp_shell'"
    if facts.gate.interval is None:
        return f"backprop's margin over its own frozen baseline, {facts.gate.mean:+.1f}, has no interval"
    return f"backprop's margin over its own frozen baseline is {margin_words(facts.gate, facts.confidence)}"


DEPTH_TABLE: tuple[TableRow[DepthFacts, Claim], ...] = (
    claim_row(
        "depth", "frozen", lambda f: f.frozen, "not_applicable", "the blocks are frozen: this is the baseline itself"
    ),
    claim_row("depth", "no baseline", lambda f: not f.baseline, "not_checked", lambda f: f.missing),
    claim_row("depth", "not finite", lambda f: bool(f.not_finite), "cannot_be_judged", lambda f: f.not_finite),
    claim_row(
        "depth",
        "chance",
        lambda f: bool(f.at_chance),
        "not_informative",
        lambda f: f"nothing was learned: {f.at_chance}",
    ),
    claim_row(
        "depth",
        "no interval",
        lambda f: f.margin is None or f.margin.interval is None,
        "inconclusive",
        lambda f: _no_interval(f),
    ),
    claim_row(
        "depth",
        "stands",
        lambda f: f.low >= f.line,
        "stands",
        lambda f: f"{f.margin_text}: at or above {f.line:g} {f.unit}",
    ),
    claim_row(
        "depth",
        "depth not needed",
        lambda f: f.gate_interval is not None and f.gate_interval[1] < f.line,
        "not_informative",
        lambda f: f"depth is not needed here: {_gate_text(f)} ({f.margin_text})",
    ),
    claim_row(
        "depth",
        "gate undecided",
        lambda f: f.gate_interval is None or f.gate_interval[0] < f.line,
        "inconclusive",
        lambda f: f"{f.margin_text}; whether depth is needed here is not decided: {_gate_text(f)}",
    ),
    claim_row(
        "depth",
        "no margin",
        lambda f: f.high < f.line,
        "walked_back",
        lambda f: f"{f.margin_text}: under {f.line:g} {f.unit}",
        "no margin",
    ),
    claim_row(
        "depth",
        "undecided",
        always,
        "inconclusive",
        lambda f: f"{f.margin_text}: {f.line:g} {f.unit} lies inside{_more_seeds(f)}",
    ),
)
"""The rows of the depth claim; the first that matches decides."""


def _more_seeds(facts: DepthFacts) -> str:
    few = facts.margin is not None and facts.margin.counts == "paired seeds" and facts.margin.n < ADVISED_SEEDS
    return f"; {ADVISED_SEEDS} or more seeds are advised" if few else ""


def judge_depth(facts: DepthFacts) -> Claim:
    """The depth claim of a method over its seeds."""
    claim, margin = matching_row(DEPTH_TABLE, facts).result(facts), facts.margin
    if margin is None or margin.interval is None or claim.outcome not in ("stands", "walked_back", "inconclusive"):
        return claim
    scope = CHECKPOINT if margin.is_of_one_seed and claim.outcome != "inconclusive" else ""
    return replace(claim, p=margin.p_value(facts.line), scope=scope)


def depth_facts(
    evidence: Evidence,
    measured: Sequence[bool],
    t: DiagnosticThresholds,
    *,
    frozen: bool = False,
    missing: str = "",
    not_finite: str = "",
    majority_share: float | None = None,
    unigram_entropy: float | None = None,
    first_edition: bool = False,
) -> DepthFacts:
    """The facts of one method: `measured` is the correctness of the measured samples, `missing` what D3 lacks.

    With `first_edition` the interval over samples is that of cards of format 1.
    """
    margin = depth_margin(evidence, measured, t, first_edition)
    return DepthFacts(
        frozen=frozen,
        baseline=margin is not None,
        missing=missing,
        not_finite=not_finite,
        at_chance=_at_chance(evidence, majority_share) or _loss_at_chance(evidence, unigram_entropy),
        margin=margin,
        gate=backprop_margin(evidence, t),
        line=t.depth_line(evidence.unit),
        confidence=t.confidence,
    )


def depth_margin(
    evidence: Evidence, measured: Sequence[bool], t: DiagnosticThresholds, first_edition: bool = False
) -> Margin | None:
    """The margin with its interval: over seeds; for one seed over samples with known correctness, else over a test set
    of known size."""
    null = evidence.deciding
    if evidence.losses is not None:
        return _loss_margin(evidence, evidence.losses.headline, "headline", null, t)
    ours = evidence.correct or tuple(measured)
    return _margin(evidence, evidence.headline_acc, ours, null, t, first_edition)


def _loss_margin(
    evidence: Evidence, ours: Sequence[float], who: str, null: str, t: DiagnosticThresholds
) -> Margin | None:
    """The margin of losses: over seeds; for one seed over windows whose losses are known."""
    margin = evidence.margin_of(ours, null, t.confidence)
    windows = {} if evidence.losses is None else evidence.losses.windows
    if margin is None or margin.interval is not None or len(ours) != 1 or not {who, null} <= windows.keys():
        return margin
    return window_margin(windows[who], windows[null], t.confidence)


def backprop_margin(evidence: Evidence, t: DiagnosticThresholds) -> Margin | None:
    """Backprop's margin over its own frozen baseline, with its interval; None if one of the two is not known."""
    if evidence.losses is not None:
        return _loss_margin(evidence, evidence.losses.bp, "bp", BP_SHELL, t)
    return _margin(evidence, evidence.bp_acc, evidence.bp_correct, BP_SHELL, t)


def _margin(
    evidence: Evidence,
    ours: Sequence[float],
    correct: Sequence[bool],
    null: str,
    t: DiagnosticThresholds,
    first_edition: bool = False,
) -> Margin | None:
    theirs = evidence.frozen.get(null)
    if not ours or not theirs:
        return None
    margin = evidence.margin_of(ours, null, t.confidence)
    if margin is None or margin.interval is not None:
        return margin
    stored = evidence.frozen_correct.get(null)
    if stored and correct and len(ours) <= 1:
        over_samples = first_edition_margin if first_edition else paired_score_margin
        return over_samples(correct, stored, t.confidence)
    if evidence.test_samples is not None and not first_edition:
        size = evidence.test_samples
        return unpaired_score_margin(mean(ours), mean(theirs), size, size, t.confidence)
    return margin


def _at_chance(evidence: Evidence, majority_share: float | None) -> str:
    """That backprop is not shown to be above the majority class; empty where it is, or where that is not known."""
    size = evidence.test_samples
    if evidence.losses is not None or not evidence.bp_acc or size is None or majority_share is None:
        return ""
    accuracy = mean(evidence.bp_acc)
    low = exact_lower_bound(round(accuracy * size), size, CHANCE_LEVEL)
    if low > majority_share:
        return ""
    return (
        f"backprop's accuracy of {accuracy:.3f} ({CHANCE_LEVEL:.1%} lower bound {low:.3f}) is not above that of always "
        f"answering the most frequent class, {majority_share:.3f}"
    )


def depth_of_seeds(claims: Sequence[Claim]) -> Claim:
    """The claim over several seeds, from the card of each: every card has the margin over all seeds, so one is enough.

    Whether predictions can be judged is known to each card of its own seed only; one that cannot be judged decides.
    """
    return next((claim for claim in claims if claim.outcome == "cannot_be_judged"), claims[0])


def _loss_at_chance(evidence: Evidence, entropy: float | None) -> str:
    """That backprop's loss is not shown to be under the entropy of the tokens' frequencies; empty where it is, or where
    that is not known."""
    if evidence.losses is None or not evidence.losses.bp or entropy is None:
        return ""
    seeds = evidence.losses.bp
    values = seeds if len(seeds) > 1 else evidence.losses.windows.get("bp", seeds)
    interval = mean_interval(np.asarray(values, dtype=np.float64), 2 * CHANCE_LEVEL - 1)
    high = mean(seeds) if interval is None else interval[1]
    if high < entropy:
        return ""
    return (
        f"backprop's loss of {mean(seeds):.3f} nats ({CHANCE_LEVEL:.1%} upper bound {high:.3f}) is not under the "
        f"entropy of the tokens' frequencies, {entropy:.3f}"
    )


def holm_depth(claims: Mapping[str, Claim], t: DiagnosticThresholds) -> dict[str, Claim]:
    """The depth claims of one table after Holm's correction; a claim that is not significant then is inconclusive.

    `claims` are those of the audited methods; backprop, oracles and baselines are not in the family. The interval stays
    unadjusted, the p-value is the adjusted one.
    """
    alpha = 1 - t.confidence
    adjusted = holm({name: claim.p for name, claim in claims.items() if claim.p is not None})
    result = dict(claims)
    for name, p in adjusted.items():
        claim = claims[name]
        # With one method nothing is adjusted, and the interval has decided.
        if claim.outcome in ("stands", "walked_back") and p > alpha and p > (claim.p or 0.0):
            reason = f"{claim.reason}; after Holm's correction over {len(adjusted)} methods p = {p:.2g}"
            result[name] = Claim("depth", "inconclusive", reason, p=p, row="holm")
        else:
            text = f"; Holm-adjusted p = {p:.2g}" if len(adjusted) > 1 else ""
            result[name] = replace(claim, p=p, reason=claim.reason + text)
    return result

"""What a card needs so that it can be judged again under other thresholds without its measurements.

A page can then move the thresholds: growth, floor and margin are compared with numbers, and the alignment claim, which
depends on one threshold (`null_z`) by many nulls, is stored as the outcomes between the values at which it changes.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from walkback.core.measurements import FIRST_EDITION
from walkback.judge import student_t
from walkback.judge.alignment_claim import judge_alignment
from walkback.judge.alignment_facts import alignment_facts
from walkback.judge.card_part import CardPart, NonNegative
from walkback.judge.claim import Claim, ClaimOutcome
from walkback.judge.depth_claim import backprop_margin
from walkback.judge.quantities import Quantities
from walkback.judge.score_tests import PairedScoreTest, ScoreTest, UnpairedScoreTest
from walkback.judge.statistics import NATS, Margin
from walkback.judge.thresholds import DiagnosticThresholds

if TYPE_CHECKING:
    from walkback.judge.report import DiagnosticReport

NULL_Z_VALUES = tuple(step / 10 for step in range(10, 61))
"""The values of `null_z` that a stored alignment claim distinguishes."""
_CRITICAL = re.compile(r" by \S+ standard deviations")
"""The part of a reason that changes with every `null_z`."""


@dataclass(frozen=True)
class StoredMargin(CardPart):
    """A margin with what its interval at any confidence is computed from."""

    mean: float
    n: NonNegative
    counts: str
    unit: Literal["pp", "nats"]
    sd: float | None
    interval: tuple[float, float] | None
    test: tuple[float, ...]
    """Of a score test over samples: gained, lost and n where samples are paired, else right and n of both models."""

    @staticmethod
    def of(margin: Margin | None) -> StoredMargin | None:
        if margin is None:
            return None
        unit: Literal["pp", "nats"] = "nats" if margin.unit == NATS else "pp"
        test = _test_numbers(margin.test)
        return StoredMargin(margin.mean, margin.n, margin.counts, unit, margin.sd, margin.interval, test)

    @staticmethod
    def from_json(stored: dict[str, Any]) -> StoredMargin:
        lists = {key: tuple(stored[key]) for key in ("interval", "test") if stored[key] is not None}
        return StoredMargin(**{**stored, **lists})

    def interval_at(self, confidence: float) -> tuple[float, float] | None:
        """The interval at this confidence: the margins that its test does not reject at 1 - `confidence`."""
        if len(self.test) == 3:
            return PairedScoreTest(*map(int, self.test)).interval(confidence)
        if self.test:
            right, n, other_right, other_n = self.test
            return UnpairedScoreTest(right, int(n), other_right, int(other_n)).interval(confidence)
        if self.sd is None:
            return None
        half = student_t.quantile((1 + confidence) / 2, self.n - 1) * self.sd / math.sqrt(self.n)
        return self.mean - half, self.mean + half


def _test_numbers(test: object) -> tuple[float, ...]:
    if isinstance(test, PairedScoreTest):
        return test.gained, test.lost, test.n
    if isinstance(test, UnpairedScoreTest):
        return test.right, test.n, test.other_right, test.other_n
    assert not isinstance(test, ScoreTest), "every score test can be stored"
    return ()


@dataclass(frozen=True)
class AlignmentStep(CardPart):
    """The alignment claim from this `null_z` on."""

    null_z: float
    outcome: ClaimOutcome
    name: str
    reason: str


@dataclass(frozen=True)
class Rejudging(CardPart):
    """The numbers and claims of one card that other thresholds are applied to."""

    alignment: tuple[AlignmentStep, ...]
    growth: float | None
    """The largest known growth."""
    growth_infinite: bool
    growth_complete: bool
    """Whether the growth of every block is known."""
    not_finite: str
    """Why the model's predictions are no predictions; empty where they are."""
    withheld: str
    """Which evidence is missing, so that every edition is inconclusive."""
    margin: StoredMargin | None
    gate: StoredMargin | None
    """Backprop's margin over its own frozen baseline."""


def rejudging_of(report: DiagnosticReport) -> Rejudging | None:
    """The part of the card of this report; None for measurements that are judged as cards of format 1."""
    if report.measurements.facts.get(FIRST_EDITION):
        return None
    q, t = report.quantities, report.thresholds
    missing, frozen = str(report.context.get("missing") or ""), report.context.get("shell") not in (None, "none")
    known = [ratio.known for ratio in q.growth.values() if ratio.ok]
    return Rejudging(
        alignment=alignment_steps(q, t, frozen, missing),
        growth=max(known, default=None),
        growth_infinite=q.overflow is not None,
        growth_complete=len(known) == len(q.growth) > 0,
        not_finite=q.broken,
        withheld=missing,
        margin=StoredMargin.of(report.margin),
        gate=StoredMargin.of(backprop_margin(report.evidence, t)),
    )


def alignment_steps(q: Quantities, t: DiagnosticThresholds, frozen: bool, missing: str) -> tuple[AlignmentStep, ...]:
    """The alignment claim at each of `NULL_Z_VALUES`, without those that repeat the one before."""
    steps: list[AlignmentStep] = []
    previous: Claim | None = None
    for null_z in NULL_Z_VALUES:
        claim = judge_alignment(alignment_facts(q, replace(t, null_z=null_z), frozen, missing))
        if previous is None or (claim.row, claim.name) != (previous.row, previous.name):
            steps.append(AlignmentStep(null_z, claim.outcome, claim.name, _CRITICAL.sub("", claim.reason)))
        previous = claim
    return tuple(steps)

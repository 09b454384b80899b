"""The alignment claim and the depth claim, judged separately and independently of the edition.

A method may have a real alignment and useless depth, or the other way round; one verdict cannot express that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from walkback.judge import student_t
from walkback.judge.card_part import CardPart
from walkback.judge.evidence import Evidence
from walkback.judge.first_edition import first_edition_margin
from walkback.judge.flag import Flag
from walkback.judge.number import first_bad
from walkback.judge.quantities import Quantities
from walkback.judge.statistics import Margin, holm, paired_score_margin
from walkback.judge.student_t import normal_two_sided
from walkback.judge.thresholds import DiagnosticThresholds

ClaimOutcome = Literal[
    "stands", "walked_back", "detectable_small", "trivial", "not_made", "not_applicable", "inconclusive"
]


MIN_FRESH_DRAWS = 8
"""Draws of fresh feedback under which their spread is too uncertain for a verdict."""


def fresh_critical(draws: int, null_z: float) -> float:
    """The score over K fresh draws that is as rare as `null_z` standard deviations of a normal distribution.

    The spread is estimated from the draws, so the score is Student's t with K - 1 degrees of freedom: 3.45 for 20 draws
    where the normal distribution has 3.
    """
    return student_t.quantile(1 - normal_two_sided(null_z) / 2, draws - 1)


@dataclass(frozen=True)
class Claim(CardPart):
    """One claim and its outcome."""

    question: Literal["alignment", "depth"]
    outcome: ClaimOutcome
    reason: str
    name: str = ""
    """Why it was walked back: noise, null, one layer carries it, no margin."""
    p: float | None = None
    """Depth only: two-sided p-value of the hypothesis that the true margin equals the threshold."""

    JSON_KEYS = ("question", "outcome", "shown", "name", "reason", "p")

    @property
    def shown(self) -> str:
        if self.outcome == "walked_back":
            return f"walked back: {self.name}"
        return "detectable, small" if self.outcome == "detectable_small" else self.outcome.replace("_", " ")

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> Claim:
        return Claim(**{name: stored[name] for name in ("question", "outcome", "reason", "name", "p")})


def alignment(q: Quantities, flags: Mapping[str, Flag], t: DiagnosticThresholds, frozen: bool = False) -> Claim:
    """The alignment claim of one measured seed: does the credit point along the gradient in the layers it trains?"""
    if frozen:
        return Claim("alignment", "not_applicable", "the blocks are frozen: no credit trains them")
    if not q.has_credit:
        return Claim("alignment", "not_made", "no credit was measured")
    credits = [layer.credit for layer in q.layers if layer.credit is not None]
    if all(credit.label == "exact" for credit in credits):
        return Claim("alignment", "trivial", "the credit is the gradient by construction at every layer")
    a = q.aggregates
    judged = [q.layers[index] for index in a.deep_layers]
    if not judged:
        return Claim("alignment", "inconclusive", a.deep_mean.reason)
    if all(layer.credit is not None and layer.credit.label == "signs" for layer in judged):
        return Claim(
            "alignment",
            "trivial",
            f"aligned by construction (signs): the feedback has the signs of the weights; deep_mean {a.deep_mean:+.3f}",
        )
    for what, directions in (
        ("reference", {layer.index: layer.direction for layer in judged}),
        ("credit", {layer.index: layer.credit.direction for layer in judged if layer.credit is not None}),
    ):
        invalid = {index: found.reason for index, found in directions.items() if found.status == "invalid"}
        if invalid:
            return Claim("alignment", "inconclusive", f"the {what} is INVALID at layer {_listed(invalid)}")
        noisy = {index: found.reason for index, found in directions.items() if found.status == "noise"}
        if noisy:
            return _walked_back("noise", f"the {what} is noise at layer {_listed(noisy)}")
        # A credit without a replay is accepted; a reference must have been replayed.
        good = ("valid",) if what == "reference" else ("valid", "missing")
        unsure = {index: found.reason for index, found in directions.items() if found.status not in good}
        if unsure:
            return Claim("alignment", "inconclusive", f"the {what} is not valid at layer {_listed(unsure)}")
    return _against_null(q, flags, t)


def _against_null(q: Quantities, flags: Mapping[str, Flag], t: DiagnosticThresholds) -> Claim:
    a = q.aggregates
    fresh = a.deep_mean_fresh
    if fresh is not None and fresh.draws < MIN_FRESH_DRAWS:
        few = f"{fresh.draws} draws of fresh feedback are too few: expected at least {MIN_FRESH_DRAWS}"
        return Claim("alignment", "inconclusive", few)
    scores = {"random rotations": a.deep_mean_z} | ({} if fresh is None else {"fresh feedback": fresh.z})
    bad = first_bad([a.deep_mean, *scores.values()])
    if bad is not None:
        return Claim("alignment", "inconclusive", bad.reason)
    text = f"deep_mean {a.deep_mean:+.3f}, " + ", ".join(f"z = {z:.1f} against {name}" for name, z in scores.items())
    too_low = f"{text}: not above its null by {{:.3g}} standard deviations"
    if a.deep_mean_z.known < t.null_z:
        return _walked_back("null", too_low.format(t.null_z))
    # Before fresh feedback: a skip path carries freshly drawn credit as well, so that null cannot name it.
    skip = a.partial_mean_z
    if skip is not None and not (skip.ok and skip.known >= t.null_z):
        left = f"without the gradient at h_L z = {skip:.1f}" if skip.ok else skip.reason
        return _walked_back("carried by the skip path", f"{text}, but {left}")
    if fresh is not None and fresh.z.known < fresh_critical(fresh.draws, t.null_z):
        return _walked_back("null", too_low.format(fresh_critical(fresh.draws, t.null_z)))
    if flags["concentration"].status == "raised":
        return _walked_back("one layer carries it", f"{text}, but {flags['concentration'].reason}")
    if a.deep_mean.known < t.small_alignment:
        return Claim("alignment", "detectable_small", f"{text}; under {t.small_alignment:g}")
    return Claim("alignment", "stands", text)


def alignment_of_seeds(claims: Sequence[Claim]) -> Claim:
    """The claim over several seeds: it stands only if it stands in every seed."""
    if len(claims) == 1:
        return claims[0]
    order: tuple[ClaimOutcome, ...] = (
        "walked_back", "inconclusive", "not_made", "not_applicable", "detectable_small", "stands", "trivial",
    )  # fmt: skip
    worst = min(claims, key=lambda claim: order.index(claim.outcome))
    agreeing = sum(claim.outcome == worst.outcome for claim in claims)
    return replace(worst, reason=f"in {agreeing} of {len(claims)} seeds: {worst.reason}")


def depth_margin(
    evidence: Evidence, measured: Sequence[bool], t: DiagnosticThresholds, first_edition: bool = False
) -> Margin | None:
    """The margin with its interval: over seeds, or over samples for one seed with stored per-sample correctness.

    `measured` is the correctness of the measured samples. `first_edition`: with the interval of a card of format 1.
    """
    null = evidence.deciding
    margin = evidence.margin(null, t.confidence)
    stored = evidence.frozen_correct.get(null)
    if stored and (margin is None or margin.interval is None) and len(evidence.headline_acc) <= 1:
        over_samples = first_edition_margin if first_edition else paired_score_margin
        return over_samples(evidence.correct or measured, stored, t.confidence)
    return margin


def depth(margin: Margin | None, d3: Flag, evidence: Evidence, t: DiagnosticThresholds, frozen: bool = False) -> Claim:
    """The depth claim: is the interval of the margin over frozen blocks at or above the threshold?"""
    line, level = t.frozen_acc_margin_pp, f"{t.confidence:.0%}"
    if frozen:
        return Claim("depth", "not_applicable", "the blocks are frozen: this is the baseline itself")
    if margin is None:
        return Claim("depth", "inconclusive" if evidence.headline_acc else "not_made", d3.reason)
    if d3.status == "not_informative":
        return Claim("depth", "inconclusive", d3.reason)
    p = margin.p_value(line)
    if margin.interval is None:
        why = "one seed" if margin.n == 1 else "seeds that are not paired"
        return Claim("depth", "inconclusive", f"{margin.mean:+.1f} pp from {why}: there is no interval")
    low, high = margin.interval
    text = f"{margin.mean:+.1f} pp, {level} interval {low:+.1f} to {high:+.1f} over {margin.n} {margin.counts}"
    if low >= line:
        return Claim("depth", "stands", f"{text}: at or above {line:g} pp", p=p)
    if high < line:
        return Claim("depth", "walked_back", f"{text}: under {line:g} pp", "no margin", p=p)
    return Claim("depth", "inconclusive", f"{text}: {line:g} pp lies inside", p=p)


def holm_depth(claims: Mapping[str, Claim], t: DiagnosticThresholds) -> dict[str, Claim]:
    """The depth claims of one table after Holm's correction; a claim that is not significant then is inconclusive."""
    alpha = 1 - t.confidence
    adjusted = holm({name: claim.p for name, claim in claims.items() if claim.p is not None})
    result = dict(claims)
    for name, p in adjusted.items():
        claim = claims[name]
        if claim.outcome in ("stands", "walked_back") and p >= alpha:
            reason = f"{claim.reason}; after Holm's correction over {len(adjusted)} methods p = {p:.2g}"
            result[name] = Claim("depth", "inconclusive", reason, p=p)
        else:
            result[name] = replace(claim, p=p)
    return result


def _walked_back(name: str, reason: str) -> Claim:
    return Claim("alignment", "walked_back", reason, name)


def _listed(reasons: Mapping[int, str]) -> str:
    return f"{', '.join(map(str, reasons))}: {next(iter(reasons.values()))}"

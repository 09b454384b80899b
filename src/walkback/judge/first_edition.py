"""The claims and the interval over samples of cards of format 1, by which these cards are verified.

The interval: half a sample is added to each cell of the table (Agresti and Min, 2005). It is centred on the estimate of
that table and the p-value on the plain one, so the two can contradict each other; `paired_score_margin` replaced it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from walkback.judge import student_t
from walkback.judge.alignment_facts import MIN_FRESH_DRAWS, fresh_critical
from walkback.judge.claim import Claim
from walkback.judge.evidence import Evidence
from walkback.judge.flag import Flag
from walkback.judge.number import first_bad
from walkback.judge.quantities import Quantities
from walkback.judge.statistics import Margin, paired_counts
from walkback.judge.thresholds import DiagnosticThresholds


@dataclass(frozen=True)
class AdjustedWaldTest:
    """The normal test around `estimate`, both in percentage points."""

    estimate: float
    error: float

    def p_value(self, points: float) -> float:
        return student_t.normal_two_sided((self.estimate - points) / self.error)


def first_edition_margin(ours: Sequence[bool], theirs: Sequence[bool], confidence: float = 0.95) -> Margin:
    """The difference of two accuracies on the same samples, in percentage points, as cards of format 1 have it."""
    gained, lost, n = paired_counts(ours, theirs)
    total = n + 2
    centre = (gained - lost) / total
    error = 100 * math.sqrt(((gained + lost + 1) / total - centre**2) / total)
    half = student_t.normal_quantile((1 + confidence) / 2) * error
    mean = round(100 * (gained - lost) / n, 9)
    return Margin(
        mean, n, "samples", interval=(100 * centre - half, 100 * centre + half), test=AdjustedWaldTest(mean, error)
    )


def first_edition_alignment(
    q: Quantities, flags: Mapping[str, Flag], t: DiagnosticThresholds, frozen: bool = False, missing: str = ""
) -> Claim:
    """The alignment claim of one measured seed; `missing` names evidence that is missing."""
    if missing:
        return Claim("alignment", "inconclusive", missing)
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


def first_edition_depth(
    margin: Margin | None, d3: Flag, evidence: Evidence, t: DiagnosticThresholds, frozen: bool = False
) -> Claim:
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


def _walked_back(name: str, reason: str) -> Claim:
    return Claim("alignment", "walked_back", reason, name)


def _listed(reasons: Mapping[int, str]) -> str:
    return f"{', '.join(map(str, reasons))}: {next(iter(reasons.values()))}"

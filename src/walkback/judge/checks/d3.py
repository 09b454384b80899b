"""D3, depth utility: do the trained blocks beat the same network with its blocks frozen at random?

Formula: test accuracy minus the frozen-blocks baseline, in percentage points; the mean over paired seeds
Losses: where test losses are given, the baseline's minus the method's, in nats a token
Threshold: fails under frozen_acc_margin_pp (2 pp), for losses under frozen_loss_margin_nats (0.05 nats)
Nulls: method_shell (the rest trained by the method's own credit; decides) and bp_shell (trained by backprop; harder)
Misleads: an unmatched baseline; a frozen baseline as good as fully trained backprop says nothing about the method
"""

from __future__ import annotations

from functools import partial

from walkback.judge.evidence import NULL_NAMES, Evidence, mean
from walkback.judge.flag import Flag
from walkback.judge.quantities import Quantities
from walkback.judge.statistics import Margin
from walkback.judge.thresholds import DiagnosticThresholds


def check(q: Quantities, evidence: Evidence, t: DiagnosticThresholds) -> Flag:
    null, unit, line = evidence.deciding, evidence.unit, t.depth_line(evidence.unit)
    margin = evidence.margin(null, t.confidence)
    flag = partial(Flag, "D3", "depth utility", threshold=line, side="below", unit=unit, counts="seeds", layer=None)
    if margin is None:
        return flag("missing", _missing_reason(evidence))
    flag = partial(flag, value=margin.mean, n=margin.n, counts=margin.counts, interval=margin.interval)
    text = _margin_text(evidence, null, margin)
    bp = evidence.margin_of(evidence.bp, null, t.confidence)
    if bp is not None and bp.mean <= 0:
        where = "above" if evidence.losses is None else "below"
        return flag(
            "not_informative",
            f"the frozen baseline ({mean(evidence.baselines[null]):.3f}) is at or {where} fully trained backprop "
            f"({mean(evidence.bp):.3f}): "
            f"depth is not needed here, so the margin says nothing of the method ({text})",
        )
    raised = margin.mean < line
    return flag(
        "raised" if raised else "clear",
        f"{text}, {'under' if raised else 'not under'} {line:g} {unit}{_others(evidence, null, raised, line)}",
        margin=margin.mean - line,
        flips_at=margin.mean,
    )


def _missing_reason(evidence: Evidence) -> str:
    if not evidence.baselines:
        return "no frozen baseline was given: depth utility not checked"
    if not evidence.headline:
        return "no headline accuracy was given to compare with the frozen baseline"
    given = ", ".join(evidence.baselines)
    return (
        f"no baseline for the deciding null '{evidence.deciding}' was given, only {given}; pass null= to let it decide"
    )


def _margin_text(evidence: Evidence, null: str, margin: Margin) -> str:
    ours, theirs = mean(evidence.headline), mean(evidence.baselines[null])
    what = "accuracy" if evidence.losses is None else "loss"
    gain = f"{margin.mean:+.{margin.digits}f} {margin.unit}"
    return f"{what} {ours:.3f} against {theirs:.3f} ({NULL_NAMES[null]}): {gain}"


def _others(evidence: Evidence, null: str, raised: bool, line: float) -> str:
    """The margins over the other baselines, and whether they agree."""
    text = ""
    for other in evidence.baselines:
        margin = evidence.margin(other)
        if other == null or margin is None:
            continue
        agrees = "agrees" if (margin.mean < line) == raised else "DISAGREES"
        text += f"; {_margin_text(evidence, other, margin)}, which {agrees}"
    return text


CHECK = check

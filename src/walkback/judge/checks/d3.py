"""D3, depth utility: do the trained blocks beat the same network with its blocks frozen at random?

Formula: test accuracy minus the frozen-blocks baseline, in percentage points; the mean over paired seeds
Threshold: fails under frozen_acc_margin_pp (2 pp)
Nulls: method_shell (the rest trained by the method's own credit; decides) and bp_shell (trained by backprop; harder)
Misleads: an unmatched baseline; a frozen baseline as good as fully trained backprop says nothing about the method
"""

from __future__ import annotations

from functools import partial

from walkback.judge.evidence import NULLS, UNNAMED, Evidence, mean
from walkback.judge.flag import Flag
from walkback.judge.quantities import Quantities
from walkback.judge.thresholds import DiagnosticThresholds


def check(q: Quantities, evidence: Evidence, t: DiagnosticThresholds) -> Flag:
    null, line = evidence.deciding, t.frozen_acc_margin_pp
    margin = evidence.margin(null, t.confidence)
    flag = partial(Flag, "D3", "depth utility", threshold=line, side="below", unit="pp", counts="seeds", layer=None)
    if margin is None:
        return flag("missing", _missing_reason(evidence))
    flag = partial(flag, value=margin.mean, n=margin.n, counts=margin.counts, interval=margin.interval)
    text = _margin_text(evidence, null, margin.mean)
    frozen = mean(evidence.frozen[null])
    if evidence.bp_acc and frozen >= mean(evidence.bp_acc):
        return flag(
            "not_informative",
            f"the frozen baseline ({frozen:.3f}) is at or above fully trained backprop ({mean(evidence.bp_acc):.3f}): "
            f"depth is not needed here, so the margin says nothing of the method ({text})",
        )
    raised = margin.mean < line
    return flag(
        "raised" if raised else "clear",
        f"{text}, {'under' if raised else 'not under'} {line:g} pp{_others(evidence, null, raised, line)}",
        margin=margin.mean - line,
        flips_at=margin.mean,
    )


def _missing_reason(evidence: Evidence) -> str:
    if not evidence.frozen:
        return "no frozen baseline was given: depth utility not checked"
    if not evidence.headline_acc:
        return "no headline accuracy was given to compare with the frozen baseline"
    given = ", ".join(evidence.frozen)
    return (
        f"no baseline for the deciding null '{evidence.deciding}' was given, only {given}; pass null= to let it decide"
    )


def _margin_text(evidence: Evidence, null: str, points: float) -> str:
    ours, theirs = mean(evidence.headline_acc), mean(evidence.frozen[null])
    name = NULLS[UNNAMED].split(":")[0] if null == UNNAMED else f"null {null}"
    return f"accuracy {ours:.3f} against {theirs:.3f} ({name}): {points:+.1f} pp"


def _others(evidence: Evidence, null: str, raised: bool, line: float) -> str:
    """The margins over the other baselines, and whether they agree."""
    text = ""
    for other in evidence.frozen:
        margin = evidence.margin(other)
        if other == null or margin is None:
            continue
        agrees = "agrees" if (margin.mean < line) == raised else "DISAGREES"
        text += f"; {_margin_text(evidence, other, margin.mean)}, which {agrees}"
    return text


CHECK = check

"""Drift (c): do the gradients of all samples push the deepest state in the same direction?

Formula: mean pairwise cosine, over groups of 128 samples, of the normalised group-mean gradients at h_L
Threshold: fails above stability_drift_ceiling (0.30): drift-dominated
Role: names the sub-mode; it never decides a verdict
Misleads: near zero means sample-specific, as in healthy networks too; it is no proof of health
"""

from __future__ import annotations

from functools import partial

from walkback.judge.evidence import Evidence
from walkback.judge.flag import Flag, factor
from walkback.judge.quantities import Quantities
from walkback.judge.thresholds import DiagnosticThresholds


def check(q: Quantities, evidence: Evidence, t: DiagnosticThresholds) -> Flag:
    ceiling, mean = t.stability_drift_ceiling, q.group_cos
    flag = partial(
        Flag,
        "direction",
        "gradient direction",
        threshold=ceiling,
        side="above",
        layer=q.depth,
        n=q.groups,
        counts="groups",
        decides=False,
    )
    if not mean.ok:
        return flag("missing", mean.reason, invalid=mean.status == "invalid")
    value = mean.known
    raised = value > ceiling
    words = "sample-specific, as in healthy networks too"
    if raised:
        words = "drift-dominated: the group gradients share one direction"
    return flag(
        "raised" if raised else "clear",
        f"mean pairwise cosine of {q.groups} group gradients is {value:.3f}: {words}",
        value=value,
        margin=factor(value, ceiling),
        flips_at=value,
    )


CHECK = check

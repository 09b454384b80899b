"""D2, reference validity: is the gradient at the deepest state large enough to be compared with?

Formula: |g_L| @128 = mean over samples of |dloss_i/dh_L| / 128
Threshold: fails under g_norm_floor (1e-7, ten times the clamp of plain cosine functions)
Mode: 1b, reference collapse
Misleads: a well fitted network has a small gradient too (see |g_L| / |e|), and a tiny one can have a real direction
Measured: the float64 replay shows whether the direction is real; the clamp is a separate question
"""

from __future__ import annotations

from functools import partial

from walkback.core.measurements import GROUP
from walkback.judge.evidence import Evidence
from walkback.judge.flag import Flag, factor
from walkback.judge.quantities import Quantities
from walkback.judge.statistics import mean_interval
from walkback.judge.thresholds import DiagnosticThresholds


def check(q: Quantities, evidence: Evidence, t: DiagnosticThresholds) -> Flag:
    floor, norm = t.g_norm_floor, q.top.grad_norm_128
    flag = partial(
        Flag, "D2", "reference validity", threshold=floor, side="below", unit=f"@{GROUP}", n=q.samples, layer=q.depth
    )
    if not norm.ok:
        return flag("missing", norm.reason, invalid=norm.status == "invalid")
    value = norm.known
    raised = value < floor
    assert q.top_norms is not None
    text = f"|g_{q.depth}| @{GROUP} = {value:.3g}, {'under' if raised else 'not under'} {floor:g}"
    return flag(
        "raised" if raised else "clear",
        f"{text}; {_context(q, raised, floor)}",
        value=value,
        interval=mean_interval(q.top_norms / GROUP, t.confidence),
        margin=factor(value, floor),
        flips_at=value if value > 0 else None,
        is_fitted=raised and q.is_fitted(floor),
    )


def _context(q: Quantities, raised: bool, floor: float) -> str:
    """The measured direction and clamp, and whether a good fit explains a small gradient."""
    direction, clamp = q.top.direction, q.top.clamp
    parts = [f"direction {direction.status} ({direction.reason})", f"clamp {clamp.status} ({clamp.reason})"]
    if raised and direction.status == "valid":
        parts.append("the direction is real although it is small: only code that clamps sees noise")
    if q.error_norm.ok and q.grad_over_error.ok:
        parts.append(f"|e| = {q.error_norm:.3g}, |g_{q.depth}| / |e| = {q.grad_over_error:.3g} per sample")
    if raised and q.is_fitted(floor):
        parts.append("the error is small, not the way back from it: a fitted network, no collapse")
    if q.dtype in ("float16", "torch.float16"):
        parts.append("float16 ends at 6e-8: smaller gradients are zero")
    return "; ".join(parts)


CHECK = check

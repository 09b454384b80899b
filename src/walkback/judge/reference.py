"""Two statements about the reference at a layer, which are often taken for one.

*Direction*: does float64 reproduce it? *Clamp*: would a plain cosine function distort it? A tiny gradient may have a
perfectly real direction and a clamped cosine that is all wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from walkback.core.measurements import GROUP, Array, Measurements
from walkback.judge.thresholds import DiagnosticThresholds

UNCHECKED = "direction not checked"

_SMALLEST = {"float16": (6.0e-8, 6.1e-5), "bfloat16": (9.2e-41, 1.2e-38), "float32": (1.4e-45, 1.2e-38)}
"""By number format: the smallest number above zero, and the one under which digits are lost."""


@dataclass(frozen=True)
class Direction:
    """Whether float64 reproduces the directions of a layer's gradients (or credits)."""

    status: Literal["valid", "noise", "degraded", "missing"]
    reason: str
    median: float | None = None
    p05: float | None = None
    share_valid: float | None = None
    n: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status, "reason": self.reason}

    def cos64(self) -> dict[str, Any] | None:
        if self.n == 0:
            return None
        return {"median": self.median, "p05": self.p05, "share_valid": self.share_valid, "n": self.n}


@dataclass(frozen=True)
class Clamp:
    """Whether a plain cosine function would distort a layer's cosines."""

    status: Literal["distorted", "clear", "missing"]
    reason: str
    share: float | None = None

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status, "share": self.share, "reason": self.reason}


def direction_of(m: Measurements, index: int, t: DiagnosticThresholds) -> Direction:
    measured, norms64 = m.get("grad_cos64"), m.get("grad_norm64")
    if measured is None:
        return Direction("missing", f"{UNCHECKED}: there was no float64 replay")
    # A sample whose true gradient is zero has no direction to lose; one that lost a true gradient does count.
    found = _replayed(measured[index] if norms64 is None else measured[index][norms64[index] > 0], "g", t)
    return replace(found, reason=found.reason + _underflow(m, index))


def _underflow(m: Measurements, index: int) -> str:
    """Gradients that the model's own number format is too coarse for, by name; empty where there are none."""
    own, true, dtype = m.get("grad_norm"), m.get("grad_norm64"), str(m.facts.get("dtype")).removeprefix("torch.")
    if own is None or true is None or dtype not in _SMALLEST:
        return ""
    smallest, normal = _SMALLEST[dtype]
    lost = int(((own[index] == 0) & (true[index] > 0)).sum())
    coarse = int(((own[index] > 0) & (own[index] < normal)).sum())
    said = [f"{lost} of {own.shape[1]} gradients are zero only because {dtype} ends at {smallest:.0e}"] if lost else []
    if coarse:
        said.append(f"{coarse} of {own.shape[1]} gradients are under {normal:.1e}, where {dtype} loses digits")
    return f"; {dtype} underflow: {', '.join(said)}" if said else ""


def credit_direction_of(m: Measurements, index: int, t: DiagnosticThresholds) -> Direction:
    measured, norms = m.get("credit_cos64"), m.get("credit_norm")
    if measured is None:
        return Direction("missing", "the credit was not replayed in float64")
    return _replayed(measured[index] if norms is None else measured[index][norms[index] > 0], "a", t)


def _replayed(cosines: Array, name: str, t: DiagnosticThresholds) -> Direction:
    """What the replay says of the directions of one layer's gradients or credits."""
    known = cosines[np.isfinite(cosines)]
    if cosines.size == 0:
        return Direction("missing", "every sample is zero here, so there is no direction to check")
    share = float((known >= t.direction_valid_cos).sum() / cosines.size)
    # For the decision only: a direction that vanished ranks below every measured one.
    middle = float(np.median(np.where(np.isfinite(cosines), cosines, -1.0)))
    vanished = f"; {cosines.size - known.size} vanished" if known.size < cosines.size else ""
    said = f"{share:.1%} of {cosines.size} samples reach cos({name}, {name}64) {t.direction_valid_cos:g}{vanished}"
    status: Literal["valid", "noise", "degraded"]
    if share >= t.direction_valid_share:
        status, reason = "valid", f"float64 confirms the direction: {said}"
    elif middle < t.direction_noise_median:
        status, reason = "noise", f"float64 does not reproduce the direction: {said}"
    else:
        status, reason = "degraded", f"float64 reproduces the direction only in part: {said}"
    median, p05 = (float(np.median(known)), float(np.quantile(known, 0.05))) if known.size else (None, None)
    return Direction(status, reason, median, p05, share, int(cosines.size))


def clamp_of(m: Measurements, index: int, t: DiagnosticThresholds) -> Clamp:
    grads, credits = m.get("grad_norm"), m.get("credit_norm")
    if grads is None:
        return Clamp("missing", "the gradient was not measured")
    if not np.isfinite(grads[index]).any():
        return Clamp("missing", "the gradient is not finite for any sample")
    small = grads[index] / GROUP < t.cosine_eps
    if credits is not None:
        small |= credits[index] / GROUP < t.cosine_eps
    share = float(small.mean())
    said = f"{share:.1%} of samples have a norm under {t.cosine_eps:g} @{GROUP}"
    if share > t.clamp_share:
        return Clamp("distorted", f"a plain cosine is distorted by its clamp: {said}", share)
    return Clamp("clear", f"a plain cosine is not distorted: {said}", share)

"""Validity of the reference gradient at a layer: three properties that are often confused.

*Derivative*: is it the derivative of what the model computes? *Direction*: does float64 reproduce it? *Clamp*: would a
plain cosine function distort it? A tiny gradient may have a valid direction and a clamped cosine that is wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from walkback.core.measurements import GROUP, Array, Measurements
from walkback.judge.card_part import CardPart, NonNegative
from walkback.judge.thresholds import DiagnosticThresholds

UNCHECKED = "direction not checked"
MAX_REFERENCE_ERROR = 1e-3
"""Median error of the finite differences, relative to |g|, above which a reference is not the derivative."""

_SMALLEST = {"float16": (6.0e-8, 6.1e-5), "bfloat16": (9.2e-41, 1.2e-38), "float32": (1.4e-45, 1.2e-38)}
"""By number format: the smallest positive number, and the smallest normal number, under which digits are lost."""


@dataclass(frozen=True)
class Cos64(CardPart):
    """Cosines of a layer's gradients (or credits) with their float64 replay, over samples."""

    median: float | None
    p05: float | None
    share_valid: float
    n: NonNegative


@dataclass(frozen=True)
class Direction(CardPart):
    """Whether float64 reproduces the directions of a layer's gradients (or credits)."""

    status: Literal["valid", "noise", "degraded", "missing", "invalid"]
    reason: str
    median: float | None = None
    p05: float | None = None
    share_valid: float | None = None
    n: int = 0

    JSON_KEYS = ("status", "reason")

    @property
    def cos64(self) -> Cos64 | None:
        """The cosines that the status is based on; None where nothing was replayed."""
        if self.share_valid is None:
            return None
        return Cos64(self.median, self.p05, self.share_valid, self.n)


@dataclass(frozen=True)
class Clamp(CardPart):
    """Whether a plain cosine function would distort a layer's cosines."""

    status: Literal["distorted", "clear", "missing"]
    reason: str
    share: float | None = None

    JSON_KEYS = ("status", "share", "reason")


def direction_of(m: Measurements, index: int, t: DiagnosticThresholds) -> Direction:
    """Whether float64 reproduces the direction of a layer's reference gradients."""
    problem = reference_problem(m, index)
    if problem:
        return Direction("invalid", problem)
    measured, norms64 = m.get("grad_cos64"), m.get("grad_norm64")
    if measured is None:
        return Direction("missing", f"{UNCHECKED}: there was no float64 replay")
    # A sample whose float64 gradient is zero has no direction; one whose gradient vanished only in the model counts.
    found = _replayed(measured[index] if norms64 is None else measured[index][norms64[index] > 0], "g", t)
    return replace(found, reason=found.reason + _underflow(m, index))


def reference_problem(m: Measurements, index: int) -> str:
    """Why a layer's reference is not the derivative that is meant; empty if nothing was found against it."""
    problems = m.facts.get("reference_problems") or ()
    if index < len(problems) and problems[index]:
        return str(problems[index])
    errors, floors = m.get("reference_error"), m.get("reference_floor")
    slopes, inners = m.get("reference_slope"), m.get("reference_inner")
    if errors is None or floors is None or slopes is None or inners is None:
        return ""
    known = np.isfinite(errors[index])
    if not known.any():
        return ""
    error, floor = float(np.median(errors[index][known])), float(np.median(floors[index][known]))
    if error <= MAX_REFERENCE_ERROR or error <= floor:
        return ""
    slope, inner = (float(np.median(values[index][known])) for values in (slopes, inners))
    return (
        f"the reference is not the derivative of the loss at h_{index}: along it the loss has the slope {slope:.3g}, "
        f"the inner product is {inner:.3g} (medians over {int(known.sum())} samples; median error {error:.2g} of |g|)"
    )


def _underflow(m: Measurements, index: int) -> str:
    """How many gradients underflow in the model's own number format; empty if none do."""
    own, true, dtype = m.get("grad_norm"), m.get("grad_norm64"), str(m.facts.get("dtype")).removeprefix("torch.")
    if own is None or true is None or dtype not in _SMALLEST:
        return ""
    smallest, normal = _SMALLEST[dtype]
    lost = int(((own[index] == 0) & (true[index] > 0)).sum())
    coarse = int(((own[index] > 0) & (own[index] < normal)).sum())
    parts = [f"{lost} of {own.shape[1]} gradients are zero only because {dtype} ends at {smallest:.0e}"] if lost else []
    if coarse:
        parts.append(f"{coarse} of {own.shape[1]} gradients are under {normal:.1e}, where {dtype} loses digits")
    return f"; {dtype} underflow: {', '.join(parts)}" if parts else ""


def credit_direction_of(m: Measurements, index: int, t: DiagnosticThresholds) -> Direction:
    """Whether float64 reproduces the direction of a layer's credits."""
    measured, norms = m.get("credit_cos64"), m.get("credit_norm")
    if measured is None:
        return Direction("missing", "the credit was not replayed in float64")
    return _replayed(measured[index] if norms is None else measured[index][norms[index] > 0], "a", t)


def _replayed(cosines: Array, name: str, t: DiagnosticThresholds) -> Direction:
    """The direction of one layer's gradients or credits, from their cosines with the replay."""
    known = cosines[np.isfinite(cosines)]
    if cosines.size == 0:
        return Direction("missing", "every sample is zero here, so there is no direction to check")
    share = float((known >= t.direction_valid_cos).sum() / cosines.size)
    # Only for the decision: a direction that vanished counts as the worst cosine, -1.
    middle = float(np.median(np.where(np.isfinite(cosines), cosines, -1.0)))
    vanished = f"; {cosines.size - known.size} vanished" if known.size < cosines.size else ""
    text = f"{share:.1%} of {cosines.size} samples reach cos({name}, {name}64) {t.direction_valid_cos:g}{vanished}"
    status: Literal["valid", "noise", "degraded"]
    if share >= t.direction_valid_share:
        status, reason = "valid", f"float64 confirms the direction: {text}"
    elif middle < t.direction_noise_median:
        status, reason = "noise", f"float64 does not reproduce the direction: {text}"
    else:
        status, reason = "degraded", f"float64 reproduces the direction only in part: {text}"
    median, p05 = (float(np.median(known)), float(np.quantile(known, 0.05))) if known.size else (None, None)
    return Direction(status, reason, median, p05, share, int(cosines.size))


def clamp_of(m: Measurements, index: int, t: DiagnosticThresholds) -> Clamp:
    """Whether a plain cosine function would distort a layer's cosines."""
    grads, credits = m.get("grad_norm"), m.get("credit_norm")
    if grads is None:
        return Clamp("missing", "the gradient was not measured")
    if not np.isfinite(grads[index]).any():
        return Clamp("missing", "the gradient is not finite for any sample")
    small = grads[index] / GROUP < t.cosine_eps
    if credits is not None:
        small |= credits[index] / GROUP < t.cosine_eps
    share = float(small.mean())
    text = f"{share:.1%} of samples have a norm under {t.cosine_eps:g} @{GROUP}"
    if share > t.clamp_share:
        return Clamp("distorted", f"a plain cosine is distorted by its clamp: {text}", share)
    return Clamp("clear", f"a plain cosine is not distorted: {text}", share)

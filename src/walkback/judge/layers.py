"""What the measurements say of each layer: norms, whether the gradient's direction is real, and the credit there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from walkback.core.measurements import GROUP, Array, Measurements
from walkback.judge.flag import finite
from walkback.judge.number import Number
from walkback.judge.reference import UNCHECKED, Clamp, Direction, clamp_of, credit_direction_of, direction_of
from walkback.judge.thresholds import DiagnosticThresholds


@dataclass(frozen=True)
class Fresh:
    """A layer's mean cosine under freshly drawn feedback."""

    mean: float
    std: float
    draws: int
    z: Number

    def to_json(self) -> dict[str, Any]:
        return {"mean": self.mean, "std": self.std, "draws": self.draws, "z": self.z.to_json()}


@dataclass(frozen=True)
class LayerCredit:
    """The credit at one layer."""

    cos: Number
    direction: Direction
    """Whether float64 reproduces the credit itself."""
    norm: Number
    clamped: Number
    n: int
    excluded: int
    label: str
    null_std: float | None
    z: Number
    fresh: Fresh | None

    def to_json(self) -> dict[str, Any]:
        return {
            "cos": self.cos.to_json(),
            "direction": self.direction.to_json(),
            "norm": self.norm.to_json(),
            "clamped": self.clamped.to_json(),
            "n": self.n,
            "excluded": self.excluded,
            "label": self.label,
            "null_std": finite(self.null_std),
            "z": self.z.to_json(),
            "fresh": None if self.fresh is None else self.fresh.to_json(),
        }


@dataclass(frozen=True)
class Layer:
    """One hidden state h_l."""

    index: int
    hidden_norm: Number
    grad_norm_raw: Number
    grad_norm_128: Number
    direction: Direction
    clamp: Clamp
    credit: LayerCredit | None

    def to_json(self) -> dict[str, Any]:
        return {
            "layer": self.index,
            "hidden_norm": self.hidden_norm.to_json(),
            "grad_norm_128": self.grad_norm_128.to_json(),
            "grad_norm_raw": self.grad_norm_raw.to_json(),
            "cos64": self.direction.cos64(),
            "direction": self.direction.to_json(),
            "clamp": self.clamp.to_json(),
            "credit": None if self.credit is None else self.credit.to_json(),
        }


def layer_of(m: Measurements, index: int, t: DiagnosticThresholds) -> Layer:
    """Everything about h_index."""
    raw = _mean_norm(m.get("grad_norm"), index, "gradient")
    direction = direction_of(m, index, t)
    clamp = clamp_of(m, index, t)
    return Layer(
        index=index,
        hidden_norm=_mean_norm(m.get("hidden_norm"), index, "hidden state"),
        grad_norm_raw=raw,
        grad_norm_128=Number.of(raw.known / GROUP) if raw.ok else raw,
        direction=direction,
        clamp=clamp,
        credit=_credit(m, index, direction, clamp, t),
    )


def _mean_norm(norms: Array | None, index: int, what: str) -> Number:
    if norms is None:
        return Number.missing(f"the {what} was not measured")
    bad = int((~np.isfinite(norms[index])).sum())
    if bad:
        return Number.invalid(f"the {what} is not finite for {bad} of {norms.shape[1]} samples")
    return Number.of(float(norms[index].mean()))


def _credit(
    m: Measurements, index: int, direction: Direction, clamp: Clamp, t: DiagnosticThresholds
) -> LayerCredit | None:
    cosines, clamped, stds = m.get("credit_cos"), m.get("credit_cos_clamped"), m.get("null_haar_std")
    if cosines is None:
        return None
    known = cosines[index][np.isfinite(cosines[index])]
    excluded = cosines.shape[1] - known.size
    own = credit_direction_of(m, index, t)
    cos = _cosine(m, index, direction, own, known, excluded)
    std = None if stds is None else float(stds[index])
    return LayerCredit(
        cos=cos,
        direction=own,
        norm=_mean_norm(m.get("credit_norm"), index, "credit"),
        clamped=_clamped(clamped, index, cos, clamp, t),
        n=int(known.size),
        excluded=int(excluded),
        label=layer_label(m, index),
        null_std=std,
        z=score(cos, std),
        fresh=fresh_of(cos, m.get("null_fresh"), [index]),
    )


def layer_label(m: Measurements, index: int) -> str:
    """exact, asymptotic, fitted or none."""
    labels = m.facts.get("labels")
    return (labels[index] or "none") if labels else "none"


def _cosine(m: Measurements, index: int, direction: Direction, own: Direction, known: Array, excluded: int) -> Number:
    if index == 0 and m.facts.get("pool") == "cls":
        return Number.invalid("not informative: before the first block the cls token is the same for every sample")
    if direction.status == "noise":
        return Number.invalid(f"the reference is noise: {direction.reason}")
    if own.status == "noise":
        return Number.invalid(f"the credit is noise: {own.reason}")
    if known.size == 0:
        return Number.invalid(f"all {excluded} samples are excluded: their reference or credit is zero or not finite")
    caveats = []
    if direction.status == "missing":
        caveats.append(UNCHECKED)
    if direction.status == "degraded":
        caveats.append("direction degraded")
    if own.status == "degraded":
        caveats.append("credit degraded")
    if excluded:
        caveats.append(f"{excluded} of {known.size + excluded} samples excluded")
    return Number.of(float(known.mean()), "; ".join(caveats))


def _clamped(clamped: Array | None, index: int, cos: Number, clamp: Clamp, t: DiagnosticThresholds) -> Number:
    """What plain code would have printed: never shown without saying so."""
    if clamped is None:
        return Number.missing("the clamped cosine was not measured")
    if not cos.ok:
        return cos
    known = clamped[index][np.isfinite(clamped[index])]
    if known.size == 0:
        return Number.invalid("no sample has a clamped cosine")
    distorted = ", distorted" if clamp.status == "distorted" else ""
    return Number.of(float(known.mean()), f"clamped at {t.cosine_eps:g}{distorted}")


def score(cos: Number, std: float | None) -> Number:
    """Standard deviations from the Haar null, whose mean is zero and whose width is known exactly."""
    if not cos.ok:
        return cos
    if std is None:
        return Number.missing("the null was not measured")
    if not (math.isfinite(std) and std > 0):
        return Number.invalid("the null has no width")
    return Number.of(cos.known / std)


def fresh_of(cos: Number, draws: Array | None, layers: list[int]) -> Fresh | None:
    """The mean cosine over `layers` against fresh feedback; None where it was not drawn for all of them."""
    if draws is None or not layers:
        return None
    means = draws[layers].mean(axis=0)
    if means.size < 2 or not np.isfinite(means).all():
        return None
    centre, std = float(means.mean()), float(means.std(ddof=1))
    if not cos.ok:
        return Fresh(centre, std, means.size, cos)
    if std == 0:
        return Fresh(centre, std, means.size, Number.invalid("the null has no width"))
    z = (cos.known - centre) / (std * math.sqrt(1 + 1 / means.size))
    return Fresh(centre, std, int(means.size), Number.of(z))

"""The quantities of each layer: norms, validity of the gradient's direction, and the credit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from walkback.core.measurements import GROUP, Array, Measurements
from walkback.judge.card_part import CardPart, NonNegative
from walkback.judge.number import Number
from walkback.judge.reference import UNCHECKED, Clamp, Cos64, Direction, clamp_of, credit_direction_of, direction_of
from walkback.judge.thresholds import DiagnosticThresholds

LayerLabel = Literal["exact", "asymptotic", "fitted", "signs", "none"]
"""How a layer's credit relates to the gradient by construction; a cosine of an exact layer is no evidence."""


@dataclass(frozen=True)
class Fresh(CardPart):
    """A layer's mean cosine under freshly drawn feedback."""

    mean: float
    std: float
    draws: NonNegative
    z: Number


@dataclass(frozen=True)
class LayerCredit(CardPart):
    """The credit at one layer."""

    cos: Number
    direction: Direction
    """Whether float64 reproduces the credit."""
    norm: Number
    clamped: Number
    n: NonNegative
    excluded: NonNegative
    label: LayerLabel
    null_std: float | None
    z: Number
    fresh: Fresh | None


@dataclass(frozen=True)
class Layer(CardPart):
    """One hidden state h_l."""

    index: NonNegative
    hidden_norm: Number
    grad_norm_raw: Number
    grad_norm_128: Number
    direction: Direction
    clamp: Clamp
    credit: LayerCredit | None

    JSON_KEYS = (
        "layer", "hidden_norm", "grad_norm_128", "grad_norm_raw", "cos64", "direction", "clamp", "credit",
    )  # fmt: skip
    JSON_ATTRIBUTES: ClassVar = {"layer": "index"}

    @property
    def cos64(self) -> Cos64 | None:
        return self.direction.cos64


def layer_of(m: Measurements, index: int, t: DiagnosticThresholds) -> Layer:
    """All quantities of the hidden state h_index."""
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
    credit_direction = credit_direction_of(m, index, t)
    cos = _cosine(m, index, direction, credit_direction, known, excluded)
    std = None if stds is None else float(stds[index])
    return LayerCredit(
        cos=cos,
        direction=credit_direction,
        norm=_mean_norm(m.get("credit_norm"), index, "credit"),
        clamped=_clamped(clamped, index, cos, clamp, t),
        n=int(known.size),
        excluded=int(excluded),
        label=layer_label(m, index),
        null_std=std,
        z=score(cos, std),
        fresh=fresh_of(cos, m.get("null_fresh"), [index]),
    )


def layer_label(m: Measurements, index: int) -> LayerLabel:
    """The label of one layer; `none` where the measurements have no labels."""
    labels = m.facts.get("labels")
    return (labels[index] or "none") if labels else "none"


def is_exact_block(m: Measurements, block: int) -> bool:
    """Whether the credit that trains a block is the gradient at its output by construction."""
    return m.facts.get("site") != "input" and layer_label(m, block + 1) == "exact"


def _cosine(
    m: Measurements, index: int, direction: Direction, credit_direction: Direction, known: Array, excluded: int
) -> Number:
    """The mean of the known per-sample cosines, unless the reference is invalid or one of the two is noise."""
    if index == 0 and m.facts.get("pool") == "cls":
        return Number.invalid("not informative: before the first block the cls token is the same for every sample")
    if direction.status == "invalid":
        return Number.invalid(direction.reason)
    if direction.status == "noise":
        return Number.invalid(f"the reference is noise: {direction.reason}")
    if credit_direction.status == "noise":
        return Number.invalid(f"the credit is noise: {credit_direction.reason}")
    if known.size == 0:
        return Number.invalid(f"all {excluded} samples are excluded: their reference or credit is zero or not finite")
    caveats = []
    if direction.status == "missing":
        caveats.append(UNCHECKED)
    if direction.status == "degraded":
        caveats.append("direction degraded")
    if credit_direction.status == "degraded":
        caveats.append("credit degraded")
    if excluded:
        caveats.append(f"{excluded} of {known.size + excluded} samples excluded")
    return Number.of(float(known.mean()), "; ".join(caveats))


def _clamped(clamped: Array | None, index: int, cos: Number, clamp: Clamp, t: DiagnosticThresholds) -> Number:
    """The cosine that a plain, clamping cosine function gives; its reason always says so."""
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
    """z over the null of random rotations, which has mean zero and the exactly known standard deviation `std`."""
    if not cos.ok:
        return cos
    if std is None:
        return Number.missing("the null was not measured")
    if not (math.isfinite(std) and std > 0):
        return Number.invalid("the null has no width")
    return Number.of(cos.known / std)


def fresh_of(cos: Number, draws: Array | None, layers: list[int]) -> Fresh | None:
    """The mean cosine over `layers` compared with fresh feedback; None if it was not drawn for all of them."""
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

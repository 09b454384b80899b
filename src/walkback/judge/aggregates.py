"""Aggregate cosines: one number for the alignment of all layers.

There are several aggregates, and they can differ several-fold, so each is named. An aggregate that includes a layer
whose cosine is INVALID is INVALID; the layer is not left out silently.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from walkback.core.measurements import FIRST_EDITION, Measurements
from walkback.judge.card_part import CardPart
from walkback.judge.layers import Fresh, Layer, LayerCredit, fresh_of, is_exact_block, score
from walkback.judge.number import Number, first_bad
from walkback.judge.reference import UNCHECKED
from walkback.judge.thresholds import DiagnosticThresholds

NO_CREDIT = Number.missing("no credit was measured")


@dataclass(frozen=True)
class Aggregates(CardPart):
    """Alignment over layers. A1 to A4 include l = 0..L; docs/diagnostics/concentration.md has their formulas."""

    a1: Number = NO_CREDIT
    a2: Number = NO_CREDIT
    a3: Number = NO_CREDIT
    a4: Number = NO_CREDIT
    deep_mean: Number = NO_CREDIT
    """Mean over `deep_layers`: the states whose credit trains a block, without layers exact by construction."""
    deep_mean_papers: Number = NO_CREDIT
    """Mean over l = 1..L, exact layers included: the only aggregate to compare with published figures."""
    deep_mean_z: Number = NO_CREDIT
    deep_mean_null_std: float | None = None
    """Standard deviation of `deep_mean` under random rotations of the credit."""
    used_mean: Number = NO_CREDIT
    """Mean over blocks, without exact ones, of the cosine of the credit that trains the block with the gradient at its
    output. Shown: each block is judged alone. It decides only where no state's credit is judged."""
    used_mean_null_std: float | None = None
    deep_mean_fresh: Fresh | None = None
    partial_mean_z: Number | None = None
    """z of the mean partial cosine over the deep layers, without the gradient at h_L; None if it was not measured."""
    deep_layers: tuple[int, ...] = ()
    concentration: Number = NO_CREDIT
    concentration_layer: int | None = None
    concentration_layers: int = 0
    """How many layers were examined, those inside their null included."""
    none_above_null: bool = False
    """Every layer has a null and none is above it: the credit is low rather than concentrated."""

    JSON_KEYS = (
        "A1", "A2", "A3", "A4", "deep_mean", "deep_mean_papers", "deep_mean_z", "deep_mean_fresh_z", "concentration",
        "used_mean",
    )  # fmt: skip
    JSON_LATER = ("used_mean",)
    JSON_ATTRIBUTES: ClassVar = {"A1": "a1", "A2": "a2", "A3": "a3", "A4": "a4"}

    @property
    def deep_mean_fresh_z(self) -> Number:
        fresh = self.deep_mean_fresh
        return Number.missing("no fresh feedback was drawn") if fresh is None else fresh.z


def aggregates_of(m: Measurements, layers: Sequence[Layer], t: DiagnosticThresholds) -> Aggregates:
    """All aggregates of one measured credit."""
    if m.get("credit_cos") is None:
        return Aggregates()
    # Before the first block the cls token is the same for every sample, so that layer is left out, with a note.
    cls = m.facts.get("pool") == "cls"
    every = list(layers[1:] if cls else layers)
    left_out = "layer 0 left out: cls" if cls else ""
    deep = [layers[index] for index in deep_layers(m)]
    deep_mean = _mean(deep)
    if not deep:
        deep_mean = Number.missing("every deep layer is exact by construction, or there is none")
    judged = [x for x in every if _of(x).label != "exact"]
    kappa, where = _concentration(judged, t)
    indices = [x.index for x in deep]
    null_std = _null_std([_of(x).null_std for x in deep])
    return Aggregates(
        a1=_mean(every, left_out),
        a2=_joint(m, every, left_out),
        a3=_group(m, every, left_out),
        a4=_weighted(every, left_out),
        deep_mean=deep_mean,
        deep_mean_papers=_mean(layers[1:]),
        deep_mean_z=score(deep_mean, null_std),
        deep_mean_null_std=null_std,
        **_used_mean(m),
        deep_mean_fresh=fresh_of(deep_mean, m.get("null_fresh"), indices),
        partial_mean_z=_partial_z(m, indices),
        deep_layers=tuple(indices),
        concentration=kappa,
        concentration_layer=where,
        concentration_layers=len(judged),
        none_above_null=all(_of(x).z.ok and _of(x).z.known < t.null_z for x in judged),
    )


def _partial_z(m: Measurements, indices: Sequence[int]) -> Number | None:
    """z of the mean partial cosine over layers that have one; at h_L itself nothing is left to compare."""
    partial, stds = m.get("partial_cos"), m.get("null_partial_std")
    if partial is None or stds is None:
        return None
    wanted = [index for index in indices if index < m.depth]
    if not wanted:
        return None
    known = [index for index in wanted if np.isfinite(partial[index]).any()]
    if not known:
        return Number.invalid("nothing is left of the credit without the gradient at h_L")
    mean = math.fsum(float(np.nanmean(partial[index])) for index in known) / len(known)
    std = math.sqrt(math.fsum(float(stds[index]) ** 2 for index in known)) / len(known)
    return score(Number.of(mean), std)


def deep_layers(m: Measurements) -> list[int]:
    """The states whose credit trains a block: h_0..h_L-1 under `site=input`, h_1..h_L under `site=output`.

    Left out are states where the credit is exact by construction, and h_0 of a network whose cls token was measured:
    before the first block it is the same for every sample. Cards of the first edition leave h_0 out under either site.
    """
    at_input = m.facts.get("site") == "input"
    without_first = not at_input or m.facts.get("pool") == "cls" or m.facts.get(FIRST_EDITION, False)
    labels = m.facts.get("labels") or ["none"] * (m.depth + 1)
    states = range(1 if without_first else 0, m.depth if at_input else m.depth + 1)
    return [index for index in states if labels[index] != "exact"]


def _of(layer: Layer) -> LayerCredit:
    assert layer.credit is not None
    return layer.credit


def _usable(layers: Sequence[Layer], *notes: str) -> tuple[Number | None, str]:
    """(number to return instead, "") if a layer's cosine is unusable, otherwise (None, the aggregate's caveat)."""
    for layer in layers:
        cos = _of(layer).cos
        if not cos.ok:
            return Number(None, cos.status, f"it rests on layer {layer.index}: {cos.reason}"), ""
    caveats = [note for note in notes if note]
    if any(layer.direction.status == "missing" for layer in layers):
        caveats.append(UNCHECKED)
    degraded = [str(layer.index) for layer in layers if layer.direction.status == "degraded"]
    if degraded:
        caveats.append(f"direction degraded at layer {', '.join(degraded)}")
    return None, "; ".join(caveats)


def _mean(layers: Sequence[Layer], note: str = "") -> Number:
    if not layers:
        return Number.missing("there is no such layer")
    instead, caveat = _usable(layers, note)
    return instead or Number.of(float(np.mean([_of(x).cos.known for x in layers])), caveat)


def _joint(m: Measurements, layers: Sequence[Layer], note: str) -> Number:
    """A2: one cosine per sample over all layers at once."""
    dots, credits, grads = m.get("credit_dot"), m.get("credit_norm"), m.get("grad_norm64")
    grads = m.get("grad_norm") if grads is None else grads
    if dots is None or credits is None or grads is None:
        return Number.missing("inner products and norms were not measured")
    instead, caveat = _usable(layers, note)
    if instead:
        return instead
    rows = [x.index for x in layers]
    dot, a, g = dots[rows], credits[rows], grads[rows]
    largest_a, largest_g = a.max(axis=0), g.max(axis=0)
    good = np.isfinite(dot).all(axis=0) & np.isfinite(a).all(axis=0) & np.isfinite(g).all(axis=0)
    good &= (largest_a > 0) & (largest_g > 0)
    if not good.any():
        return Number.invalid("no sample has a credit and a gradient at every layer")
    # Divided by the largest first: squares of tiny norms would underflow.
    a, g = a[:, good] / largest_a[good], g[:, good] / largest_g[good]
    inner = (dot[:, good] / largest_a[good] / largest_g[good]).sum(axis=0)
    cosines = inner / np.sqrt((a**2).sum(axis=0) * (g**2).sum(axis=0))
    return Number.of(float(cosines.mean()), caveat)


def _group(m: Measurements, layers: Sequence[Layer], note: str) -> Number:
    """A3: cosine of group means, averaged over groups and layers."""
    groups = m.get("credit_group_cos")
    if groups is None or groups.shape[1] == 0:
        return Number.missing("group means were not measured")
    instead, caveat = _usable(layers, note)
    if instead:
        return instead
    rows = groups[[x.index for x in layers]]
    known = np.isfinite(rows)
    if not known.any(axis=1).all():
        return Number.invalid("the group means vanish at a layer")
    return Number.of(float(np.mean([row[ok].mean() for row, ok in zip(rows, known, strict=True)])), caveat)


def _weighted(layers: Sequence[Layer], note: str) -> Number:
    """A4: weighted by the size of the gradient."""
    instead, caveat = _usable(layers, note)
    instead = instead or first_bad(x.grad_norm_raw for x in layers)
    if instead:
        return instead
    weights = np.array([x.grad_norm_raw.known for x in layers])
    if weights.max(initial=0.0) == 0:
        return Number.invalid("every gradient is zero")
    weights = weights / weights.max()
    cosines = np.array([_of(x).cos.known for x in layers])
    return Number.of(float((weights * cosines).sum() / weights.sum()), caveat)


def _used_mean(m: Measurements) -> dict[str, Any]:
    cosines, stds = m.get("used_cos"), m.get("null_used_std")
    blocks = [block for block in range(m.depth) if not is_exact_block(m, block)]
    if cosines is None or not blocks:
        return {"used_mean": Number.missing("no block has a credit that is not exact by construction")}
    known = [row[np.isfinite(row)] for row in cosines[blocks]]
    if not all(row.size for row in known):
        return {"used_mean": Number.invalid("a block has no sample with a credit and a gradient")}
    mean = Number.of(float(np.mean([row.mean() for row in known])))
    std = None if stds is None else _null_std([float(stds[block]) for block in blocks])
    return {"used_mean": mean, "used_mean_null_std": std}


def _null_std(stds: Sequence[float | None]) -> float | None:
    """Standard deviation of a mean cosine under independent rotations of each part; None if not measured."""
    if not stds or any(std is None for std in stds):
        return None
    return math.sqrt(math.fsum(std**2 for std in stds if std is not None)) / len(stds)


def _concentration(layers: Sequence[Layer], t: DiagnosticThresholds) -> tuple[Number, int | None]:
    """kappa and its layer: the largest share of the positive alignment held by one layer, over layers above their null.

    The caller leaves out layers that are exact by construction: they hold a large share whatever was learned.
    """
    if not layers:
        return Number.missing("every layer is exact by construction"), None
    instead, caveat = _usable(layers)
    instead = instead or first_bad(_of(x).z for x in layers)
    if instead:
        return instead, None
    shares = {x.index: _of(x).cos.known for x in layers if _of(x).z.known >= t.null_z}
    if not shares:
        return Number.missing("no layer's cosine is above its null"), None
    where = max(shares, key=lambda index: shares[index])
    return Number.of(shares[where] / math.fsum(shares.values()), caveat), where

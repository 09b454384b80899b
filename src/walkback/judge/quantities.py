"""Everything that is computed from stored measurements before judging: layers, growth, aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from walkback.core.errors import InputError
from walkback.core.measurements import AXES, GROUP, Array, Measurements
from walkback.judge.aggregates import Aggregates, aggregates_of
from walkback.judge.blocks import Block, blocks_of
from walkback.judge.layers import Layer, layer_of
from walkback.judge.number import Number
from walkback.judge.thresholds import DiagnosticThresholds

FITTED_ERROR = 0.1
"""|e| of a network that has fitted its samples; one that has learned nothing has about 1."""


@dataclass(frozen=True)
class Quantities:
    """The input of the checks and claims."""

    layers: tuple[Layer, ...]
    blocks: tuple[Block, ...]
    """Empty if nothing about blocks was measured."""
    growth: Mapping[int, Number]
    """By block l: |h_{l+1}| / |h_l|, means over samples; for block 0 over all tokens if the head reads only cls."""
    overflow: int | None
    """The first layer whose mean norm is infinite after a finite one: unbounded growth."""
    group_cos: Number
    """Mean pairwise cosine of the normalised group-mean gradients at h_L."""
    error_norm: Number
    grad_over_error: Number
    """|g_L| / |e|: tells a collapsed gradient from that of a fitted network, whose error is small as well."""
    aggregates: Aggregates
    top_norms: Array | None
    """Per-sample gradient norms at h_L."""
    samples: int
    groups: int
    dtype: str
    has_credit: bool
    not_finite_share: float
    """The largest share of samples, over layers, whose gradient or credit is not finite."""
    broken: str
    """Why the model's predictions are no predictions; empty where they are."""
    read_thresholds: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)
    """The thresholds these quantities depend on, with their values."""

    @property
    def depth(self) -> int:
        return len(self.layers) - 1

    def is_fitted(self, floor: float) -> bool:
        """Whether a small error explains a gradient under `floor`: with an error of norm 1 it would be above."""
        if not self.error_norm.ok or self.error_norm.known > FITTED_ERROR:
            return False
        return self.error_norm.known == 0 or (self.grad_over_error.ok and self.grad_over_error.known / GROUP >= floor)

    def hold_under(self, thresholds: DiagnosticThresholds) -> bool:
        """Whether computing them again under these thresholds would give the same."""
        return all(getattr(thresholds, name) == value for name, value in self.read_thresholds.items())

    @property
    def top(self) -> Layer:
        return self.layers[-1]


class _ThresholdReader:
    """Gives the thresholds and records which of them are read."""

    def __init__(self, thresholds: DiagnosticThresholds):
        self._thresholds = thresholds
        self.read: dict[str, float] = {}

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._thresholds, name)
        self.read[name] = value
        return value


def quantities(m: Measurements, thresholds: DiagnosticThresholds) -> Quantities:
    """Compute all quantities of these measurements."""
    reader = _ThresholdReader(thresholds)
    t = cast(DiagnosticThresholds, reader)
    _require_consistent(m)
    layers = tuple(layer_of(m, index, t) for index in range(m.depth + 1))
    errors, grads, pairs = m.get("error_norm"), m.get("grad_norm"), m.get("group_cos")
    error = Number.missing("the output error was not measured") if errors is None else Number.of(float(errors.mean()))
    return Quantities(
        layers=layers,
        blocks=blocks_of(m, t),
        growth=_growth(m, layers),
        overflow=_overflow(m),
        group_cos=_group_cos(pairs, layers[-1]),
        error_norm=error,
        grad_over_error=_ratio(layers[-1].grad_norm_raw, error, "the output error is zero"),
        aggregates=aggregates_of(m, layers, t),
        top_norms=None if grads is None else grads[-1],
        samples=int(m.facts["samples"]),
        groups=int(m.facts["groups"]),
        dtype=str(m.facts.get("dtype", "unknown")),
        has_credit=m.get("credit_cos") is not None,
        not_finite_share=_not_finite_share(m),
        broken=_broken(m),
        read_thresholds=reader.read,
    )


def _ratio(above: Number, below: Number, zero: str) -> Number:
    for number in (above, below):
        if not number.ok:
            return number
    return Number.of(above.known / below.known) if below.known > 0 else Number.invalid(zero)


def _growth(m: Measurements, layers: tuple[Layer, ...]) -> dict[int, Number]:
    # Before the first block the cls token is the same for every sample, so its norm is no baseline for growth.
    first = 1 if m.facts.get("pool") == "cls" else 0
    found = {
        block: _ratio(layers[block + 1].hidden_norm, layers[block].hidden_norm, f"the hidden state h_{block} is zero")
        for block in range(first, len(layers) - 1)
    }
    whole = m.get("hidden_norm_all")
    if first == 1 and whole is not None and np.isfinite(whole[:2]).all() and whole[0].any():
        found[0] = Number.of(float(whole[1].mean() / whole[0].mean()), "over all tokens")
    return found


def _overflow(m: Measurements) -> int | None:
    norms = m.get("hidden_norm")
    if norms is None:
        return None
    means = norms.mean(axis=1)
    for index in range(1, len(means)):
        if np.isposinf(means[index]) and np.isfinite(means[index - 1]):
            return index
    return None


def _not_finite_share(m: Measurements) -> float:
    """Zero gradients and credits are finite: they are excluded from cosines, not invalid."""
    gradients = m.get("grad_norm") if m.get("grad_norm64") is None else m.get("grad_norm64")
    found = [array for array in (gradients, m.get("credit_norm")) if array is not None]
    return max((float((~np.isfinite(array)).mean(axis=1).max()) for array in found), default=0.0)


def _broken(m: Measurements) -> str:
    """Values that are not finite, one class among the labels, or one prediction for all samples."""
    for name, what in (("loss", "loss"), ("error_norm", "output"), ("hidden_norm", "hidden state")):
        array = m.get(name)
        bad = (
            0
            if array is None
            else int((~np.isfinite(array)).any(axis=0).sum() if array.ndim > 1 else (~np.isfinite(array)).sum())
        )
        if bad:
            return f"the {what} is not finite for {bad} of {m.facts['samples']} samples"
    if m.facts.get("label_classes") == 1:
        return "all samples have the same label: any constant prediction is right"
    if m.facts.get("predicted_classes") == 1:
        return f"the model predicts the same class for all {m.facts['samples']} samples"
    return ""


def _group_cos(pairs: Array | None, top: Layer) -> Number:
    if pairs is None or pairs.size == 0:
        return Number.missing("at least 2 groups of 128 samples are needed")
    if top.direction.status == "invalid":
        return Number.invalid(top.direction.reason)
    if top.direction.status == "noise":
        return Number.invalid(f"the reference is noise: {top.direction.reason}")
    known = pairs[np.isfinite(pairs)]
    if known.size < pairs.size:
        return Number.invalid(
            f"the mean gradient of a group vanished in {pairs.size - known.size} of {pairs.size} pairs"
        )
    return Number.of(float(known.mean()))


def _require_consistent(m: Measurements) -> None:
    """Refuse arrays whose sizes contradict each other."""
    for fact in ("layers", "samples", "groups"):
        count = m.facts.get(fact)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InputError(f"The measurements' '{fact}' is {count!r}; expected a whole number. Measure again.")
    if m.facts["samples"] == 0:
        raise InputError("The measurements hold no sample: expected at least 2 groups of 128. Measure again.")
    if m.depth < 1:
        raise InputError("The measurements hold no block: expected at least 2 hidden states. Measure again.")
    sizes = {"layer": m.facts["layers"], "sample": m.facts["samples"]}
    for name, array in m.arrays.items():
        for axis, size in zip(AXES[name], array.shape, strict=True):
            if sizes.get(axis, size) != size:
                raise InputError(
                    f"The measurement '{name}' has {size} along '{axis}'; expected {sizes[axis]}. Measure again."
                )
    labels = m.facts.get("labels")
    if labels is not None and len(labels) != m.facts["layers"]:
        raise InputError(
            f"The measurements have {len(labels)} labels for {m.facts['layers']} hidden states. Measure again."
        )

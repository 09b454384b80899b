"""Statistics of finite-step measurements: means over samples with intervals, efficiencies, deep means, and ranks.

Intervals are t intervals over samples at fixed weights (ddof = 1): they say nothing about other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from walkback.core.errors import InputError
from walkback.core.measurements import Array, Measurements
from walkback.judge.aggregates import deep_layers
from walkback.judge.number import Number
from walkback.judge.statistics import mean_interval

CONTROL = 0.99
"""The correlation that the true gradient must reach for the step to count as small; below it there is a caveat."""
CLS = Number.invalid("not informative: before the first block the cls token is the same for every sample")


@dataclass(frozen=True)
class Mean:
    """A mean over samples."""

    mean: Number
    interval: tuple[float, float] | None = None
    """95%, over samples."""
    n: int = 0
    excluded: int = 0
    """Samples without a credit or gradient, or whose loss does not move."""

    def to_json(self) -> dict[str, Any]:
        interval = None if self.interval is None else list(self.interval)
        return {"mean": self.mean.to_json(), "interval": interval, "n": self.n, "excluded": self.excluded}


@dataclass(frozen=True)
class Functional:
    """Finite steps at one layer, or over the deep ones."""

    rho: Mean
    """Perturbation correlation, central differences."""
    rho_one_sided: Mean
    rho_pooled: Number
    """One correlation over all samples and directions; over the deep layers, the mean of theirs."""
    rho_gradient: Mean
    """Positive control: the true gradient in place of the credit."""
    rho_random: Mean
    """Negative control: a random vector in place of the credit."""
    random_std: Number
    """Width of the negative control's mean about zero."""
    nudge_credit: Mean
    """Change of the mean loss by a step against the credit; proportional to |h||g|, so networks cannot be compared."""
    nudge_gradient: Mean
    efficiency: Mean
    """nudge_credit / nudge_gradient: the share of the gradient's gain that the credit achieves; comparable."""

    def to_json(self) -> dict[str, Any]:
        return {name: value.to_json() for name, value in vars(self).items()}


def functional_layers(m: Measurements) -> tuple[Functional, ...]:
    """One `Functional` for each layer h_0..h_L."""
    return tuple(_functional(m, [index]) for index in range(m.depth + 1))


def functional_deep(m: Measurements) -> Functional:
    """Means over the layers whose credit trains a block, without those where it is exact by construction.

    Layers have equal weights. A sample that is missing at one layer is left out at all of them, and counted.
    """
    return _functional(m, deep_layers(m))


def functional_papers(m: Measurements) -> Functional:
    """Means over l = 1..L, exact layers counted, as `deep_mean_papers`."""
    return _functional(m, range(1, m.depth + 1))


def train_loss_change(rows: Sequence[Mapping[str, Any]]) -> Number:
    """Mean training loss of the last epoch minus that of the first, from the rows of a run's log.

    Both are means over the steps of an epoch, each computed before its update, on augmented samples if the run
    augments; the loss at initialisation is not included.
    """
    if len(rows) < 2:
        return Number.missing(f"the log holds {len(rows)} epochs; a change needs at least 2")
    first, last = (min(rows, key=_epoch).get("loss"), max(rows, key=_epoch).get("loss"))
    if first is None or last is None:
        return Number.invalid("the training loss is not a finite number in the first or the last epoch")
    return Number.of(float(last) - float(first))


def kendall_tau(a: Sequence[float], b: Sequence[float]) -> Number:
    """Kendall's tau-b of two rankings of the same things: 1 is the same order, -1 the reverse; ties are handled."""
    if len(a) != len(b):
        raise InputError(f"Two rankings have {len(a)} and {len(b)} entries; expected the same things in both.")
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if not (np.isfinite(left).all() and np.isfinite(right).all()):
        return Number.invalid("an entry is not a finite number and has no rank")
    if len(left) < 2:
        return Number.missing(f"{len(left)} entries have no order; at least 2 are needed")
    # Compared rather than subtracted: a difference of tiny numbers may round to zero.
    x, y = (np.sign(np.greater.outer(v, v).astype(int) - np.less.outer(v, v)) for v in (left, right))
    pairs_x, pairs_y = int(np.abs(x).sum()), int(np.abs(y).sum())
    if pairs_x == 0 or pairs_y == 0:
        return Number.invalid("all entries of one side are equal, so it has no order")
    return Number.of(int((x * y).sum()) / math.sqrt(pairs_x * pairs_y))


def random_std(samples: int, directions: int, features: int) -> float:
    """Standard deviation of the mean correlation with independent random vectors, over K directions in d dimensions.

    A sample's correlation has variance (1 + (d + 1)/(K - 1))/d: 1/K from the finite number of directions, and 1/d
    because that is the squared cosine of a random vector with any gradient. It is 1/sqrt(nK) only if d >> K.
    """
    return math.sqrt((directions + features) / (features * (directions - 1) * samples))


def _functional(m: Measurements, layers: Sequence[int]) -> Functional:
    control, random = _mean(m, "rho_gradient", layers), _mean(m, "rho_random", layers)
    width = Number.missing("no random vector was tried")
    if random.n:
        # Each layer has its own directions, so layers count like further samples.
        n = random.n * len(layers)
        width = Number.of(random_std(n, int(m.facts["directions"]), int(m.facts["features"])))
    caveat = ""
    if control.mean.ok and control.mean.known < CONTROL:
        caveat = f"the true gradient itself reads {control.mean.known:.3f}: the step is not small here"
    return Functional(
        rho=_mean(m, "rho", layers, caveat),
        rho_one_sided=_mean(m, "rho_one_sided", layers, caveat),
        rho_pooled=_pooled(m, layers, caveat),
        rho_gradient=control,
        rho_random=random,
        random_std=width,
        nudge_credit=_mean(m, "nudge_credit", layers),
        nudge_gradient=_mean(m, "nudge_gradient", layers),
        efficiency=_efficiency(m, layers),
    )


def _rows(m: Measurements, names: Sequence[str], layers: Sequence[int]) -> tuple[list[Array], int] | Number:
    """The named arrays at `layers`, restricted to samples that are finite in all of them, and the number left out.

    A number instead says why there is nothing to average.
    """
    found = [array for name in names if (array := m.get(name)) is not None]
    if len(found) < len(names):
        return Number.missing("no credit was measured")
    if not layers:
        return Number.missing("every deep layer is exact by construction, or there is none")
    if 0 in layers and m.facts.get("pool") == "cls":
        return CLS
    chosen = [array[list(layers)] for array in found]
    keep = np.isfinite(chosen).all(axis=(0, 1))
    excluded = int((~keep).sum())
    if not keep.any():
        return Number.invalid(f"all {excluded} samples are excluded: no credit, no gradient, or a loss that stays put")
    return [array[:, keep] for array in chosen], excluded


def _mean(m: Measurements, name: str, layers: Sequence[int], caveat: str = "") -> Mean:
    rows = _rows(m, [name], layers)
    if isinstance(rows, Number):
        return Mean(rows)
    (values,), excluded = rows
    return _over_samples(values.mean(axis=0), excluded, caveat)


def _over_samples(values: Array, excluded: int, caveat: str) -> Mean:
    left_out = f"{excluded} of {len(values) + excluded} samples excluded" if excluded else ""
    caveats = "; ".join(filter(None, [left_out, caveat]))
    return Mean(Number.of(float(values.mean()), caveats), mean_interval(values), len(values), excluded)


def _pooled(m: Measurements, layers: Sequence[int], caveat: str) -> Number:
    pooled, rows = m.get("rho_pooled"), _rows(m, ["rho"], layers)
    if isinstance(rows, Number):
        return rows
    return Number.missing("it was not measured") if pooled is None else Number.of(pooled[list(layers)].mean(), caveat)


def _efficiency(m: Measurements, layers: Sequence[int]) -> Mean:
    """The ratio of the mean changes at each layer, averaged over layers.

    The interval is that of the linearised ratio: each sample contributes (credit - ratio * gradient) / mean gradient.
    """
    rows = _rows(m, ["nudge_credit", "nudge_gradient"], layers)
    if isinstance(rows, Number):
        return Mean(rows)
    (credit, gradient), excluded = rows
    gains = gradient.mean(axis=1, keepdims=True)
    if not (gains < 0).all():
        where = layers[int(np.argmax(gains[:, 0]))]
        return Mean(Number.invalid(f"at layer {where} the step against the gradient itself does not lower the loss"))
    ratios = credit.mean(axis=1, keepdims=True) / gains
    return _over_samples((ratios + (credit - ratios * gradient) / gains).mean(axis=0), excluded, "")


def _epoch(row: Mapping[str, Any]) -> int:
    return int(row["epoch"])

"""Error bars from three seeds by a bootstrap or with ddof = 0 are far too short.

Wrong: the 95% percentile bootstrap of three seeds; how often it covers the true mean
Right: the t-interval with ddof = 1
Size: at least 0.15 of coverage missing from a nominal 95% interval
Linter: WB004, WB020
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from walkback.core.measurements import Array
from walkback.judge.statistics import mean_interval
from walkback.judge.student_t import normal_quantile
from walkback.pitfalls.case import PitfallOutcome

_SEEDS, TABLES = 3, 20_000


def run() -> PitfallOutcome:
    draws = np.random.default_rng(0).standard_normal((TABLES, _SEEDS))
    # All 27 resamples instead of random ones: the bootstrap without sampling noise.
    resamples = np.array(list(itertools.product(range(_SEEDS), repeat=_SEEDS)))
    means = draws[:, resamples].mean(-1)
    wrong = _coverage(np.quantile(means, [0.025, 0.975], axis=1, method="inverted_cdf").T)
    half = normal_quantile(0.975) * draws.std(axis=1, ddof=0) / math.sqrt(_SEEDS)
    centre = draws.mean(axis=1)
    narrow = _coverage(np.stack([centre - half, centre + half], axis=1))
    right = _coverage(np.array([mean_interval(row) for row in draws]))
    note = f"{TABLES} tables of {_SEEDS} normal seeds; mean ± 1.96 sd/√3 with ddof = 0 covers {narrow:.3f}"
    return PitfallOutcome(wrong, right, right - wrong, "of coverage", 0.15, note)


def _coverage(intervals: Array) -> float:
    """The share of intervals [tables, 2] that contain the true mean, 0."""
    return float(((intervals[:, 0] <= 0) & (intervals[:, 1] >= 0)).mean())

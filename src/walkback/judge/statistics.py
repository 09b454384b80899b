"""Intervals over seeds and over samples, and a sentence about what so few seeds can show.

Seeds: the t interval of paired differences, ddof = 1. One seed: McNemar's paired difference of proportions over stored
per-sample correctness. No bootstrap: over three seeds its 95% interval covers 75%.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from walkback.core.errors import InputError
from walkback.judge import student_t

POWER = 0.8


@dataclass(frozen=True)
class Margin:
    """A mean difference in percentage points, with its spread if known."""

    mean: float
    n: int
    counts: str
    """What n counts: "paired seeds", "seeds" (not paired) or "samples"."""
    sd: float | None = None
    """Standard deviation of the paired differences, ddof = 1."""
    error: float | None = None
    """Standard error of the mean."""
    df: float | None = None
    """Degrees of freedom; None with an `error` means the normal distribution."""
    interval: tuple[float, float] | None = None

    def p_value(self, margin: float) -> float | None:
        """Two-sided p-value of the hypothesis that the true margin equals `margin`."""
        if self.error is None:
            return None
        distance = abs(self.mean - margin)
        if self.error == 0:
            return 0.0 if distance else 1.0
        score = distance / self.error
        return student_t.normal_two_sided(score) if self.df is None else student_t.two_sided(score, self.df)


def paired_margin(ours: Sequence[float], theirs: Sequence[float], confidence: float = 0.95) -> Margin:
    """Mean of ours - theirs in percentage points; with two or more pairs, the t interval of the differences.

    One number on either side stands for all seeds: then nothing is paired and there is no interval.
    """
    if len(ours) != len(theirs):
        difference = 100 * (float(np.mean(ours)) - float(np.mean(theirs)))
        return Margin(_clean(difference), max(len(ours), len(theirs)), "seeds")
    differences = 100 * (np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64))
    mean, n = _clean(float(differences.mean())), len(ours)
    if n < 2:
        return Margin(mean, n, "paired seeds")
    sd = _clean(float(differences.std(ddof=1)))
    error = sd / math.sqrt(n)
    half = student_t.quantile((1 + confidence) / 2, n - 1) * error
    return Margin(mean, n, "paired seeds", sd, error, n - 1, (mean - half, mean + half))


def mcnemar_margin(ours: Sequence[bool], theirs: Sequence[bool], confidence: float = 0.95) -> Margin:
    """The paired difference of two accuracies on the same samples, in percentage points.

    Half a sample is added to each cell (Agresti and Min, 2005), so that two models that never disagree do not get an
    interval of width zero.
    """
    if len(ours) != len(theirs):
        raise InputError(
            f"Per-sample correctness has {len(ours)} and {len(theirs)} samples; expected the same samples in both. "
            "Evaluate both models on one test set."
        )
    mine, other = np.asarray(ours, dtype=bool), np.asarray(theirs, dtype=bool)
    n = len(mine)
    gained, lost = int((mine & ~other).sum()), int((~mine & other).sum())
    total, up, down = n + 2, gained + 0.5, lost + 0.5
    centre = (up - down) / total
    error = 100 * math.sqrt(((up + down) / total - centre**2) / total)
    half = student_t.normal_quantile((1 + confidence) / 2) * error
    return Margin(
        _clean(100 * (gained - lost) / n), n, "samples", None, error, None, (100 * centre - half, 100 * centre + half)
    )


def mean_interval(values: np.ndarray, confidence: float = 0.95) -> tuple[float, float] | None:
    """The t interval of a mean; None for fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    half = student_t.quantile((1 + confidence) / 2, n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    mean = float(np.mean(values))
    return mean - half, mean + half


def detectable_margin(margin: Margin) -> float | None:
    """The smallest true difference, in pp, that these paired seeds detect with 80% power at alpha = 0.05."""
    return None if margin.sd is None else student_t.detectable_effect(margin.n, POWER) * margin.sd


def interval_text(margin: Margin | None) -> str:
    """A sentence about what the number of seeds can show."""
    if margin is None:
        return "No accuracy margin was given, so nothing is said about seeds."
    if margin.counts == "samples":
        return (
            f"One seed, {margin.n} samples: the interval is over samples at fixed weights; it says nothing about how "
            "another seed would come out."
        )
    if margin.counts == "seeds":
        return (
            "Not paired by seed: one number stands for several seeds on one side, so there is no interval. "
            "Give one accuracy per seed on both sides."
        )
    if margin.n == 1:
        return (
            "With 1 seed the spread between seeds is unknown: there is no interval, and no margin, however large, is "
            "known to repeat. Run at least 3 seeds."
        )
    assert margin.sd is not None
    if margin.sd == 0:
        return f"All {margin.n} paired differences are equal: no spread was seen, which so few seeds cannot rule out."
    effect = student_t.detectable_effect(margin.n, POWER)
    text = (
        f"With {margin.n} seeds and a spread of {margin.sd:.2g} pp (ddof = 1) this comparison can detect only margins "
        f"above {effect * margin.sd:.2g} pp ({effect:.2f} times the spread; 80% power, two-sided alpha = 0.05)."
    )
    if margin.n == 2:
        text += " Two seeds estimate a spread with one degree of freedom: hardly at all."
    elif margin.n == 3:
        text += " Three seeds estimate the spread itself only to within a factor of 0.5 to 6."
    return text


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's adjusted p-values: each can be compared with alpha as if it were the only test."""
    adjusted: dict[str, float] = {}
    running = 0.0
    ordered = sorted(p_values.items(), key=lambda item: item[1])
    for rank, (name, p) in enumerate(ordered):
        running = max(running, min(1.0, (len(ordered) - rank) * p))
        adjusted[name] = running
    return {name: adjusted[name] for name in p_values}


def _clean(points: float) -> float:
    """Rounded to remove the error of binary fractions: 0.37 - 0.35 is exactly 2 pp."""
    return round(points, 9)

"""Intervals over seeds and over samples, and a sentence about what so few seeds can show.

Seeds: the t interval of paired differences, ddof = 1. One seed: the score interval of the paired difference of two
accuracies over stored per-sample correctness, or of two bare accuracies over test sets of known size. No bootstrap:
over three seeds its 95% interval covers 75%.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from walkback.core.errors import InputError
from walkback.core.measurements import Array
from walkback.judge import student_t
from walkback.judge.score_tests import PairedScoreTest, ScoreTest, UnpairedScoreTest

POWER = 0.8
PERCENTAGE_POINTS, NATS = "pp", "nats"
"""Units of margins: of accuracies, and of losses a token."""


class DifferenceTest(Protocol):
    """A test of hypothesised differences of two accuracies, in percentage points."""

    def p_value(self, points: float) -> float:
        """Two-sided p-value of the hypothesis that the true difference is `points`."""


def digits_of(unit: str) -> int:
    """Decimal places in which a margin of this unit is shown."""
    return 3 if unit == NATS else 1


@dataclass(frozen=True)
class Margin:
    """A mean difference in percentage points, or of losses in nats, with its spread if known."""

    mean: float
    n: int
    counts: str
    """What n counts: "paired seeds", "seeds" (not paired), "samples" or "unpaired samples"."""
    sd: float | None = None
    """Standard deviation of the paired differences, ddof = 1."""
    interval: tuple[float, float] | None = None
    test: DifferenceTest | None = None
    """Over samples: the test that the interval belongs to."""
    unit: str = PERCENTAGE_POINTS

    @property
    def digits(self) -> int:
        """Decimal places in which it is shown."""
        return digits_of(self.unit)

    @property
    def is_of_one_seed(self) -> bool:
        """Whether it is about one checkpoint: its interval says nothing about how another seed would come out."""
        return "samples" in self.counts or self.n == 1

    def p_value(self, margin: float) -> float | None:
        """Two-sided p-value of the hypothesis that the true margin equals `margin`."""
        if self.test is not None:
            return self.test.p_value(margin)
        if self.sd is None:
            return None
        distance = abs(self.mean - margin)
        if self.sd == 0:
            return 0.0 if distance else 1.0
        return student_t.two_sided(distance / _error(self.sd, self.n), self.n - 1)


def paired_margin(ours: Sequence[float] | Array, theirs: Sequence[float] | Array, confidence: float = 0.95) -> Margin:
    """Mean of ours - theirs in percentage points; with two or more pairs, the t interval of the differences.

    One number on either side stands for all seeds: then nothing is paired and there is no interval.
    """
    return _paired(100 * _array(ours), 100 * _array(theirs), "paired seeds", PERCENTAGE_POINTS, confidence)


def loss_margin(ours: Sequence[float], theirs: Sequence[float], confidence: float = 0.95) -> Margin:
    """Mean of theirs - ours in nats, so that a gain is positive; paired by seed as in `paired_margin`."""
    return _paired(-_array(ours), -_array(theirs), "paired seeds", NATS, confidence)


def window_margin(ours: Sequence[float], theirs: Sequence[float], confidence: float = 0.95) -> Margin:
    """The same for the losses of two models on the same windows: the t interval over windows."""
    return _paired(-_array(ours), -_array(theirs), "samples", NATS, confidence)


def _paired(ours: Array, theirs: Array, counts: str, unit: str, confidence: float) -> Margin:
    if len(ours) != len(theirs):
        difference = float(np.mean(ours)) - float(np.mean(theirs))
        return Margin(_clean(difference), max(len(ours), len(theirs)), "seeds", unit=unit)
    differences = ours - theirs
    mean, n = _clean(float(differences.mean())), len(ours)
    if n < 2:
        return Margin(mean, n, counts, unit=unit)
    sd = _clean(float(differences.std(ddof=1)))
    half = student_t.quantile((1 + confidence) / 2, n - 1) * _error(sd, n)
    return Margin(mean, n, counts, sd, (mean - half, mean + half), unit=unit)


def _array(values: Sequence[float] | Array) -> Array:
    return np.asarray(values, dtype=np.float64)


def paired_score_margin(ours: Sequence[bool], theirs: Sequence[bool], confidence: float = 0.95) -> Margin:
    """The difference of two accuracies on the same samples, in percentage points, with Tango's score interval."""
    test = PairedScoreTest(*paired_counts(ours, theirs))
    return _score_margin(test, test.n, "samples", confidence)


def paired_counts(ours: Sequence[bool], theirs: Sequence[bool]) -> tuple[int, int, int]:
    """How many samples only our model gets right, how many only the other one, and how many there are."""
    if len(ours) != len(theirs):
        raise InputError(
            f"Per-sample correctness has {len(ours)} and {len(theirs)} samples; expected the same samples in both. "
            "Evaluate both models on one test set."
        )
    mine, other = np.asarray(ours, dtype=bool), np.asarray(theirs, dtype=bool)
    return int((mine & ~other).sum()), int((~mine & other).sum()), len(mine)


def unpaired_score_margin(ours: float, theirs: float, n_ours: int, n_theirs: int, confidence: float = 0.95) -> Margin:
    """The difference of two bare accuracies (0 to 1), in percentage points, with Miettinen and Nurminen's interval.

    Which samples each model gets right is unknown. The interval takes them as independent; on one test set models tend
    to fail on the same samples, and it is then wider than that of the pairs.
    """
    test = UnpairedScoreTest(ours * n_ours, n_ours, theirs * n_theirs, n_theirs)
    return _score_margin(test, min(n_ours, n_theirs), "unpaired samples", confidence)


def _score_margin(test: ScoreTest, n: int, counts: str, confidence: float) -> Margin:
    return Margin(_clean(test.estimate), n, counts, interval=test.interval(confidence), test=test)


def exact_lower_bound(successes: int, n: int, level: float = 0.975) -> float:
    """The one-sided lower bound of a proportion that is at or below the truth in at least `level` of all cases.

    Clopper and Pearson, 1934: the smallest proportion under which so many successes have a probability of 1 - level.
    """
    return 0.0 if successes == 0 else student_t.beta_quantile(1 - level, successes, n - successes + 1)


def exact_interval(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a proportion: both one-sided bounds at half of 1 - `confidence`."""
    level = (1 + confidence) / 2
    return exact_lower_bound(successes, n, level), 1 - exact_lower_bound(n - successes, n, level)


def mean_interval(values: np.ndarray, confidence: float = 0.95) -> tuple[float, float] | None:
    """The t interval of a mean; None for fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    half = student_t.quantile((1 + confidence) / 2, n - 1) * _error(float(np.std(values, ddof=1)), n)
    mean = float(np.mean(values))
    return mean - half, mean + half


def detectable_margin(margin: Margin) -> float | None:
    """The smallest true difference that these paired seeds detect with 80% power at alpha = 0.05."""
    return None if margin.sd is None else student_t.detectable_effect(margin.n, POWER) * margin.sd


def interval_text(margin: Margin | None) -> str:
    """A sentence about what the number of seeds can show."""
    if margin is None:
        return "No accuracy margin was given, so nothing is said about seeds."
    if margin.counts == "samples":
        each = "windows" if margin.unit == NATS else "samples"
        return (
            f"One seed, {margin.n} {each}: the interval is over {each} at fixed weights; it says nothing about how "
            "another seed would come out."
        )
    if margin.counts == "unpaired samples":
        return (
            f"One seed, bare accuracies over {margin.n} samples: the interval takes the two models' samples as "
            "independent, which is cautious where both were tested on the same ones; it says nothing about how another "
            "seed would come out."
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
    effect, unit = student_t.detectable_effect(margin.n, POWER), margin.unit
    text = (
        f"With {margin.n} seeds and a spread of {margin.sd:.2g} {unit} (ddof = 1) this comparison can detect only "
        f"margins above {effect * margin.sd:.2g} {unit} ({effect:.2f} times the spread; 80% power, two-sided alpha = "
        "0.05)."
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


def _error(sd: float, n: int) -> float:
    """Standard error of a mean."""
    return sd / math.sqrt(n)


def _clean(points: float) -> float:
    """Rounded to remove the error of binary fractions: 0.37 - 0.35 is exactly 2 pp."""
    return round(points, 9)

"""Score tests of a difference of two accuracies, and the intervals that contain what these tests do not reject.

A score test measures the observed difference in standard deviations that the hypothesised difference implies. So it
works where the Wald interval fails: with few samples, and for two models that never disagree. p-values and intervals
are those of one test: p(difference) < alpha exactly where the 1 - alpha interval excludes the difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from walkback.judge import student_t


class ScoreTest:
    """A test of hypothesised differences, in percentage points from -100 to 100."""

    @property
    def estimate(self) -> float:
        """The observed difference in percentage points."""
        raise NotImplementedError

    @property
    def swapped(self) -> Self:
        """The test with the two models exchanged: of the difference with the other sign."""
        raise NotImplementedError

    def _score(self, difference: float) -> float:
        """Observed minus hypothesised difference in standard deviations, for a fraction from 0 to 1."""
        raise NotImplementedError

    def p_value(self, points: float) -> float:
        """Two-sided p-value of the hypothesis that the true difference is `points`."""
        if points < 0:
            return self.swapped.p_value(-points)
        if points > 100:
            return 0.0
        return student_t.normal_two_sided(self._score(points / 100))

    def interval(self, confidence: float) -> tuple[float, float]:
        """The smallest and the largest difference that is not rejected at 1 - `confidence`."""
        return self._lower_end(1 - confidence), -self.swapped._lower_end(1 - confidence)

    def _lower_end(self, alpha: float) -> float:
        return student_t.smallest_where(lambda points: self.p_value(points) >= alpha, -100.0, self.estimate)


@dataclass(frozen=True)
class PairedScoreTest(ScoreTest):
    """Two models on the same n samples (Tango, 1998); for the difference 0 it is McNemar's test."""

    gained: int
    """Samples that only our model gets right."""
    lost: int
    """Samples that only the other model gets right."""
    n: int

    @property
    def estimate(self) -> float:
        return 100 * (self.gained - self.lost) / self.n

    @property
    def swapped(self) -> PairedScoreTest:
        return PairedScoreTest(self.lost, self.gained, self.n)

    def _score(self, difference: float) -> float:
        """With the maximum likelihood estimate of q, the share of lost samples, if q + difference are gained.

        It is the root of 2n q^2 + b q - c = 0 that is not negative.
        """
        spread = difference * (1 - difference)
        b = (2 * self.n - self.gained + self.lost) * difference - self.gained - self.lost
        c = self.lost * spread
        root = math.sqrt(b * b + 8 * self.n * c)
        # The other form of the solution subtracts numbers that are nearly equal.
        share = 2 * c / (b + root) if b > 0 else (root - b) / (4 * self.n)
        return _ratio(self.gained - self.lost - self.n * difference, self.n * (2 * share + spread))


@dataclass(frozen=True)
class UnpairedScoreTest(ScoreTest):
    """Two models on independent samples (Miettinen and Nurminen, 1985).

    On the same samples it is conservative if the models tend to fail on the same ones.
    """

    right: float
    """Samples that our model gets right: its accuracy times n."""
    n: int
    other_right: float
    other_n: int

    @property
    def estimate(self) -> float:
        return 100 * (self.right / self.n - self.other_right / self.other_n)

    @property
    def swapped(self) -> UnpairedScoreTest:
        return UnpairedScoreTest(self.other_right, self.other_n, self.right, self.n)

    def _score(self, difference: float) -> float:
        if self.right + self.other_right > (self.n + self.other_n) / 2:
            # In error rates, since 1 - accuracy has lost its digits if the accuracy is close to 1.
            return UnpairedScoreTest(self.other_n - self.other_right, self.other_n, self.n - self.right, self.n)._score(
                difference
            )
        other = self._other_accuracy(difference)
        ours, total = other + difference, self.n + self.other_n
        variance = ours * (1 - ours) / self.n + other * (1 - other) / self.other_n
        return _ratio(
            self.right / self.n - self.other_right / self.other_n - difference, variance * total / (total - 1)
        )

    def _other_accuracy(self, difference: float) -> float:
        """The other model's accuracy of maximum likelihood if ours is larger by `difference`.

        The likelihood's derivative is a cubic polynomial with three real roots; the middle one is a probability.
        """
        total = self.n + self.other_n
        # q^3 + b q^2 + c q + d
        b = ((total + self.other_n) * difference - total - self.right - self.other_right) / total
        c = (
            (self.other_n * difference - total - 2 * self.other_right) * difference + self.right + self.other_right
        ) / total
        d = self.other_right * difference * (1 - difference) / total
        half = (b / 3) ** 3 - b * c / 6 + d / 2
        radius = math.copysign(math.sqrt(max(0.0, (b / 3) ** 2 - c / 3)), half)
        # Rounding can bring the cosine just out of range where two roots meet.
        cosine = min(1.0, max(-1.0, half / radius**3)) if radius else 0.0
        share = 2 * radius * math.cos((math.pi + math.acos(cosine)) / 3) - b / 3
        return min(1 - difference, max(0.0, share))


def _ratio(distance: float, variance: float) -> float:
    """`distance` in standard deviations; without variance only the distance 0 is possible."""
    if variance > 0:
        return distance / math.sqrt(variance)
    return math.copysign(math.inf, distance) if distance else 0.0

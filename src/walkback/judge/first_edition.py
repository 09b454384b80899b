"""The interval over samples of cards of format 1, by which these cards are verified.

Half a sample is added to each cell of the table (Agresti and Min, 2005). The interval is centred on the estimate of
that table and the p-value on the plain one, so the two can contradict each other; `paired_score_margin` replaced it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from walkback.judge import student_t
from walkback.judge.statistics import Margin, paired_counts


@dataclass(frozen=True)
class AdjustedWaldTest:
    """The normal test around `estimate`, both in percentage points."""

    estimate: float
    error: float

    def p_value(self, points: float) -> float:
        return student_t.normal_two_sided((self.estimate - points) / self.error)


def first_edition_margin(ours: Sequence[bool], theirs: Sequence[bool], confidence: float = 0.95) -> Margin:
    """The difference of two accuracies on the same samples, in percentage points, as cards of format 1 have it."""
    gained, lost, n = paired_counts(ours, theirs)
    total = n + 2
    centre = (gained - lost) / total
    error = 100 * math.sqrt(((gained + lost + 1) / total - centre**2) / total)
    half = student_t.normal_quantile((1 + confidence) / 2) * error
    mean = round(100 * (gained - lost) / n, 9)
    return Margin(
        mean, n, "samples", interval=(100 * centre - half, 100 * centre + half), test=AdjustedWaldTest(mean, error)
    )

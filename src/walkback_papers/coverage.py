"""How often the intervals that walkback prints contain the truth, by simulation.

Every row draws data whose truth is known and counts how often the interval of `walkback.judge.statistics` contains it.
Rows whose assumptions fail on purpose (seeds of two modes, skewed values, an estimated spread) require nothing: their
coverage is what a reader must expect there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from walkback.core.measurements import Array
from walkback.core.random_streams import stream_seed
from walkback.judge import student_t
from walkback.judge.score_tests import PairedScoreTest, ScoreTest, UnpairedScoreTest
from walkback.judge.statistics import (
    POWER,
    detectable_margin,
    exact_interval,
    exact_lower_bound,
    mean_interval,
    paired_margin,
)

COVERAGE_DRAWS = 10_000
_LEVEL, _ONE_SIDED = 0.95, 0.975
LEAST_COVERAGE, MOST_COVERAGE = 0.93, 0.97
ENOUGH_DISCORDANT = 20
"""Discordant pairs from which on a 95% interval must not be conservative either."""
_POWER_WITHIN, _BOUND_WITHIN = 0.02, 0.005
"""What the simulation's own error is allowed to take from an exact power, and from the level of an exact bound."""

PAIRED_SEEDS, MEAN_OF_VALUES, DETECTABLE = "t, paired seeds", "t, mean", "minimum detectable margin"
PAIRED_SAMPLES, UNPAIRED_SAMPLES, EXACT_BOUND = "score, paired samples", "score, unpaired samples", "exact lower bound"


@dataclass(frozen=True)
class CoverageRow:
    """One interval on one kind of data."""

    interval: str
    setting: str
    nominal: float
    """What the interval promises: the level of confidence, or for the detectable margin the power."""
    draws: int
    hits: int
    """Draws in which the interval contained the truth; for the detectable margin, in which the margin was detected."""
    assumptions_hold: bool
    required: tuple[float, float] | None
    """Smallest and largest coverage allowed; None where it is only reported."""
    discordant: float | None = None
    """Samples that exactly one of the two models gets right: how many are expected."""

    @property
    def coverage(self) -> float:
        return self.hits / self.draws

    @property
    def coverage_interval(self) -> tuple[float, float]:
        """The exact 95% binomial interval of the coverage: the error of the simulation."""
        return exact_interval(self.hits, self.draws)

    @property
    def passes(self) -> bool | None:
        """Whether the coverage is as required; None where nothing is."""
        return None if self.required is None else self.required[0] <= self.coverage <= self.required[1]

    @property
    def is_as_required(self) -> bool | None:
        """The same with the error of the simulation: None where it does not decide, or where nothing is required."""
        if self.required is None or self.passes:
            return self.passes
        low, high = self.coverage_interval
        return False if high < self.required[0] or low > self.required[1] else None


def coverage_rows(draws: int = COVERAGE_DRAWS, seed: int = 0) -> tuple[CoverageRow, ...]:
    """All simulations; a row's draws depend on `seed` and its name alone."""
    simulations = (_paired_seeds, _means, _detectable, _paired_samples, _unpaired_samples, _exact_bounds)
    return tuple(row for simulation in simulations for row in simulation(draws, seed))


def _stream(seed: int, interval: str, setting: str) -> np.random.Generator:
    return np.random.default_rng(stream_seed(seed, f"coverage {interval} {setting}"))


def _paired_seeds(draws: int, seed: int) -> Iterator[CoverageRow]:
    """Margins over seeds: 5 pp with a standard deviation of 1 pp; of two modes: a seed in five loses 15 pp more."""
    for n in (3, 5, 10):
        for modes, truth in ((1, 5.0), (2, 2.0)):
            setting = f"{n} normal seeds" if modes == 1 else f"{n} seeds, each collapses by 15 pp with probability 0.2"
            random = _stream(seed, PAIRED_SEEDS, setting)
            theirs = random.normal(0.4, 0.02, (draws, n))
            margins = random.normal(0.05, 0.01, (draws, n))
            if modes == 2:
                margins -= 0.15 * (random.uniform(size=(draws, n)) < 0.2)
            intervals = (paired_margin(a, b).interval for a, b in zip(theirs + margins, theirs, strict=True))
            yield _seeds_row(PAIRED_SEEDS, setting, _holding(intervals, truth), draws, modes == 1)


def _means(draws: int, seed: int) -> Iterator[CoverageRow]:
    for n in (3, 8, 1024):
        setting = f"{n} normal values"
        values = _stream(seed, MEAN_OF_VALUES, setting).normal(1, 0.3, (draws, n))
        yield _seeds_row(MEAN_OF_VALUES, setting, _holding(map(mean_interval, values), 1), draws, True)
    for n in (8, 1024):
        setting = f"{n} log-normal values (σ = 1)"
        values = _stream(seed, MEAN_OF_VALUES, setting).lognormal(-0.5, 1, (draws, n))
        yield _seeds_row(MEAN_OF_VALUES, setting, _holding(map(mean_interval, values), 1), draws, False)


def _seeds_row(interval: str, setting: str, hits: int, draws: int, normal: bool) -> CoverageRow:
    return CoverageRow(
        interval, setting, _LEVEL, draws, hits, normal, (LEAST_COVERAGE, MOST_COVERAGE) if normal else None
    )


def _detectable(draws: int, seed: int) -> Iterator[CoverageRow]:
    """How often a margin of the printed size is detected: with the true spread, and with that of other n seeds."""
    for n in (3, 5, 10):
        for known in (True, False):
            setting = f"{n} normal seeds, {'true' if known else 'estimated'} spread"
            random = _stream(seed, DETECTABLE, setting)
            first, noise = random.normal(0, 0.01, (2, draws, n))
            truth = np.full((draws, 1), student_t.detectable_effect(n, POWER) * 0.01)
            if not known:
                truth = np.array([_printed(values) for values in first])[:, None] / 100
            intervals = (paired_margin(values, np.zeros(n)).interval for values in truth + noise)
            detected = draws - _holding(intervals, 0)
            required = (POWER - _POWER_WITHIN, POWER + _POWER_WITHIN) if known else None
            yield CoverageRow(DETECTABLE, setting, POWER, draws, detected, known, required)


def _printed(values: Array) -> float:
    found = detectable_margin(paired_margin(values, np.zeros(len(values))))
    assert found is not None
    return found


def _paired_samples(draws: int, seed: int) -> Iterator[CoverageRow]:
    settings = (
        (20, 0.3, 0.1), (50, 0.1, 0.0), (50, 0.4, 0.1), (200, 0.02, 0.0), (200, 0.1, 0.02), (200, 0.3, 0.1),
        (1024, 0.01, 0.0), (1024, 0.05, 0.02), (1024, 0.1, 0.02), (1024, 0.3, 0.1), (10_000, 0.002, 0.0),
        (10_000, 0.02, 0.02), (10_000, 0.3, 0.02), (10_000, 0.3, 0.1),
    )  # fmt: skip
    for n, rate, margin in settings:
        setting = f"{n} samples, {100 * rate:g}% discordant, margin {100 * margin:g} pp"
        cells = ((rate + margin) / 2, (rate - margin) / 2, 1 - rate)
        tables = _stream(seed, PAIRED_SAMPLES, setting).multinomial(n, cells, draws)[:, :2]
        hits = _accepted(tables, PairedScoreTest, n, 100 * margin)
        yield _samples_row(PAIRED_SAMPLES, setting, hits, draws, rate * n)


def _unpaired_samples(draws: int, seed: int) -> Iterator[CoverageRow]:
    """Two accuracies of known test set sizes: of independent samples, and of the same samples (correlation 0.5)."""
    settings = ((20, 0.4, 0.3), (200, 0.3, 0.3), (200, 0.05, 0.03), (1000, 0.62, 0.6), (10_000, 0.37, 0.35))
    for n, ours, theirs in settings:
        for correlation in (0.0, 0.5):
            relation = "independent" if correlation == 0 else "the same samples, correlation 0.5"
            setting = f"{n} samples, accuracies {ours:g} and {theirs:g}, {relation}"
            both = ours * theirs + correlation * float(np.sqrt(ours * (1 - ours) * theirs * (1 - theirs)))
            cells = (both, ours - both, theirs - both, 1 - ours - theirs + both)
            counts = _stream(seed, UNPAIRED_SAMPLES, setting).multinomial(n, cells, draws)
            tables = np.stack([counts[:, 0] + counts[:, 1], counts[:, 0] + counts[:, 2]], axis=1)
            hits = _accepted(tables, _same_size, n, 100 * (ours - theirs))
            discordant = n * (cells[1] + cells[2])
            if correlation == 0:
                yield _samples_row(UNPAIRED_SAMPLES, setting, hits, draws, discordant)
            else:
                yield CoverageRow(UNPAIRED_SAMPLES, setting, _LEVEL, draws, hits, False, (_LEVEL, 1.0), discordant)


def _samples_row(interval: str, setting: str, hits: int, draws: int, discordant: float) -> CoverageRow:
    most = MOST_COVERAGE if discordant >= ENOUGH_DISCORDANT else 1.0
    return CoverageRow(interval, setting, _LEVEL, draws, hits, True, (LEAST_COVERAGE, most), discordant)


def _exact_bounds(draws: int, seed: int) -> Iterator[CoverageRow]:
    """One-sided; by construction the coverage is at least the level."""
    for n, truth in ((20, 0.1), (200, 0.1), (1024, 0.1), (1024, 0.5), (1024, 0.99), (10_000, 0.1)):
        setting = f"{n} samples, accuracy {truth:g}"
        found, counts = np.unique(_stream(seed, EXACT_BOUND, setting).binomial(n, truth, draws), return_counts=True)
        hits = sum(int(count) for right, count in zip(found, counts, strict=True) if _below(int(right), n, truth))
        yield CoverageRow(EXACT_BOUND, setting, _ONE_SIDED, draws, hits, True, (_ONE_SIDED - _BOUND_WITHIN, 1.0))


def _below(right: int, n: int, truth: float) -> bool:
    return exact_lower_bound(right, n, _ONE_SIDED) <= truth


def _holding(intervals: Iterator[tuple[float, float] | None], truth: float) -> int:
    """How many intervals contain the truth."""
    return sum(ends is not None and ends[0] <= truth <= ends[1] for ends in intervals)


def _accepted(
    tables: np.typing.NDArray[np.int64], test: Callable[[int, int, int], ScoreTest], n: int, points: float
) -> int:
    """How many tables of two counts have an interval that contains `points`.

    Counted by p-values, which need no search: p is below alpha exactly if the interval excludes the difference.
    """
    distinct, counts = np.unique(tables, axis=0, return_counts=True)
    accepted = (test(int(a), int(b), n).p_value(points) >= 1 - _LEVEL for a, b in distinct)
    return sum(int(count) for count, holds in zip(counts, accepted, strict=True) if holds)


def _same_size(right: int, other_right: int, n: int) -> UnpairedScoreTest:
    return UnpairedScoreTest(right, n, other_right, n)


def coverage_failures(rows: Sequence[CoverageRow]) -> list[CoverageRow]:
    """The rows whose coverage is not as required."""
    return [row for row in rows if row.passes is False]

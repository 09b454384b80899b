"""How often intervals contain the truth: few draws here, all of them in the slow test."""

from __future__ import annotations

import numpy as np
import pytest

from walkback.judge.score_tests import PairedScoreTest
from walkback_papers import coverage
from walkback_papers.coverage import CoverageRow, coverage_failures, coverage_rows

INTERVALS = {
    coverage.PAIRED_SEEDS,
    coverage.MEAN_OF_VALUES,
    coverage.DETECTABLE,
    coverage.PAIRED_SAMPLES,
    coverage.UNPAIRED_SAMPLES,
    coverage.EXACT_BOUND,
}


@pytest.fixture(scope="module")
def rows():
    return coverage_rows(draws=400)


def test_every_interval_covers_the_truth_as_required_within_the_error_of_few_draws(rows):
    assert {row.interval for row in rows} == INTERVALS
    for row in rows:
        if row.required is not None:
            low, high = row.coverage_interval
            assert row.required[0] - 0.01 <= high, row
            assert low <= row.required[1] + 0.01, row


def test_where_assumptions_hold_at_least_93_percent_are_required_and_with_20_discordant_pairs_at_most_97(rows):
    for row in rows:
        if row.assumptions_hold and row.interval != coverage.DETECTABLE:
            assert row.required[0] >= 0.93
        if row.assumptions_hold and row.discordant is not None:
            assert (row.required[1] == 0.97) == (row.discordant >= 20)


def test_failed_assumptions_show(rows):
    by = {(row.interval, row.setting): row for row in rows}
    two_modes = [row for (_, setting), row in by.items() if "collapses" in setting]
    assert [row.setting.split()[0] for row in two_modes] == ["3", "5", "10"]
    assert all(row.coverage_interval[1] < 0.95 and row.passes is None for row in two_modes)
    same = [row for row in rows if "correlation" in row.setting]
    assert same
    assert all(row.coverage > 0.97 and not row.assumptions_hold for row in same)
    estimated = [row for row in rows if row.setting.endswith("estimated spread")]
    assert all(row.coverage_interval[1] < 0.8 for row in estimated[:2])


def test_names_are_unique_and_the_draws_of_a_row_depend_on_its_name_and_seed_alone(rows):
    assert len({(row.interval, row.setting) for row in rows}) == len(rows)
    again, other = coverage_rows(draws=50), coverage_rows(draws=50, seed=1)
    assert again == coverage_rows(draws=50)
    assert [row.hits for row in again] != [row.hits for row in other]
    assert [row.setting for row in again] == [row.setting for row in other]


def test_p_values_count_the_same_tables_as_intervals():
    tables = np.random.default_rng(0).multinomial(60, (0.15, 0.1, 0.75), 300)[:, :2]
    intervals = [PairedScoreTest(int(a), int(b), 60).interval(0.95) for a, b in tables]
    hits = sum(low <= 5 <= high for low, high in intervals)
    assert 0 < hits < 300
    assert coverage._accepted(tables, PairedScoreTest, 60, 5.0) == hits


@pytest.mark.parametrize(
    ("hits", "required", "passes"),
    [(95, (0.93, 0.97), True), (92, (0.93, 1.0), False), (98, (0.93, 0.97), False), (10, None, None)],
)
def test_a_row_passes_if_its_coverage_is_as_required(hits, required, passes):
    row = CoverageRow("t", "made up", 0.95, 100, hits, True, required)
    assert (row.coverage, row.passes) == (hits / 100, passes)
    assert row.coverage_interval[0] < row.coverage < row.coverage_interval[1]
    assert coverage_failures([row]) == ([row] if passes is False else [])


@pytest.mark.slow
def test_all_draws_cover_the_truth_as_required():
    rows = coverage_rows()
    assert all(row.draws >= 10_000 for row in rows)
    assert coverage_failures(rows) == []

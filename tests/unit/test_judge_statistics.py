"""Statistics: known table values, coverage of intervals, and the sentence about seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkback.core.errors import InputError
from walkback.judge import student_t
from walkback.judge.first_edition import first_edition_margin
from walkback.judge.score_tests import PairedScoreTest
from walkback.judge.statistics import (
    detectable_margin,
    exact_lower_bound,
    holm,
    interval_text,
    mean_interval,
    paired_margin,
    paired_score_margin,
    unpaired_score_margin,
)


@pytest.mark.parametrize(
    ("p", "df", "expected"),
    [
        (0.975, 1, 12.706205),
        (0.975, 2, 4.302653),
        (0.975, 4, 2.776445),
        (0.975, 9, 2.262157),
        (0.95, 5, 2.015048),
        (0.995, 30, 2.749996),
        (0.9, 100, 1.290075),
        (0.5, 7, 0.0),
        (0.025, 2, -4.302653),
    ],
)
def test_t_quantiles_are_those_of_the_tables(p, df, expected):
    assert student_t.quantile(p, df) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("t", "exact"), [(1.0, 0.75), (math.sqrt(3), 5 / 6), (-1.0, 0.25)])
def test_one_degree_of_freedom_is_the_cauchy_distribution(t, exact):
    assert student_t.cdf(t, 1) == pytest.approx(exact, abs=1e-12)


def test_two_degrees_of_freedom_have_a_closed_form():
    for t in (0.1, 1.0, 5.0, 80.0):
        assert student_t.cdf(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), abs=1e-13)


def test_many_degrees_of_freedom_are_normal():
    assert student_t.quantile(0.975, 1e7) == pytest.approx(student_t.normal_quantile(0.975), abs=1e-6)
    assert student_t.normal_quantile(0.975) == pytest.approx(1.959963985, abs=1e-9)


@given(st.floats(0.001, 0.999), st.integers(1, 200))
def test_quantile_and_distribution_undo_each_other(p, df):
    assert student_t.cdf(student_t.quantile(p, df), df) == pytest.approx(p, abs=1e-11)


def test_a_far_tail_keeps_its_digits():
    assert student_t.two_sided(1e6, 2) == pytest.approx(1e-12, rel=1e-5)


@pytest.mark.parametrize(("n", "factor"), [(3, 3.26), (5, 1.68), (10, 1.00)])
def test_the_detectable_margins_of_the_protocol(n, factor):
    assert student_t.detectable_effect(n) == pytest.approx(factor, abs=0.005)


def test_power_agrees_with_simulation():
    rng, n = np.random.default_rng(1), 4
    draws = rng.normal(student_t.detectable_effect(n), 1, (40_000, n))
    t = draws.mean(1) / (draws.std(1, ddof=1) / math.sqrt(n))
    assert (np.abs(t) > student_t.quantile(0.975, n - 1)).mean() == pytest.approx(0.8, abs=0.01)


def test_without_an_effect_the_power_is_alpha_since_both_tails_count():
    assert student_t.detectable_effect(5, power=0.05 + 1e-9) < 1e-3
    assert student_t.detectable_effect(5, power=0.011, alpha=0.01) < student_t.detectable_effect(
        5, power=0.02, alpha=0.01
    )


def test_a_two_sided_normal_tail_does_not_depend_on_the_sign():
    for z in (1.959963985, -1.959963985):
        assert student_t.normal_two_sided(z) == pytest.approx(0.05, abs=1e-9)


def test_a_paired_interval_by_hand():
    margin = paired_margin([0.62, 0.61, 0.63], [0.35, 0.35, 0.35])
    assert (margin.mean, margin.sd, margin.n) == (27.0, 1.0, 3)
    half = 4.302653 / math.sqrt(3)
    assert margin.interval == pytest.approx((27 - half, 27 + half), abs=1e-5)
    assert detectable_margin(margin) == pytest.approx(3.264, abs=1e-3)


def test_pairing_removes_variation_shared_by_the_seeds():
    ours, theirs = [0.50, 0.60, 0.70], [0.45, 0.55, 0.65]
    assert paired_margin(ours, theirs).sd == 0.0
    assert paired_margin(ours, theirs).interval == (5.0, 5.0)


def test_a_margin_of_exactly_two_points_is_not_affected_by_rounding():
    assert paired_margin([0.37], [0.35]).mean == 2.0
    assert paired_margin([0.369], [0.349]).mean == 2.0


def test_one_number_for_several_seeds_is_not_paired_and_has_no_interval():
    margin = paired_margin([0.3, 0.31, 0.32], [0.349])
    assert (margin.counts, margin.interval, margin.n) == ("seeds", None, 3)
    assert "Not paired" in interval_text(margin)


def test_over_samples_by_hand():
    ours, theirs = [1] * 30 + [0] * 10 + [1] * 60, [0] * 30 + [1] * 10 + [1] * 60
    margin = paired_score_margin(ours, theirs)
    assert (margin.mean, margin.n, margin.counts, margin.sd) == (20.0, 100, "samples", None)
    assert margin.interval == PairedScoreTest(30, 10, 100).interval(0.95)
    assert margin.p_value(0.0) == pytest.approx(student_t.normal_two_sided((30 - 10) / math.sqrt(30 + 10)))


def test_samples_must_be_the_same():
    with pytest.raises(InputError, match=r"3 and 2 samples; expected the same samples"):
        paired_score_margin([1, 1, 0], [1, 0])


def test_bare_accuracies_have_the_interval_of_independent_samples():
    margin = unpaired_score_margin(0.8, 0.6, 70, 80)
    assert (margin.mean, margin.n, margin.counts) == (20.0, 70, "unpaired samples")
    assert margin.interval == pytest.approx((5.28, 33.82), abs=0.005)
    assert margin.p_value(5.0) < 0.05 < margin.p_value(6.0)


@pytest.mark.parametrize("table", [(30, 10, 60, 0), (3, 0, 5, 2), (0, 0, 7, 13), (1, 400, 300, 299)])
def test_a_card_of_format_1_has_the_normal_interval_of_a_table_with_half_a_sample_more_in_each_cell(table):
    gained, lost, both, neither = table
    ours = [1] * gained + [0] * lost + [1] * both + [0] * neither
    theirs = [0] * gained + [1] * lost + [1] * both + [0] * neither
    weights, values = np.array(table) + 0.5, np.array([100.0, -100.0, 0.0, 0.0])
    mean = np.average(values, weights=weights)
    error = math.sqrt(np.average((values - mean) ** 2, weights=weights) / weights.sum())
    margin = first_edition_margin(ours, theirs)
    assert margin.interval == pytest.approx((mean - 1.959963985 * error, mean + 1.959963985 * error), rel=1e-8)
    assert margin.p_value(margin.mean - 1.959963985 * error) == pytest.approx(0.05, abs=1e-9)


@pytest.mark.parametrize(
    ("successes", "n", "expected"),
    [(5, 10, 0.1871), (81, 263, 0.2527), (15, 148, 0.0578), (1, 29, 0.0009), (0, 20, 0.0)],
)
def test_the_exact_lower_bound_is_the_published_one(successes, n, expected):
    """Clopper-Pearson ends as in Newcombe, 1998 (Table I), and 5 of 10."""
    assert exact_lower_bound(successes, n) == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize(("n", "level"), [(1, 0.975), (7, 0.9), (10_000, 0.975)])
def test_if_all_samples_are_right_the_exact_bound_is_a_root(n, level):
    assert exact_lower_bound(n, n, level) == pytest.approx((1 - level) ** (1 / n), rel=1e-9)


@given(st.integers(1, 60), st.data(), st.floats(0.8, 0.999))
def test_at_the_exact_bound_the_successes_are_as_rare_as_the_level_says(n, data, level):
    successes = data.draw(st.integers(1, n))
    bound = exact_lower_bound(successes, n, level)
    tail = sum(math.comb(n, k) * bound**k * (1 - bound) ** (n - k) for k in range(successes, n + 1))
    assert tail == pytest.approx(1 - level, rel=1e-8)
    assert exact_lower_bound(successes - 1, n, level) < bound < successes / n


def test_an_exact_bound_of_a_million_samples_is_close_to_the_normal_one():
    assert exact_lower_bound(500_000, 1_000_000) == pytest.approx(0.5 - 1.959963985 * 0.0005, abs=2e-6)


def test_the_p_value_agrees_with_the_interval():
    margin = paired_margin([0.40, 0.42, 0.41, 0.45], [0.36, 0.36, 0.36, 0.36])
    low, high = margin.interval
    assert margin.p_value(low) == pytest.approx(0.05, abs=1e-9)
    assert margin.p_value(high) == pytest.approx(0.05, abs=1e-9)


def test_equal_differences_reject_every_other_margin():
    margin = paired_margin([0.50, 0.60], [0.45, 0.55])
    assert margin.p_value(5.0) == 1
    assert margin.p_value(5.1) == margin.p_value(-5.0) == 0
    assert paired_margin([0.5], [0.4]).p_value(0.0) is None


def test_holm_by_hand():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm({}) == {}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_never_makes_a_p_value_smaller(ps):
    given_ps = {str(index): p for index, p in enumerate(ps)}
    adjusted = holm(given_ps)
    assert all(p <= adjusted[name] <= 1 for name, p in given_ps.items())


def test_the_sentence_for_one_two_and_three_seeds():
    one = interval_text(paired_margin([0.6], [0.3]))
    assert "With 1 seed" in one
    assert "no interval" in one
    two = interval_text(paired_margin([0.6, 0.62], [0.3, 0.3]))
    assert "one degree of freedom" in two
    three = interval_text(paired_margin([0.62, 0.61, 0.63], [0.35, 0.35, 0.35]))
    assert "With 3 seeds" in three
    assert "can detect only margins above 3.3 pp" in three
    assert "no spread was seen" in interval_text(paired_margin([0.6, 0.6], [0.3, 0.3]))
    assert "No accuracy margin" in interval_text(None)
    assert "says nothing about how another seed" in interval_text(paired_score_margin([1, 0, 1], [0, 0, 1]))
    bare = interval_text(unpaired_score_margin(0.6, 0.5, 1000, 1000))
    assert "1000 samples" in bare
    assert "independent" in bare


def test_the_interval_of_a_mean():
    assert mean_interval(np.array([1.0])) is None
    assert mean_interval(np.array([1.0, 3.0])) == pytest.approx((2 - 12.706205, 2 + 12.706205), abs=1e-5)

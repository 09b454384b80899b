"""Score tests: published values, a search of the likelihood over a grid, and what must hold for every table."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkback.judge import student_t
from walkback.judge.score_tests import PairedScoreTest, UnpairedScoreTest
from walkback.judge.statistics import paired_score_margin

CHI2 = 1.959963985**2
LEVELS = st.sampled_from([0.8, 0.9, 0.95, 0.99])


@st.composite
def paired(draw, most=400):
    n = draw(st.integers(1, most))
    gained = draw(st.integers(0, n))
    return PairedScoreTest(gained, draw(st.integers(0, n - gained)), n)


@st.composite
def unpaired(draw, most=400):
    n, other_n = draw(st.integers(1, most)), draw(st.integers(1, most))
    return UnpairedScoreTest(draw(st.integers(0, n)), n, draw(st.integers(0, other_n)), other_n)


either = st.one_of(paired(), unpaired())


@pytest.mark.parametrize(
    ("test", "confidence", "expected"),
    [
        # Fagerland, Lydersen and Laake, 2014: airway hyper-responsiveness.
        (PairedScoreTest(1, 7, 21), 0.95, (-51.7, -2.6)),
        # Tango, 1998: disinfection of contact lenses, lower end of the 90% interval.
        (PairedScoreTest(0, 1, 44), 0.90, (-9.6, None)),
        # Newcombe, 1998, Table II, method 6.
        (UnpairedScoreTest(56, 70, 48, 80), 0.95, (5.28, 33.82)),
        (UnpairedScoreTest(9, 10, 3, 10), 0.95, (17.00, 84.06)),
        (UnpairedScoreTest(6, 7, 2, 7), 0.95, (3.42, 85.34)),
        (UnpairedScoreTest(5, 56, 0, 29), 0.95, (-3.26, 19.33)),
        (UnpairedScoreTest(10, 10, 0, 20), 0.95, (71.56, 100.0)),
    ],
)
def test_published_intervals(test, confidence, expected):
    digits = 0.05 if isinstance(test, PairedScoreTest) else 0.005
    for end, published in zip(test.interval(confidence), expected, strict=True):
        assert published is None or end == pytest.approx(published, abs=digits)


def test_a_published_test_of_equivalence():
    """Tango, 1998: z = 1.709 for the hypothesis that the new system is worse by 10 pp."""
    assert PairedScoreTest(0, 1, 44).p_value(-10) == pytest.approx(student_t.normal_two_sided(1.709), rel=2e-3)


@pytest.mark.parametrize("test", [PairedScoreTest(12, 3, 40), PairedScoreTest(0, 6, 25), PairedScoreTest(9, 9, 18)])
@pytest.mark.parametrize("points", [-63.0, -10.0, 2.0, 35.0])
def test_the_paired_score_uses_the_most_likely_table_with_that_difference(test, points):
    difference = points / 100
    lost = np.linspace(max(0, -difference), (1 - difference) / 2, 200_001)[1:-1]
    same = test.n - test.gained - test.lost
    likelihood = test.gained * np.log(lost + difference) + test.lost * np.log(lost)
    likelihood += same * np.log1p(-2 * lost - difference)
    variance = 2 * lost[likelihood.argmax()] + difference - difference**2
    z = ((test.gained - test.lost) / test.n - difference) / math.sqrt(variance / test.n)
    assert test.p_value(points) == pytest.approx(student_t.normal_two_sided(z), rel=1e-3, abs=1e-12)


@pytest.mark.parametrize(
    "test", [UnpairedScoreTest(30, 40, 9, 25), UnpairedScoreTest(0, 8, 5, 30), UnpairedScoreTest(12, 12, 12, 12)]
)
@pytest.mark.parametrize("points", [-63.0, -10.0, 2.0, 35.0])
def test_the_unpaired_score_uses_the_most_likely_accuracies_with_that_difference(test, points):
    difference, total = points / 100, test.n + test.other_n
    other = np.linspace(max(0, -difference), min(1, 1 - difference), 200_001)[1:-1]
    ours = other + difference
    likelihood = test.right * np.log(ours) + (test.n - test.right) * np.log1p(-ours)
    likelihood += test.other_right * np.log(other) + (test.other_n - test.other_right) * np.log1p(-other)
    best = likelihood.argmax()
    variance = ours[best] * (1 - ours[best]) / test.n + other[best] * (1 - other[best]) / test.other_n
    z = (test.right / test.n - test.other_right / test.other_n - difference) / math.sqrt(variance * total / (total - 1))
    assert test.p_value(points) == pytest.approx(student_t.normal_two_sided(z), rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 44, 10_000])
def test_tables_with_closed_forms(n):
    end = 100 * CHI2 / (n + CHI2)
    assert PairedScoreTest(0, 0, n).interval(0.95) == pytest.approx((-end, end))
    assert PairedScoreTest(n, 0, n).interval(0.95) == pytest.approx((100 * (n - CHI2) / (n + CHI2), 100.0))
    assert PairedScoreTest(0, n, n).interval(0.95)[0] == -100
    assert PairedScoreTest(0, 0, n).p_value(0) == PairedScoreTest(n, 0, n).p_value(100) == 1
    assert PairedScoreTest(0, 0, n).p_value(100) == PairedScoreTest(n, 0, n).p_value(-100) == 0
    assert UnpairedScoreTest(n, n, 0, n).interval(0.95)[1] == 100
    assert UnpairedScoreTest(0, n, n, n).interval(0.95)[0] == -100
    assert UnpairedScoreTest(0, n, 0, n).p_value(0) == UnpairedScoreTest(n, n, n, n).p_value(0) == 1


@pytest.mark.parametrize("test", [PairedScoreTest(3, 1, 9), UnpairedScoreTest(3, 9, 1, 9)])
def test_impossible_differences_are_rejected(test):
    assert test.p_value(100.5) == test.p_value(-101) == 0


@given(paired())
def test_the_paired_test_of_no_difference_is_mcnemars(test):
    discordant = test.gained + test.lost
    z = (test.gained - test.lost) / math.sqrt(discordant) if discordant else 0.0
    assert test.p_value(0) == pytest.approx(student_t.normal_two_sided(z))


@given(either, st.floats(-100, 100), LEVELS)
def test_a_difference_is_rejected_exactly_if_it_is_outside_the_interval(test, points, confidence):
    low, high = test.interval(confidence)
    assert (test.p_value(points) < 1 - confidence) == (not low <= points <= high)


@given(either, LEVELS)
def test_the_ends_of_the_interval_are_the_last_that_are_not_rejected(test, confidence):
    alpha = 1 - confidence
    for end, outwards in zip(test.interval(confidence), (-100.0, 100.0), strict=True):
        assert test.p_value(end) >= alpha
        if end != outwards:
            assert test.p_value(np.nextafter(end, outwards)) < alpha
            assert test.p_value(end) == pytest.approx(alpha, rel=1e-6)


@given(either, LEVELS, st.floats(-100, 100))
def test_exchanging_the_models_changes_the_sign(test, confidence, points):
    low, high = test.interval(confidence)
    assert test.swapped.interval(confidence) == (-high, -low)
    assert test.swapped.p_value(-points) == test.p_value(points)
    assert test.swapped.swapped == test


@given(either)
def test_more_confidence_gives_a_wider_interval_around_the_estimate(test):
    narrow, wide = test.interval(0.8), test.interval(0.99)
    assert -100 <= wide[0] <= narrow[0] <= test.estimate <= narrow[1] <= wide[1] <= 100


@given(either, st.lists(st.floats(0, 1), min_size=2, max_size=2))
def test_a_difference_farther_from_the_estimate_is_less_plausible(test, fractions):
    near, far = sorted(fractions)
    for end in (-100.0, 100.0):
        at = [test.estimate + fraction * (end - test.estimate) for fraction in (near, far)]
        assert test.p_value(at[0]) >= test.p_value(at[1]) - 1e-7


@given(paired(most=200), LEVELS)
def test_one_more_gained_sample_moves_the_interval_up(test, confidence):
    if test.gained + test.lost < test.n:
        more = PairedScoreTest(test.gained + 1, test.lost, test.n)
        assert all(a <= b for a, b in zip(test.interval(confidence), more.interval(confidence), strict=True))


@given(unpaired(most=200), LEVELS)
def test_one_more_right_sample_moves_the_interval_up(test, confidence):
    if test.right < test.n:
        more = UnpairedScoreTest(test.right + 1, test.n, test.other_right, test.other_n)
        pairs = zip(test.interval(confidence), more.interval(confidence), strict=True)
        assert all(a <= b + 1e-6 for a, b in pairs)


@given(paired(most=100), LEVELS)
def test_more_samples_give_a_narrower_interval(test, confidence):
    larger = PairedScoreTest(10 * test.gained, 10 * test.lost, 10 * test.n)
    (low, high), (low10, high10) = test.interval(confidence), larger.interval(confidence)
    assert low <= low10 <= high10 <= high


def test_ten_thousand_samples_take_milliseconds():
    random = np.random.default_rng(0)
    ours, theirs = random.uniform(size=(2, 10_000)) < 0.5
    times = []
    for _ in range(5):
        start = time.perf_counter()
        paired_score_margin(ours, theirs)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.01

"""Parsing of printed figures, and the rule by which ours agrees with them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkback.core.errors import InputError
from walkback_papers.published.agree import (
    FIGURE_KINDS,
    INTERVAL_WIDTH,
    compare_with_published,
    distance,
    published_tolerance,
)
from walkback_papers.published.parse_number import Printed, parse

# Parsing


@pytest.mark.parametrize(
    ("text", "low", "high", "spread", "half", "digits"),
    [
        ("0.615 ± 0.003", 0.615, 0.615, 0.003, 0.0005, 3),
        ("+26.6 pp", 26.6, 26.6, None, 0.05, 3),
        ("−14.4 pp", -14.4, -14.4, None, 0.05, 3),
        ("~4e-4", 4e-4, 4e-4, None, 0.5e-4, 1),
        ("4.0 ± 0.1e4", 4e4, 4e4, 1e3, 500, 2),
        ("9.0 ± 0.9e-7", 9e-7, 9e-7, 0.9e-7, 0.05e-7, 2),
        ("12000", 12000, 12000, None, 500, 2),
        ("24,338×", 24338, 24338, None, 0.5, 5),
        ("1e7–1e8×", 1e7, 1e8, None, 0.5e8, 1),
        ("+0.39…+0.43", 0.39, 0.43, None, 0.005, 2),
        ("96%", 0.96, 0.96, None, 0.005, 2),
        ("0.10", 0.10, 0.10, None, 0.005, 2),
        ("≈ 0", 0, 0, None, 0.5, 1),
        ("> 1e-6", 1e-6, 1e-6, None, 0.5e-6, 1),
    ],
)
def test_a_printed_figure_is_parsed_with_its_spread_and_digits(text, low, high, spread, half, digits):
    found = parse(text)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.spread == (None if spread is None else pytest.approx(spread))
    assert found.half == pytest.approx(half)
    assert found.digits == digits


@pytest.mark.parametrize("text", ["", "about 3", "0.3 ±", "1 2", "0.3 - 0.4"])
def test_text_that_is_no_figure_is_refused(text):
    with pytest.raises(InputError, match="Cannot read the printed figure"):
        parse(text)


# The rule

NUMERIC = [name for name, kind in FIGURE_KINDS.items() if kind.by in ("difference", "ratio")]
VALUES = st.floats(1e-3, 1e3)


def exact(value: float, spread: float | None = None, sign: str = "") -> Printed:
    return Printed(value, value, spread, sign, 1e-9 * value, 9)


@given(st.sampled_from(NUMERIC), VALUES, st.integers(1, 5))
def test_the_same_figure_agrees(kind, value, seeds):
    assert compare_with_published(kind, exact(value), [value] * seeds).outcome == "agrees"


@given(st.sampled_from(NUMERIC), VALUES, st.floats(0.01, 0.5), st.floats(1.0, 3.0), st.floats(1.0, 3.0))
def test_a_larger_distance_never_turns_difference_into_agreement(kind, value, width, near, more):
    """The same spread (of logarithms, for ratios), at a larger distance."""

    def at(factor: float) -> str:
        seeds = [value * factor * math.exp(width * step) for step in (-1, 0, 1)]
        if FIGURE_KINDS[kind].by == "difference":
            seeds = [value + (factor - 1) * value + width * step for step in (-1, 0, 1)]
        return compare_with_published(kind, exact(value, 0.01), seeds).outcome

    if at(near) == "differs" and more > 1:
        assert at(near * more) == "differs"


@given(st.sampled_from(NUMERIC), VALUES, st.lists(VALUES, min_size=2, max_size=4), st.floats(0, 1), st.floats(0, 1))
def test_a_wider_spread_never_turns_agreement_into_difference(kind, value, ours, spread, more):
    if compare_with_published(kind, exact(value, spread), ours).outcome == "agrees":
        assert compare_with_published(kind, exact(value, spread + more), ours).outcome == "agrees"


@given(VALUES, st.lists(VALUES, min_size=2, max_size=4), st.integers(-6, 6))
def test_a_ratio_does_not_depend_on_the_unit(value, ours, power):
    one = compare_with_published("norm_g", exact(value), ours)
    other = compare_with_published("norm_g", exact(value).times(2.0**power), [v * 2.0**power for v in ours])
    assert one.outcome == other.outcome


def test_the_tolerance_is_two_standard_deviations_of_both_sides_and_rounding():
    assert published_tolerance(0.3, 0.4, 0.0) == pytest.approx(INTERVAL_WIDTH * 0.5)
    assert published_tolerance(None, 0.4, 0.3) == pytest.approx(INTERVAL_WIDTH * math.sqrt(0.4**2 + 0.4**2 + 0.3**2))
    assert published_tolerance(0.3, None, 0.0) == pytest.approx(INTERVAL_WIDTH * math.sqrt(0.18))
    assert published_tolerance(None, None, 0.0) == 0
    # Three seeds of spread 0.01 against 0.615 ± 0.003: the limit is 2 sqrt(0.01² + 0.003² + r²) = 0.02089.
    ours = [-0.01, 0.0, 0.01]
    assert compare_with_published("accuracy", parse("0.615 ± 0.003"), [0.6358 + x for x in ours]).outcome == "agrees"
    assert compare_with_published("accuracy", parse("0.615 ± 0.003"), [0.6360 + x for x in ours]).outcome == "differs"


def test_rough_figures_have_a_tolerance_of_a_factor_of_two():
    assert compare_with_published("norm_h", parse("~200"), [399.0, 399.0]).outcome == "agrees"
    assert compare_with_published("norm_h", parse("~200"), [401.0, 401.0]).outcome == "differs"
    assert compare_with_published("norm_h", parse("~200"), [101.0, 101.0]).outcome == "agrees"
    assert compare_with_published("norm_h", parse("5e3"), [2.4e3, 2.4e3]).outcome == "differs"
    assert compare_with_published("norm_h", parse("2.1e2"), [240.0, 240.0]).outcome == "differs"
    assert compare_with_published("norm_h", parse("2.1e2"), [212.0, 212.0]).outcome == "agrees"


def test_the_rounding_tolerance_of_a_cosine_is_limited():
    assert compare_with_published("cosine", parse("≈ 1"), [0.96, 0.96]).outcome == "agrees"
    assert compare_with_published("cosine", parse("≈ 1"), [0.94, 0.94]).outcome == "differs"
    assert compare_with_published("cosine", parse("≈ 0"), [-0.06, -0.06]).outcome == "differs"


def test_another_sign_or_zero_never_agrees_by_ratio():
    for ours in ([1e-3, 1e-3], [0.0, 0.0], [-1e-3, 1e-3]):
        assert compare_with_published("nudging", parse("−1e-3"), ours).outcome == "differs"
    found = compare_with_published("nudging", parse("−1e-3"), [-2e-3, -2e-3])
    assert found.shown.startswith("×2, +0.30 orders (")


def test_bounds_and_ranges():
    assert compare_with_published("norm_g", parse("> 1e-6"), [2e-6, 3e-6]).outcome == "agrees"
    assert compare_with_published("norm_g", parse("> 1e-6"), [2e-6, 9e-7]).outcome == "differs"
    assert "above it in 1 of 2" in compare_with_published("norm_g", parse("> 1e-6"), [2e-6, 9e-7]).shown
    assert compare_with_published("growth", parse("< 10"), [9.0, 2.0]).outcome == "agrees"
    assert distance(0.2, 0.05, 0.18) == pytest.approx(0.02)
    assert distance(0.01, 0.05, 0.18) == pytest.approx(-0.04)
    assert distance(0.1, 0.05, 0.18) == 0
    assert compare_with_published("factor", parse("4–40×"), [39.0, 39.0]).outcome == "agrees"
    assert compare_with_published("factor", parse("4–40×"), [300.0, 300.0]).outcome == "differs"
    assert compare_with_published("factor", parse("4–40×"), [3.8, 3.8]).outcome == "differs"
    # A range already is their spread: ours is not used in its place.
    assert compare_with_published("cosine", parse("0.43–0.99"), [0.02, 0.21]).outcome == "differs"
    assert compare_with_published("cosine", parse("0.43"), [0.02, 0.21]).outcome == "agrees"


def test_first_firings_must_be_in_the_range_within_one_epoch():
    assert compare_with_published("epoch", parse("8–11"), [7, 9, 12]).outcome == "agrees"
    assert compare_with_published("epoch", parse("8–11"), [9, 9, 13]).outcome == "differs"
    assert compare_with_published("epoch", parse("1"), [2, 1]).outcome == "agrees"
    assert compare_with_published("count", parse("3"), [3, 3]).outcome == "agrees"
    assert compare_with_published("count", parse("3"), [3, 4]).outcome == "differs"


def test_a_spread_over_draws_is_divided_by_their_square_root():
    ours = [0.030, 0.030]
    assert compare_with_published("cosine", parse("+0.002 ± 0.022"), ours).outcome == "agrees"
    assert compare_with_published("cosine", parse("+0.002 ± 0.022"), ours, draws=20).outcome == "differs"

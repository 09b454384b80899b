"""Parsing of printed figures, and the rule by which ours agrees with them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkback.core.errors import InputError
from walkback_papers.published.agree import (
    FIGURE_KINDS,
    MARGIN_FACTOR,
    agreement,
    compare_with_published,
    difference_interval,
    distance,
)
from walkback_papers.published.parse_number import Printed, parse

# Parsing


@pytest.mark.parametrize(
    ("text", "low", "high", "spread"),
    [
        ("0.615 ± 0.003", 0.615, 0.615, 0.003),
        ("+26.6 pp", 26.6, 26.6, None),
        ("−14.4 pp", -14.4, -14.4, None),
        ("~4e-4", 4e-4, 4e-4, None),
        ("4.0 ± 0.1e4", 4e4, 4e4, 1e3),
        ("9.0 ± 0.9e-7", 9e-7, 9e-7, 0.9e-7),
        ("12000", 12000, 12000, None),
        ("24,338×", 24338, 24338, None),
        ("1e7–1e8×", 1e7, 1e8, None),
        ("+0.39…+0.43", 0.39, 0.43, None),
        ("96%", 0.96, 0.96, None),
        ("≈ 0", 0, 0, None),
        ("> 1e-6", 1e-6, 1e-6, None),
    ],
)
def test_a_printed_figure_is_parsed_with_its_spread(text, low, high, spread):
    found = parse(text)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.spread == (None if spread is None else pytest.approx(spread))


@pytest.mark.parametrize("text", ["", "about 3", "0.3 ±", "1 2", "0.3 - 0.4"])
def test_text_that_is_no_figure_is_refused(text):
    with pytest.raises(InputError, match="Cannot read the printed figure"):
        parse(text)


# The rule

NUMERIC = [name for name, kind in FIGURE_KINDS.items() if kind.by in ("difference", "ratio")]
VALUES = st.floats(1e-3, 1e3)


def exact(value: float, spread: float | None = None, sign: str = "") -> Printed:
    return Printed(value, value, spread, sign)


def outcome(kind: str, text: str, values: list[float], **given: int) -> str:
    return compare_with_published(kind, parse(text), values, **given).outcome


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((-0.01, 0.01), "agrees"),
        ((0.005, 0.019), "agrees"),  # A difference that is certain and small.
        ((-0.02, 0.02), "agrees"),
        ((-0.01, 0.021), "too noisy to tell"),
        ((-0.5, 0.5), "too noisy to tell"),  # Noise is no agreement.
        ((0.01, 0.03), "differs"),
        ((-0.09, -0.03), "differs"),
        (None, "too noisy to tell"),
    ],
)
def test_an_interval_agrees_inside_the_margin_and_differs_outside_without_zero(interval, expected):
    assert agreement(interval, 0.02) == expected


def test_the_interval_is_students_over_seeds_and_welchs_with_a_published_spread():
    ours = [0.60, 0.61, 0.62]
    half = 4.302653 * 0.01 / math.sqrt(3)  # t(0.975, 2)
    assert difference_interval(ours, (0.6, 0.6)) == pytest.approx((0.01 - half, 0.01 + half), abs=1e-8)
    both = 2.776445 * 0.01 * math.sqrt(2 / 3)  # Equal spreads of three seeds each: t(0.975, 4)
    assert difference_interval(ours, (0.6, 0.6), 0.01) == pytest.approx((0.01 - both, 0.01 + both), abs=1e-8)
    assert difference_interval([0.61] * 3, (0.6, 0.6)) == pytest.approx((0.01, 0.01))
    assert difference_interval([0.61], (0.6, 0.6)) is None


@given(st.sampled_from(NUMERIC), VALUES, st.integers(2, 5))
def test_the_same_figure_agrees(kind, value, seeds):
    assert compare_with_published(kind, exact(value), [value] * seeds).outcome == "agrees"


@given(st.sampled_from(NUMERIC), VALUES)
def test_one_seed_has_no_interval_and_tells_nothing(kind, value):
    assert compare_with_published(kind, exact(value), [value]).outcome == "too noisy to tell"


@given(st.sampled_from(NUMERIC), VALUES, st.floats(0.01, 0.5), st.floats(1.0, 3.0), st.floats(1.0, 3.0))
def test_a_larger_distance_never_turns_difference_into_agreement(kind, value, width, near, more):
    """The same spread (of logarithms, for ratios), at a larger distance."""

    def at(factor: float) -> str:
        seeds = [value * factor * math.exp(width * step) for step in (-1, 0, 1)]
        if FIGURE_KINDS[kind].by == "difference":
            seeds = [value + (factor - 1) * value + width * step for step in (-1, 0, 1)]
        return compare_with_published(kind, exact(value, 0.01), seeds).outcome

    if at(near) == "differs":
        assert at(near * more) == "differs"


@given(st.sampled_from(NUMERIC), VALUES, VALUES, st.floats(0, 1), st.floats(1, 10))
def test_a_wider_spread_of_ours_never_turns_into_agreement(kind, value, ours, width, more):
    def at(spread: float) -> str:
        seeds = [ours * math.exp(spread * step) for step in (-1, 0, 1)]
        if FIGURE_KINDS[kind].by == "difference":
            seeds = [ours + spread * step for step in (-1, 0, 1)]
        return compare_with_published(kind, exact(value), seeds).outcome

    if at(width) != "agrees":
        assert at(width * more) != "agrees"


@given(VALUES, st.lists(VALUES, min_size=2, max_size=4), st.integers(-6, 6))
def test_a_ratio_does_not_depend_on_the_unit(value, ours, power):
    one = compare_with_published("norm_g", exact(value), ours)
    other = compare_with_published("norm_g", exact(value).times(2.0**power), [v * 2.0**power for v in ours])
    assert one.outcome == other.outcome


@pytest.mark.parametrize(
    ("kind", "text", "inside", "outside"),
    [
        ("accuracy", "0.615", 0.634, 0.636),
        ("share", "96%", 0.941, 0.939),
        ("margin", "+4.4 pp", 6.3, 6.5),
        ("cosine", "≈ 0", -0.049, -0.051),
        ("norm_h", "~200", 399.0, 401.0),
        ("growth", "237", 119.0, 118.0),
        ("nudging", "−1e-3", -1.9e-3, -2.1e-3),
    ],
)
def test_the_margin_of_each_kind(kind, text, inside, outside):
    assert outcome(kind, text, [inside] * 3) == "agrees"
    assert outcome(kind, text, [outside] * 3) == "differs"
    wide = 3.0 if FIGURE_KINDS[kind].by == "ratio" else 10 * FIGURE_KINDS[kind].margin
    spread = [inside * wide**step if FIGURE_KINDS[kind].by == "ratio" else inside + wide * step for step in (-1, 0, 1)]
    assert outcome(kind, text, spread) == "too noisy to tell"


def test_a_published_spread_widens_the_interval():
    assert outcome("accuracy", "0.615 ± 0.001", [0.625, 0.626, 0.627]) == "agrees"
    assert outcome("accuracy", "0.615 ± 0.010", [0.625, 0.626, 0.627]) == "too noisy to tell"


def test_another_sign_or_zero_never_agrees_by_ratio():
    for ours in ([1e-3, 1e-3], [0.0, 0.0]):
        assert outcome("nudging", "−1e-3", ours) == "differs"
    assert outcome("nudging", "−1e-3", [-1e-3, 1e-3]) == "too noisy to tell"
    found = compare_with_published("nudging", parse("−1e-3"), [-2e-3, -2e-3])
    assert found.shown == f"×{MARGIN_FACTOR:g}, +0.30 orders [+0.30, +0.30]"


def test_bounds_and_ranges():
    assert outcome("norm_g", "> 1e-6", [2e-6, 3e-6]) == "agrees"
    assert outcome("norm_g", "> 1e-6", [2e-6, 9e-7]) == "differs"
    assert "above it in 1 of 2" in compare_with_published("norm_g", parse("> 1e-6"), [2e-6, 9e-7]).shown
    assert outcome("growth", "< 10", [9.0, 2.0]) == "agrees"
    assert distance(0.2, 0.05, 0.18) == pytest.approx(0.02)
    assert distance(0.01, 0.05, 0.18) == pytest.approx(-0.04)
    assert distance(0.1, 0.05, 0.18) == 0
    assert outcome("factor", "4–40×", [39.0, 39.0]) == "agrees"
    assert outcome("factor", "4–40×", [300.0, 300.0]) == "differs"
    assert outcome("factor", "4–40×", [3.8, 3.8]) == "agrees"
    assert outcome("factor", "4–40×", [1.0, 400.0]) == "too noisy to tell"


def test_first_firings_must_be_in_the_range_within_one_epoch():
    assert compare_with_published("epoch", parse("8–11"), [7, 9, 12]).outcome == "agrees"
    assert compare_with_published("epoch", parse("8–11"), [9, 9, 13]).outcome == "differs"
    assert compare_with_published("epoch", parse("1"), [2, 1]).outcome == "agrees"
    assert compare_with_published("count", parse("3"), [3, 3]).outcome == "agrees"
    assert compare_with_published("count", parse("3"), [3, 4]).outcome == "differs"


def test_a_spread_over_draws_is_divided_by_their_square_root():
    ours = [0.030, 0.030]
    assert outcome("cosine", "+0.002 ± 0.050", ours) == "too noisy to tell"
    assert outcome("cosine", "+0.002 ± 0.050", ours, draws=20) == "differs"

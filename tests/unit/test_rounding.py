"""Measurements rounded to few bits and stored in small types: error bounds, exact values, and reading back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from walkback.core.measurements import Measurements, round_to

EXACT = [0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), float("-inf")]
LARGEST, SMALLEST = np.finfo(np.float64).max, 5e-324
numbers = arrays(np.float64, st.integers(0, 20), elements=st.floats(width=64) | st.sampled_from(EXACT))
bits = st.integers(2, 40)


@given(numbers, bits)
def test_rounding_changes_a_number_by_at_most_half_its_last_bit(given, bits):
    got = round_to(given, bits)
    usual = np.isfinite(given)
    assert (np.abs(got[usual] - given[usual]) <= np.abs(given[usual]) * 2.0**-bits).all()
    np.testing.assert_array_equal(got[~usual], given[~usual])
    np.testing.assert_array_equal(np.signbit(got), np.signbit(given))


@given(numbers, bits)
def test_rounded_numbers_have_the_requested_number_of_bits(given, bits):
    got = round_to(given, bits)
    parts, _ = np.frexp(got[np.isfinite(got) & (np.abs(got) < 2.0**1023)])
    scaled = np.ldexp(parts, bits)
    np.testing.assert_array_equal(scaled, np.rint(scaled))


@given(numbers, bits)
def test_rounding_is_idempotent(given, bits):
    once = round_to(given, bits)
    np.testing.assert_array_equal(round_to(once, bits), once)
    np.testing.assert_array_equal(round_to(once, bits + 3), once)


@pytest.mark.parametrize("value", EXACT)
def test_exact_values_are_not_changed(value):
    for bits in (2, 8, 12):
        got = round_to(np.array([value]), bits)
        assert got.tobytes() == np.array([value]).tobytes()


def test_rounding_is_to_nearest_with_ties_to_even():
    given = np.array([1 + 1 / 16, 1 + 3 / 16, 1.07, -1.19, 1000.0, 3e-5])
    np.testing.assert_array_equal(round_to(given, 4), [1.0, 1.25, 1.125, -1.25, 1024.0, 2.0**-15])


def test_the_largest_numbers_do_not_become_infinite():
    given = np.array([LARGEST, -LARGEST, SMALLEST, 3 * SMALLEST])
    np.testing.assert_array_equal(round_to(given, 12), given)


def saved(tmp_path, values, **given):
    path = tmp_path / "some.npz"
    facts = {"layers": 2, "samples": len(values), "groups": 1}
    Measurements({"loss": np.array(values, dtype=np.float64)}, facts).save(path, **given)
    with np.load(path) as stored:
        return stored["loss"].dtype, Measurements.load(path)


@pytest.mark.parametrize(("values", "kind"), [
    ([0.0, 1.0, 1.0], np.uint8),
    ([0.0, -0.0], np.float32),
    ([1.0, -1.0], np.float32),
    ([0.5, float("nan"), float("inf"), 1e-30], np.float64),  # 1e-30 has more bits than float32
    ([0.5, float("nan"), float("-inf"), 2.0**-120, 0.0, 1.0], np.float32),
    ([2.0**-160, 1.0], np.float64),
    ([2.0**130, 1.0], np.float64),
    ([0.1], np.float64),
])  # fmt: skip
def test_narrow_arrays_are_stored_in_the_smallest_exact_type(tmp_path, values, kind):
    stored, again = saved(tmp_path, values, narrow=True)
    assert stored == kind
    assert again.arrays["loss"].dtype == np.float64
    assert again.arrays["loss"].tobytes() == np.array(values).tobytes()


def test_without_narrow_arrays_are_stored_as_float64(tmp_path):
    stored, again = saved(tmp_path, [0.0, 1.0])
    assert stored == again.arrays["loss"].dtype == np.float64


@given(arrays(np.float64, 20, elements=st.floats(width=64)))
def test_narrow_measurements_are_read_back_equal(tmp_path_factory, given):
    facts = {"layers": 3, "samples": 20, "groups": 1, "files": {"model.safetensors": "a"}}
    measurements = Measurements({"loss": given}, facts).rounded(12)
    path = tmp_path_factory.mktemp("small") / "some.npz"
    measurements.save(path, narrow=True)
    assert Measurements.load(path).equals(measurements)


def test_the_facts_record_the_number_of_bits():
    given = Measurements({"loss": np.array([0.1])}, {"layers": 3})
    assert given.rounded(12).facts == {"layers": 3, "rounded_bits": 12}
    assert given.rounded(8).rounded(12).facts["rounded_bits"] == 8
    assert given.facts == {"layers": 3}


def test_equals_compares_numbers_and_facts():
    one = Measurements({"loss": np.array([0.5, np.nan])}, {"layers": 3})
    assert one.equals(Measurements({"loss": np.array([0.5, np.nan])}, {"layers": 3}))
    assert not one.equals(Measurements({"loss": np.array([0.5, 0.5])}, {"layers": 3}))
    assert not one.equals(Measurements({"loss": np.array([0.5])}, {"layers": 3}))
    assert not one.equals(Measurements({"correct": np.array([0.5, np.nan])}, {"layers": 3}))
    assert not one.equals(Measurements({"loss": np.array([0.5, np.nan])}, {"layers": 4}))


def test_the_stored_bytes_do_not_depend_on_the_time(tmp_path, monkeypatch):
    measurements = Measurements({"loss": np.array([0.1, 0.2])}, {"layers": 3})
    measurements.save(tmp_path / "one.npz", narrow=True)
    for name in ("time", "time_ns"):
        monkeypatch.setattr(f"time.{name}", lambda: 2 * 10**9)
    monkeypatch.setattr("time.localtime", lambda *_: pytest.fail("the time was read"))
    measurements.save(tmp_path / "two.npz", narrow=True)
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()

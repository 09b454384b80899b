"""Settings from text: parsing, conversion to types, and the errors for invalid values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from walkback.core.errors import InputError, unknown
from walkback.core.settings import (
    Spec,
    all_settings,
    build_settings,
    changed_settings,
    convert,
    require_above,
    require_at_least,
)

WORDS = st.text("abcdefghijklmnopqrstuvwxyz_0123456789", min_size=1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@dataclass(frozen=True)
class Example:
    """One field of each type that settings have."""

    given: int
    size: int = 4
    rate: float = 0.5
    is_on: bool = False
    mode: Literal["fast", "slow"] = "fast"
    limit: int | None = None
    title: str = "plain"


def make(**chosen):
    return build_settings(Example, chosen, "the thing", given=1)


@pytest.mark.parametrize(
    ("text", "name", "settings"),
    [
        ("dfa", "dfa", {}),
        ("dfa:scale=unit_error", "dfa", {"scale": "unit_error"}),
        ("dfa:scale=unit_error,site=input", "dfa", {"scale": "unit_error", "site": "input"}),
        ("x:path=a=b", "x", {"path": "a=b"}),
    ],
)
def test_a_spec_is_parsed_into_its_name_and_settings(text, name, settings):
    assert Spec.parse(text) == Spec(name, settings)


@pytest.mark.parametrize("text", ["", ":", ":scale=raw"])
def test_a_missing_name_is_refused(text):
    with pytest.raises(InputError, match=r"the name before ':' is missing"):
        Spec.parse(text)


@pytest.mark.parametrize("item", ["scale", "scale=", "=raw", "="])
def test_an_incomplete_setting_is_refused_with_the_expected_form(item):
    with pytest.raises(InputError, match=rf"'{item}' in 'dfa:{item}'.*name:key=value,key=value"):
        Spec.parse(f"dfa:{item}")


def test_a_setting_given_twice_is_refused():
    with pytest.raises(InputError, match=r"'scale' is given twice in 'dfa:scale=raw,scale=raw'"):
        Spec.parse("dfa:scale=raw,scale=raw")


@settings(deadline=None)
@given(WORDS, st.dictionaries(WORDS, WORDS))
def test_a_printed_spec_is_parsed_to_the_same_spec(name, settings):
    spec = Spec(name, settings)
    assert Spec.parse(str(spec)) == spec


@settings(deadline=None)
@given(FINITE)
def test_a_printed_number_is_parsed_to_the_same_number(value):
    printed = Spec.parse(str(Spec("x", {"rate": value}))).settings["rate"]
    assert make(rate=printed).rate == value


@pytest.mark.parametrize(
    ("value", "shown"), [(0.01, "0.01"), (1.0, "1"), (0.123456789, "0.123456789"), (True, "true"), (None, "none")]
)
def test_values_are_printed_as_a_user_writes_them(value, shown):
    assert str(Spec("x", {"key": value})) == f"x:key={shown}"


def test_text_becomes_the_type_of_its_field():
    made = make(size="7", rate="1e-3", is_on="yes", mode="slow", limit="3", title="t")
    assert made == Example(1, 7, 1e-3, True, "slow", 3, "t")
    assert make(limit="none").limit is None
    assert make(rate=2).rate == 2.0
    assert isinstance(make(rate=2).rate, float)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": "4.5"}, r"size of the thing is '4.5'.*whole number"),
        ({"size": 4.0}, r"size of the thing is 4.0.*whole number"),
        ({"size": True}, r"size of the thing is True.*whole number"),
        ({"size": "many"}, r"size of the thing is 'many'.*whole number"),
        ({"size": None}, r"size of the thing is None.*whole number"),
        ({"rate": "fast"}, r"rate of the thing is 'fast'.*finite number"),
        ({"rate": "nan"}, r"rate of the thing is 'nan'.*finite number"),
        ({"rate": "inf"}, r"rate of the thing is 'inf'.*finite number"),
        ({"rate": "1e999"}, r"rate of the thing is '1e999'.*finite number"),
        ({"rate": math.nan}, r"rate of the thing is nan.*finite number"),
        ({"rate": False}, r"rate of the thing is False.*finite number"),
        ({"is_on": "maybe"}, r"is_on of the thing is 'maybe'.*true or false"),
        ({"is_on": 1}, r"is_on of the thing is 1.*true or false"),
        ({"limit": "x"}, r"limit of the thing is 'x'.*whole number"),
        ({"mode": "fats"}, r"mode of the thing 'fats'.*'fast'\?.*fast, slow"),
        ({"title": 3}, r"title of the thing is 3.*not a str"),
        ({"siez": "4"}, r"setting of the thing 'siez'.*'size'\?.*is_on, limit, .*title"),
    ],
)
def test_values_that_do_not_fit_are_refused_with_the_value_and_what_is_expected(settings, message):
    with pytest.raises(InputError, match=message):
        make(**settings)


def test_a_field_that_is_not_the_users_to_set_is_unknown():
    with pytest.raises(InputError, match=r"Unknown setting of the thing 'given'"):
        make(given="2")


@settings(deadline=None)
@given(st.integers())
def test_whole_numbers_survive_as_text(value):
    assert convert(str(value), int, "n") == value


def test_all_settings_have_defaults_and_changed_settings_differ_from_them():
    made = make(size="7", mode="fast")
    assert all_settings(made) == {
        "size": 7,
        "rate": 0.5,
        "is_on": False,
        "mode": "fast",
        "limit": None,
        "title": "plain",
    }
    assert changed_settings(made) == {"size": 7}


def test_values_out_of_bounds_are_refused():
    require_at_least(0, 0, "n")
    require_above(1e-300, 0, "n")
    with pytest.raises(InputError, match=r"n is -1.*at least 0"):
        require_at_least(-1, 0, "n")
    with pytest.raises(InputError, match=r"n is 0.*more than 0"):
        require_above(0, 0, "n")


def test_an_unknown_name_gets_a_suggestion_only_where_one_is_close():
    known = ["dfa", "bp", "fa"]
    close, far, nothing_known = (
        str(unknown("method", name, names)) for name, names in (("dff", known), ("qqqq", known), ("dff", []))
    )
    assert "method 'dff'" in close
    assert "'dfa'?" in close
    assert "bp, dfa, fa" in close
    assert "method 'qqqq'" in far
    assert "?" not in far
    assert "bp, dfa, fa" in far
    assert "method 'dff'" in nothing_known
    assert "none" in nothing_known

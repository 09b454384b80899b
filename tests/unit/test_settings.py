"""Settings from text: what is read, what is refused, and in which words."""

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
class Thing:
    """One field of each type that settings have."""

    given: int
    size: int = 4
    rate: float = 0.5
    is_on: bool = False
    mode: Literal["fast", "slow"] = "fast"
    limit: int | None = None
    title: str = "plain"


def make(**chosen):
    return build_settings(Thing, chosen, "the thing", given=1)


@pytest.mark.parametrize(
    ("text", "name", "settings"),
    [
        ("dfa", "dfa", {}),
        ("dfa:scale=unit_error", "dfa", {"scale": "unit_error"}),
        ("dfa:scale=unit_error,site=input", "dfa", {"scale": "unit_error", "site": "input"}),
        ("x:path=a=b", "x", {"path": "a=b"}),
    ],
)
def test_a_method_text_is_read_into_its_name_and_settings(text, name, settings):
    assert Spec.parse(text) == Spec(name, settings)


@pytest.mark.parametrize("text", ["", ":", ":scale=raw"])
def test_a_missing_name_is_refused(text):
    with pytest.raises(InputError, match=r"the name before ':' is missing"):
        Spec.parse(text)


@pytest.mark.parametrize("item", ["scale", "scale=", "=raw", "="])
def test_half_a_setting_is_refused_with_the_form_expected(item):
    with pytest.raises(InputError, match=rf"Cannot read '{item}' in 'dfa:{item}'\. Write name:key=value,key=value\."):
        Spec.parse(f"dfa:{item}")


def test_a_setting_given_twice_is_refused():
    with pytest.raises(InputError, match=r"'scale' is given twice in 'dfa:scale=raw,scale=raw'\. Give it once\."):
        Spec.parse("dfa:scale=raw,scale=raw")


@settings(deadline=None)
@given(WORDS, st.dictionaries(WORDS, WORDS))
def test_a_choice_is_read_back_from_what_it_prints(name, settings):
    spec = Spec(name, settings)
    assert Spec.parse(str(spec)) == spec


@settings(deadline=None)
@given(FINITE)
def test_a_printed_number_is_the_same_number_when_read_back(value):
    printed = Spec.parse(str(Spec("x", {"rate": value}))).settings["rate"]
    assert make(rate=printed).rate == value


@pytest.mark.parametrize(
    ("value", "shown"), [(0.01, "0.01"), (1.0, "1"), (0.123456789, "0.123456789"), (True, "true"), (None, "none")]
)
def test_values_are_printed_as_a_user_writes_them(value, shown):
    assert str(Spec("x", {"key": value})) == f"x:key={shown}"


def test_text_becomes_the_type_of_its_field():
    made = make(size="7", rate="1e-3", is_on="yes", mode="slow", limit="3", title="t")
    assert made == Thing(1, 7, 1e-3, True, "slow", 3, "t")
    assert make(limit="none").limit is None
    assert make(rate=2).rate == 2.0
    assert isinstance(make(rate=2).rate, float)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"size": "4.5"}, r"size of the thing is '4.5'; expected a whole number\."),
        ({"size": 4.0}, r"size of the thing is 4.0; expected a whole number\."),
        ({"size": True}, r"size of the thing is True; expected a whole number\."),
        ({"size": "many"}, r"size of the thing is 'many'; expected a whole number\."),
        ({"size": None}, r"size of the thing is None; expected a whole number\."),
        ({"rate": "fast"}, r"rate of the thing is 'fast'; expected a finite number\."),
        ({"rate": "nan"}, r"rate of the thing is 'nan'; expected a finite number\."),
        ({"rate": "inf"}, r"rate of the thing is 'inf'; expected a finite number\."),
        ({"rate": "1e999"}, r"rate of the thing is '1e999'; expected a finite number\."),
        ({"rate": math.nan}, r"rate of the thing is nan; expected a finite number\."),
        ({"rate": False}, r"rate of the thing is False; expected a finite number\."),
        ({"is_on": "maybe"}, r"is_on of the thing is 'maybe'; expected true or false\."),
        ({"is_on": 1}, r"is_on of the thing is 1; expected true or false\."),
        ({"limit": "x"}, r"limit of the thing is 'x'; expected a whole number\."),
        ({"mode": "fats"}, r"Unknown mode of the thing 'fats'\. Did you mean 'fast'\? Known: fast, slow\."),
        ({"title": 3}, r"title of the thing is 3, which is not a str\."),
        ({"siez": "4"}, r"Unknown setting of the thing 'siez'\. Did you mean 'size'\? Known: is_on, limit, .*title\."),
    ],
)
def test_what_does_not_fit_is_refused_with_what_was_got_and_what_is_expected(settings, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        make(**settings)


def test_a_field_that_is_not_the_users_to_set_is_unknown():
    with pytest.raises(InputError, match=r"Unknown setting of the thing 'given'"):
        make(given="2")


@settings(deadline=None)
@given(st.integers())
def test_whole_numbers_survive_as_text(value):
    assert convert(str(value), int, "n") == value


def test_full_and_changed_tell_settings_from_what_was_given():
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


def test_bounds():
    require_at_least(0, 0, "n")
    require_above(1e-300, 0, "n")
    with pytest.raises(InputError, match=r"^n is -1; expected at least 0\.$"):
        require_at_least(-1, 0, "n")
    with pytest.raises(InputError, match=r"^n is 0; expected more than 0\.$"):
        require_above(0, 0, "n")


def test_an_unknown_name_gets_a_suggestion_only_where_one_is_close():
    known = ["dfa", "bp", "fa"]
    assert str(unknown("method", "dff", known)) == "Unknown method 'dff'. Did you mean 'dfa'? Known: bp, dfa, fa."
    assert str(unknown("method", "qqqq", known)) == "Unknown method 'qqqq'. Known: bp, dfa, fa."
    assert str(unknown("method", "dff", [])) == "Unknown method 'dff'. Known: none."

"""Variants of each mistake: none of the correct pieces is flagged, and the page lists what is missed."""

from __future__ import annotations

import lint_recall
import pytest

from walkback.linting.rule import rules


@pytest.fixture(scope="module")
def checked():
    return lint_recall.variants()


def test_every_code_has_ten_mistakes_and_five_correct_pieces(checked):
    for code in rules():
        kinds = [variant.is_mistake for variant in checked if variant.code == code]
        assert (kinds.count(True), kinds.count(False)) == (10, 5), code
    assert {variant.code for variant in checked} == rules().keys()


def test_no_correct_piece_is_flagged(checked):
    assert [v for v in checked if not v.is_mistake and v.found] == []


def test_the_page_has_the_table_of_what_is_found_and_missed(checked):
    assert lint_recall.on_page(lint_recall.PAGE.read_text()) == lint_recall.table(checked)

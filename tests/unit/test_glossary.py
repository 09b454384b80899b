"""The glossary: every check and every term of the tables has one short explanation."""

from __future__ import annotations

from typing import get_args

import pytest
from fake_measurements import healthy

from walkback.core.errors import InputError
from walkback.judge import glossary
from walkback.judge.blocks import BLOCK_COLUMNS
from walkback.judge.checks import CHECKS
from walkback.judge.claim import Claim, ClaimOutcome
from walkback.judge.editions import PROTOCOLS
from walkback.judge.evidence import NULLS, ORACLES, UNNAMED
from walkback.judge.glossary import GLOSSARY, explain
from walkback.judge.report import judge
from walkback.report.overview import OVERVIEW_NUMBERS

OWN_MEANING = {"method", "accuracy"}
"""Table heads that need no explanation."""


@pytest.mark.parametrize("name", CHECKS.names())
def test_every_check_is_explained(name):
    assert explain(name)


def test_every_check_is_explained_under_the_names_it_has_on_cards():
    for flag in judge(healthy()).flags.values():
        assert explain(flag.id)


def test_every_aggregate_edition_and_baseline_is_explained():
    numbers = [name for name in judge(healthy()).quantities.aggregates.to_json() if not name.endswith("_z")]
    for name in (*numbers, *PROTOCOLS, *NULLS.keys() - {UNNAMED}):
        assert explain(name)


def test_oracles_are_explained_by_their_numbers():
    for number, kind in enumerate(ORACLES, start=1):
        assert explain(f"O{number}") == explain(f"{kind} oracle") != explain("oracle")


@pytest.mark.parametrize("outcome", ["trustworthy", *get_args(ClaimOutcome)])
def test_outcomes_are_explained(outcome):
    assert explain(outcome) == explain(Claim("alignment", outcome, "").shown.split(":")[0])


@pytest.mark.parametrize("column", OVERVIEW_NUMBERS, ids=lambda column: column.name)
def test_heads_of_the_overview_are_explained(column):
    if column.name not in OWN_MEANING:
        assert explain(column.name)


@pytest.mark.parametrize("head", [head for head, _, _ in BLOCK_COLUMNS])
def test_heads_of_the_table_of_blocks_are_explained(head):
    assert explain(head)


@pytest.mark.parametrize("aliases", [("D1", "growth", "(a)", "growth (D1)"), ("(c)", "drift", "DRIFT (C)"), ("Γ", "γ")])
def test_aliases_have_one_explanation(aliases):
    assert len({explain(alias) for alias in aliases}) == 1


def test_every_alias_names_a_term_and_is_none_itself():
    assert set(glossary._ALIASES.values()) <= set(GLOSSARY)
    assert not set(glossary._ALIASES) & {name.lower() for name in GLOSSARY}


@pytest.mark.parametrize("term", GLOSSARY)
def test_explanations_are_one_or_two_short_sentences(term):
    text = GLOSSARY[term]
    assert len(text) <= 300
    assert text.endswith(".")


def test_no_explanation_is_written_twice():
    assert len(set(GLOSSARY.values())) == len(GLOSSARY)


def test_an_unknown_term_gets_a_suggestion():
    with pytest.raises(InputError, match=r"Unknown term 'concentraton'\. Did you mean 'concentration'\?"):
        explain("concentraton")

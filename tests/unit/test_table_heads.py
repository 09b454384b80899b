"""Table heads use the glossary's terms and plain words, and no other word."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import fake_audit
import pytest

import tiny
from walkback.bench.costs import packaged
from walkback.cli.progress import plan_table, result_table
from walkback.core.errors import InputError
from walkback.judge.blocks import BLOCK_COLUMNS
from walkback.judge.glossary import GLOSSARY, LEGEND, explain
from walkback.judge.table_heads import PLAIN_WORDS, explained, words_of
from walkback.report.audit_page.page import audit_page
from walkback.report.formats import render
from walkback.runs.train_runs import Result
from walkback.training.planning.fleet_plan import FleetGroup

RESULTS = Path(__file__).parents[2] / "results" / "paper"


class Heads(HTMLParser):
    """The texts of a page's table heads."""

    def __init__(self, source: str):
        super().__init__()
        self.found: list[str] = []
        self._inside = False
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        if tag == "th":
            self._inside = True
            self.found.append("")

    def handle_endtag(self, tag):
        if tag == "th":
            self._inside = False

    def handle_data(self, data):
        if self._inside:
            self.found[-1] += data


def heads_of_studies() -> set[str]:
    documents = [json.loads(path.read_text()) for path in RESULTS.glob("*/study.json")]
    return {head for document in documents for table in document["tables"] for head in table["heads"]}


def heads_of_pages() -> set[str]:
    reports = fake_audit.reports()
    cards = [report.to_json() for report in reports]
    names = {card["claim"]["method"] for card in cards}
    pages = [audit_page(cards, "Audit", logs=fake_audit.logs(reports)), *(render(card, "html") for card in cards)]
    # Some rows begin with a head: the name of a method, a layer or an edition.
    return {head for page in pages for head in Heads(page).found if head not in names}


def heads_of_terminal_tables() -> set[str]:
    group = FleetGroup((tiny.resolved("bp"),), "fleet", seconds=1.0, memory=1, flops=1)
    results = [Result("run", "bp", 1, 0.5, 1.0, "done", 1, "resmlp", "prototypes", "run", test_loss=0.5)]
    tables = [plan_table([group]), result_table(results)]
    of_benches = {head for document in packaged() for head in (document["time"], document["ratio"])}
    return {str(column.header) for table in tables for column in table.columns} | of_benches


BLOCK_HEADS = {head for head, _, _ in BLOCK_COLUMNS}
HEADS = sorted(BLOCK_HEADS | heads_of_studies() | heads_of_pages() | heads_of_terminal_tables())


def test_heads_are_found_in_studies_pages_and_the_terminal():
    assert {"deep cosine", "flips at", "update cos", "fleet", "test acc"} <= set(HEADS)


@pytest.mark.parametrize("head", HEADS)
def test_heads_use_terms_and_plain_words_only(head):
    _, others = words_of(head)
    assert set(others) <= PLAIN_WORDS


@pytest.mark.parametrize("head", [head for head in HEADS if words_of(head)[0]])
def test_heads_with_a_term_are_explained(head):
    found = explained(head)
    assert found
    assert all(text == explain(term) for term, text in found.items())


def test_a_head_of_plain_words_says_so():
    assert "caption" in explained("train loss, first")["train loss, first"]


def test_words_of_the_summary_in_a_terminal_are_explained():
    assert all(explained(term) for term in LEGEND)


@pytest.mark.parametrize("head", ["‖g_L‖ @128 first", "z against fresh", "Depth, bp frozen baseline", "`used_cos` ↑"])
def test_a_head_is_explained_by_its_terms_whatever_their_case_and_markup(head):
    found = explained(head)
    assert found.keys() <= GLOSSARY.keys()
    assert len(found) == 1 + (" " in head and "used" not in head and "first" not in head)


def test_an_unknown_head_is_refused_with_a_suggestion():
    with pytest.raises(InputError, match="Did you mean 'concentration'"):
        explained("concentraton")

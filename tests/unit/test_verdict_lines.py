"""The summary of an audit: one line for each method, verdict first, then why it may claim less."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from pathlib import Path

import fake_audit
import pytest

from walkback.auditing.audit import Audit
from walkback.cli.print_audit import print_audit
from walkback.judge.audit_table import AuditTable, make_audit_table
from walkback.judge.claim import Claim
from walkback.judge.glossary import LEGEND
from walkback.report.method_names import shared_settings, short_names
from walkback.report.verdict_lines import ASCII_MARKS, MARKS, summary_lines, verdict_lines


@pytest.fixture(scope="module")
def table() -> AuditTable:
    return make_audit_table([report.to_json() for report in fake_audit.reports()])


SHORT = {method: method.partition(":")[0] + ", unit error, site input" * (":" in method) for method in fake_audit.MADE}


def first_lines(lines: list[str]) -> dict[str, list[str]]:
    """The words of each method's line, by method; its name counts as one word."""
    heads = [line for line in lines if not line.startswith(" ")]
    found = {}
    for method, name in SHORT.items():
        for line in heads:
            mark, rest = line.split(maxsplit=1)
            if rest.startswith(f"{name} "):
                found[method] = [mark, method, *rest.removeprefix(name).split()]
    return found


def test_each_method_has_one_line_with_its_verdict_accuracy_and_gain(table):
    found = first_lines(verdict_lines(table))
    assert list(found) == list(fake_audit.MADE)
    for row in table.rows:
        words = found[row.method]
        assert words[0] == MARKS[row.rulings[table.protocol].outcome]
        if row.cards[0]["claim"]["headline_acc"]:
            assert words[2] == ("30.5" if row.method.startswith("dfa") else "61.5")
            assert ("-5.0" if row.method.startswith("dfa") else "+26.0") in words
    assert "240×" in found["dfa:scale=unit_error,site=input"]
    assert " ".join(found["mine"][2:]).startswith("accuracy not given")


def test_reasons_follow_a_method_that_is_not_trustworthy_and_no_other(table):
    lines = verdict_lines(table)
    for row in table.rows:
        name = SHORT[row.method]
        at = next(place for place, line in enumerate(lines) if line.partition(" ")[2].lstrip().startswith(f"{name} "))
        explained = lines[at + 1 : at + 2] and lines[at + 1].startswith("  Why: ")
        assert bool(explained) == (row.rulings[table.protocol].outcome != "trustworthy")
    text = " ".join(" ".join(lines).split())
    statistics = table.rows[2].cards[0]["statistics"]
    assert "trained blocks do no better" in text or "whether the blocks help is open" in text
    assert f"{statistics['interval'][0]:+.1f} to {statistics['interval'][1]:+.1f} pp" in text
    assert "hidden norms explode" in text


def test_a_method_whose_claims_are_all_walked_back_may_claim_neither(table):
    claims = {name: Claim(name, "walked_back", "because", "null") for name in ("depth", "alignment")}
    (line, *_) = verdict_lines(replace(table, rows=(replace(table.rows[2], claims=claims),)))
    assert line.endswith("may claim neither depth nor alignment")


def test_another_edition_decides_the_mark_and_is_named(table):
    lines = verdict_lines(replace(table, protocol="three"))
    assert first_lines(lines)["dfa:scale=unit_error,site=input"][0] == MARKS["walked_back"]
    assert "edition three: D1, D2, D3" in "\n".join(lines)


def test_methods_on_several_networks_are_named_with_their_place():
    cards = [fake_audit.report("bp", 1, arch=arch).to_json() for arch in ("resmlp:depth=4", "resmlp:depth=8")]
    shown = verdict_lines(make_audit_table(cards))
    assert all(f"(resmlp:depth={depth} on prototypes)" in "\n".join(shown) for depth in (4, 8))


@pytest.mark.parametrize(("encoding", "marks"), [("utf-8", MARKS), ("ascii", ASCII_MARKS)])
def test_a_terminal_without_the_marks_gets_words(table, monkeypatch, encoding, marks):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="replace")
    monkeypatch.setattr(sys, "stdout", stream)
    print_audit(Audit(Path("out"), (), table), full=False)
    stream.flush()
    printed = stream.buffer.getvalue().decode(encoding).splitlines()
    outcomes = [row.rulings[table.protocol].outcome for row in table.rows]
    heads = [line.split()[0] for line in printed if not line.startswith(" ") and line.split()[0] in marks.values()]
    assert heads == [marks[each] for each in outcomes]
    assert encoding == "utf-8" or "×" not in "".join(printed)
    assert printed[-1] == f"Report: {Path('out', 'audit.html')}"


def test_colours_stand_at_the_mark_and_the_claims(table):
    painted = verdict_lines(table, paint=lambda verdict, text: f"<{verdict}>{text}</>")
    bare = verdict_lines(table)
    assert [re.sub("<[^>]*>", "", line) for line in painted] == bare
    verdicts = [row.rulings[table.protocol].outcome for row in table.rows]
    assert [re.findall("<([a-z_]+)>", line) for line in painted if "<" in line] == [[each] * 2 for each in verdicts]


@pytest.mark.parametrize(
    ("methods", "names", "shared"),
    [
        (["bp", "dfa", "dfa:scale=unit_error"], ["bp", "dfa", "dfa, unit error"], []),
        (["bp", "fa:site=input", "dfa:scale=unit_error,site=input"], ["bp", "fa", "dfa, unit error"], ["site=input"]),
        (["fa:penalty=0.1", "fa:penalty=0.2"], ["fa, penalty 0.1", "fa, penalty 0.2"], []),
        (["mine: v2", "bp"], ["mine: v2", "bp"], []),
        (["dfa:a=x_y", "dfa:b=x_y"], ["dfa:a=x_y", "dfa:b=x_y"], []),
        (["dfa:site=input"], ["dfa, site input"], []),
    ],
)
def test_short_names_leave_out_what_all_methods_share(methods, names, shared):
    assert short_names(methods) == names
    assert shared_settings(methods) == shared


def test_the_terms_of_the_summary_are_on_the_same_screen(table):
    text = " ".join(summary_lines(table))
    assert all(f"{term}: " in text for term in LEGEND)
    assert "mean of 2 seeds" in text


def test_whole_percentages_on_request(table):
    found = first_lines(verdict_lines(table, decimals=0))
    assert "+26" in found["fa"]
    assert found["fa"][2] == "62"

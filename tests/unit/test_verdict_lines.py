"""The summary of an audit: one line for each method, verdict first, then why it may claim less."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

import fake_audit
import pytest

from walkback.auditing.audit import Audit
from walkback.cli.print_audit import print_audit
from walkback.judge.audit_table import AuditTable, make_audit_table
from walkback.judge.claim import Claim
from walkback.report.verdict_lines import ASCII_MARKS, MARKS, verdict_lines


@pytest.fixture(scope="module")
def table() -> AuditTable:
    return make_audit_table([report.to_json() for report in fake_audit.reports()])


def first_lines(lines: list[str]) -> dict[str, list[str]]:
    """The words of each method's line, by method."""
    return {line.split()[1]: line.split() for line in lines if not line.startswith(" ")}


def test_each_method_has_one_line_with_its_verdict_accuracy_and_gain(table):
    found = first_lines(verdict_lines(table))
    assert list(found) == list(fake_audit.MADE)
    for row in table.rows:
        words = found[row.method]
        assert words[0] == MARKS[row.rulings[table.protocol].outcome]
        if row.cards[0]["claim"]["headline_acc"]:
            assert words[2] == ("30.5" if row.method.startswith("dfa") else "61.5")
            assert ("-5.0" if row.method.startswith("dfa") else "+26.0") in words
    assert "237×" in found["dfa:scale=unit_error,site=input"]
    assert " ".join(found["mine"][2:]).startswith("accuracy not given")


def test_reasons_follow_a_method_that_is_not_trustworthy_and_no_other(table):
    lines = verdict_lines(table)
    for row in table.rows:
        at = next(place for place, line in enumerate(lines) if line.split()[1:2] == [row.method])
        explained = lines[at + 1 : at + 2] and lines[at + 1].startswith("  Why: ")
        assert bool(explained) == (row.rulings[table.protocol].outcome != "trustworthy")
    text = " ".join(" ".join(lines).split())
    for claim in ("depth", "alignment"):
        assert table.rows[2].claims[claim].reason.split(",")[0] in text
    assert "growth (D1) fails" in text


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
    assert [line.split()[0] for line in printed[:-1] if not line.startswith(" ")] == [marks[each] for each in outcomes]
    assert printed[-1] == f"Report: {Path('out', 'audit.html')}"

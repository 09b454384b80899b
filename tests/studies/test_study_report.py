"""Findings have ids: unique within a study, stored in study.json, and optional in files written by 0.8.1."""

from __future__ import annotations

import json

import pytest

from walkback.report.study_report import Finding, StudyReport


def report(*ids: str) -> StudyReport:
    findings = tuple(Finding(finding_id, f"Claim {finding_id}.", True, "Details.") for finding_id in ids)
    return StudyReport("mini", "Title", "Question?", findings, (), ())


def test_finding_looks_up_by_id():
    made = report("bp-passes", "dfa-walked-back")
    assert made.finding("dfa-walked-back") is made.findings[1]


def test_an_unknown_id_names_the_known_ones():
    with pytest.raises(KeyError, match=r"mini.*'fa-passes'.*bp-passes, dfa-walked-back"):
        report("bp-passes", "dfa-walked-back").finding("fa-passes")


def test_a_repeated_id_is_refused():
    with pytest.raises(ValueError, match=r"2 findings.*'bp-passes'"):
        report("bp-passes", "dfa-walked-back", "bp-passes")


@pytest.mark.parametrize(
    "finding_id", ["", "BP-passes", "bp passes", "bp_passes", "-bp", "bp-", "bp--passes", "bp.passes"]
)
def test_an_id_must_be_kebab_case(finding_id):
    with pytest.raises(ValueError, match="kebab-case"):
        report(finding_id)


def test_ids_are_stored_and_read_back():
    made = report("bp-passes")
    (stored,) = json.loads(json.dumps(made.to_json()))["findings"]
    assert stored == {"id": "bp-passes", "claim": "Claim bp-passes.", "holds": True, "said": "Details."}
    assert Finding.from_json(stored) == made.findings[0]


def test_a_finding_stored_by_0_8_1_has_no_id():
    found = Finding.from_json({"claim": "DFA is walked back.", "holds": None, "said": "Verdict: D1."})
    assert (found.id, found.claim, found.holds, found.details) == ("", "DFA is walked back.", None, "Verdict: D1.")

"""CIFAR-100: whether checks agree with those on ten classes."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, holds

from walkback_papers.scale import SMOKE
from walkback_papers.studies.cifar100 import STUDY
from walkback_papers.studies.representative import REPRESENTATIVE_METHODS

EXPLODED = {"growth": 200.0, "grad": 1e-9}


def make_report(tmp_path, here=EXPLODED, ten=EXPLODED, fa=(0.500, 0.501)):
    planted_runs = PlantedRuns(tmp_path)
    for place, dfa in (("cifar100", here), ("resmlp", ten)):
        for name, accuracy, measured in (
            ("BP", (0.9, 0.901), {}),
            ("FA", fa if place == "cifar100" else (0.500, 0.501), {}),
            ("DFA", (0.3, 0.301), dfa),
            ("DFA raw", (0.7, 0.701), {}),
        ):
            planted_runs.plant(
                SMOKE.runs([REPRESENTATIVE_METHODS[name]], place=place),
                accuracy=accuracy,
                shell=[0.5, 0.501],
                measured=measured,
            )
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_published_pattern_supports_the_claims(tmp_path):
    study_report = make_report(tmp_path)
    for found in study_report.findings:
        assert found.holds is True, found
    assert "20 and 10 classes" in study_report.question
    assert "9 of 9 checks agree" in study_report.finding("same-as-ten-classes").details


def test_findings_depend_on_the_planted_numbers(tmp_path):
    study_report = make_report(tmp_path, here={"growth": 200.0}, fa=(0.7, 0.701))
    assert holds(study_report, "dfa-fails-d1") is True
    assert holds(study_report, "dfa-fails-d2") is False
    assert holds(study_report, "fa-depth-fails") is False
    assert holds(study_report, "same-as-ten-classes") is False
    assert "D3 of FA, D2 of DFA" in study_report.finding("same-as-ten-classes").details


@pytest.mark.slow
def test_smoke(smoke):
    assert holds(smoke("cifar100"), "bp-passes") is True

"""More classes: the same verdicts or not, as planted."""

from __future__ import annotations

import pytest
from planted import Bed, finding, holds

from walkback_papers.scale import SMOKE
from walkback_papers.studies.cifar100 import STUDY
from walkback_papers.studies.representative import REPRESENTATIVE_METHODS

EXPLODED = {"growth": 200.0, "grad": 1e-9}


def told(tmp_path, here=EXPLODED, ten=EXPLODED, fa=(0.500, 0.501)):
    bed = Bed(tmp_path)
    for place, dfa in (("cifar100", here), ("resmlp", ten)):
        for name, accuracy, look in (
            ("BP", (0.9, 0.901), {}),
            ("FA", fa if place == "cifar100" else (0.500, 0.501), {}),
            ("DFA", (0.3, 0.301), dfa),
            ("DFA raw", (0.7, 0.701), {}),
        ):
            bed.plant(
                SMOKE.runs([REPRESENTATIVE_METHODS[name]], place=place),
                accuracy=accuracy,
                shell=[0.5, 0.501],
                look=look,
            )
    return STUDY.report_results(bed.results(), SMOKE)


def test_published_pattern(tmp_path):
    study_report = told(tmp_path)
    for found in study_report.findings:
        assert found.holds is True, found
    assert study_report.question == "Do 20 and 10 classes get the same verdicts?"
    assert "9 of 9 checks agree" in finding(study_report, "as with ten").said


def test_findings_flip_with_the_numbers(tmp_path):
    study_report = told(tmp_path, here={"growth": 200.0}, fa=(0.7, 0.701))
    assert holds(study_report, "D1 fires") is True
    assert holds(study_report, "D2 fires") is False
    assert holds(study_report, "FA's trained blocks") is False
    assert holds(study_report, "as with ten") is False
    assert "other: D3 of FA, D2 of DFA" in finding(study_report, "as with ten").said


@pytest.mark.slow
def test_smoke(smoke):
    assert holds(smoke("cifar100"), "Backprop passes") is True

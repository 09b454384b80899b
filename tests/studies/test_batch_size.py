"""The old convention's D2 on planted norms: where it flips, and what flips with it."""

from __future__ import annotations

import pytest
from planted import Bed, cells, finding, holds, plant_all

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.batch_size import BATCH_SIZES, STUDY, below, changes, edge, norm_in, verdicts

FAR = {"accuracy": 0.6, "shell": 0.4, "look": {"grad": 4e-4}}


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    made = Bed(tmp_path_factory.mktemp("batches"))
    plant_all(made, STUDY.runs(SMOKE), {"other": FAR})
    return made


def told(bed, look):
    configs = SMOKE.runs([METHODS["DFA"]])
    bed.plant(configs, accuracy=0.6, shell=0.4, look=look)
    return STUDY.report_results(bed.results(), SMOKE), bed.results().case(configs[0])


def test_a_reference_near_the_floor_flips_between_the_papers_batches(bed):
    study_report, case = told(bed, {"grad": 5e-7, "growth": 200.0})
    assert norm_in(case, 128) == pytest.approx(5e-7)
    assert edge(case) == pytest.approx(640)
    assert [below(case, batch) for batch in BATCH_SIZES] == [batch > 640 for batch in BATCH_SIZES]
    assert changes(case) is True
    # D1 is raised: edition three turns with D2, edition four is walked back throughout.
    assert verdicts(case)["three"] == ("trustworthy",) * 6 + ("walked_back",) * 3
    assert set(verdicts(case)["four"]) == {"walked_back"}
    assert [each.holds for each in study_report.findings] == [True, True, True]
    assert finding(study_report, "papers' own batches").said.startswith("2 of ")
    assert cells(study_report, "batches", "D2 by batch")["DFA"] == "3 of 9"
    assert cells(study_report, "batches", "D2 here")["DFA"] == "PASS"


def test_far_from_the_floor_nothing_flips(bed):
    study_report, case = told(bed, {"grad": 4e-4, "growth": 200.0})
    assert changes(case) is False
    assert [each.holds for each in study_report.findings] == [False, False, False]


def test_a_flip_that_the_papers_did_not_meet(bed):
    study_report, case = told(bed, {"grad": 2e-6})
    assert edge(case) == pytest.approx(2560)
    assert [each.holds for each in study_report.findings] == [True, False, True]
    assert set(verdicts(case)["three"]) == {"trustworthy"}  # D2 alone decides nothing there.
    assert cells(study_report, "batches", "verdicts, four")["DFA"] == "trustworthy → walked back"


def test_at_128_both_conventions_agree(bed):
    for grad in (9e-8, 1.1e-7):
        _, case = told(bed, {"grad": grad})
        assert below(case, 128) is case.report.flags["D2"].truth


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("batch-size")
    assert holds(study_report, "D2 of one network flips") is True
    assert cells(study_report, "batches", "D2 by batch")["BP"] == "0 of 9"

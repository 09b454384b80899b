"""The measuring batch: at which batch size D2 flips by the old convention, and which verdicts flip with it."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, cells, holds, plant_all

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.batch_size import BATCH_SIZES, STUDY, below, flip_batch, flips, norm_in, verdicts

FAR = {"accuracy": 0.6, "shell": 0.4, "measured": {"grad": 4e-4}}


@pytest.fixture(scope="module")
def planted_runs(tmp_path_factory):
    made = PlantedRuns(tmp_path_factory.mktemp("batches"))
    plant_all(made, STUDY.runs(SMOKE), {"other": FAR})
    return made


def make_report(planted_runs, measured):
    configs = SMOKE.runs([METHODS["DFA"]])
    planted_runs.plant(configs, accuracy=0.6, shell=0.4, measured=measured)
    return STUDY.report_results(planted_runs.results(), SMOKE), planted_runs.results().case(configs[0])


def test_a_reference_near_the_floor_flips_between_the_papers_batches(planted_runs):
    study_report, case = make_report(planted_runs, {"grad": 5e-7, "growth": 200.0})
    assert norm_in(case, 128) == pytest.approx(5e-7)
    assert flip_batch(case) == pytest.approx(640)
    assert [below(case, batch) for batch in BATCH_SIZES] == [batch > 640 for batch in BATCH_SIZES]
    assert flips(case) is True
    # D1 fails: the verdict of edition three changes with D2, edition four walks back at every batch.
    assert verdicts(case)["three"] == ("trustworthy",) * 6 + ("walked_back",) * 3
    assert set(verdicts(case)["four"]) == {"walked_back"}
    assert [each.holds for each in study_report.findings] == [True, True, True]
    assert study_report.finding("d2-flips-between-papers-batches").details.startswith("2 of ")
    assert cells(study_report, "batches", "D2 by batch")["DFA"] == "3 of 9"
    assert cells(study_report, "batches", "D2 @128")["DFA"] == "passes"


def test_far_from_the_floor_nothing_flips(planted_runs):
    study_report, case = make_report(planted_runs, {"grad": 4e-4, "growth": 200.0})
    assert flips(case) is False
    assert [each.holds for each in study_report.findings] == [False, False, False]


def test_a_flip_outside_the_papers_batches(planted_runs):
    study_report, case = make_report(planted_runs, {"grad": 2e-6})
    assert flip_batch(case) == pytest.approx(2560)
    assert [each.holds for each in study_report.findings] == [True, False, True]
    assert set(verdicts(case)["three"]) == {"trustworthy"}  # D2 alone decides nothing there.
    assert cells(study_report, "batches", "verdicts, four")["DFA"] == "trustworthy → walked back"


def test_at_128_both_conventions_agree(planted_runs):
    for grad in (9e-8, 1.1e-7):
        _, case = make_report(planted_runs, {"grad": grad})
        assert below(case, 128) is case.report.flags["D2"].truth


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("batch-size")
    assert holds(study_report, "d2-flips-with-batch") is True
    assert cells(study_report, "batches", "D2 by batch")["BP"] == "0 of 9"

"""Verdicts under both nulls come from the same measurements, and flips are found."""

import shutil
from pathlib import Path

import pytest
from planted import Bed, cells, finding, holds

from walkback.judge.options import JudgeOptions
from walkback_papers.results import Results
from walkback_papers.scale import METHODS, RAW, SMOKE
from walkback_papers.studies.null_choice import STUDY, under

LOOK = {"cosines": 0.1, "groups": 2}


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Path:
    """Every method at 0.45 over its own shell at 0.30, under a bp shell at 0.42; backprop at 0.9."""
    folder = tmp_path_factory.mktemp("planted")
    bed = Bed(folder)
    for method in (*METHODS.values(), *RAW):
        if method != "bp":
            configs = SMOKE.runs([method])
            bed.plant(configs, accuracy=[0.45, 0.451], shell=[0.30, 0.301], bp_shell=[0.42, 0.421], look=LOOK)
    bed.plant(SMOKE.runs(["bp"]), accuracy=[0.9, 0.901], look={"cosines": 1.0, "groups": 2})
    return folder


def told(planted: Path, tmp_path: Path, **shells):
    shutil.copytree(planted, tmp_path, dirs_exist_ok=True)
    bed = Bed(tmp_path)
    if shells:
        bed.plant(SMOKE.runs([METHODS["FA"]]), accuracy=[0.45, 0.451], look=LOOK, **shells)
    return STUDY.report_results(bed.results(), SMOKE)


def test_where_both_nulls_are_beaten_nothing_flips(planted, tmp_path):
    study_report = told(planted, tmp_path)
    assert holds(study_report, "changes verdicts") is False
    assert holds(study_report, "harder null") is True
    assert holds(study_report, "passes under both") is True
    assert set(cells(study_report, "verdicts", "flips").values()) == {"none"}
    assert cells(study_report, "margins", "over own shell")["FA"] == "+15.0 [+15.0, +15.0]"
    assert cells(study_report, "margins", "over bp shell")["FA"] == "+3.0 [+3.0, +3.0]"


def test_a_null_above_the_method_flips_its_verdict(planted, tmp_path):
    study_report = told(planted, tmp_path, shell=[0.445, 0.446], bp_shell=[0.42, 0.421])
    assert holds(study_report, "changes verdicts") is True
    assert (
        "FA (three, 2 of 2 seeds) from walked back (D3) to trustworthy"
        in finding(study_report, "changes verdicts").said
    )
    assert {name for name, word in cells(study_report, "verdicts", "flips").items() if word != "none"} == {"FA"}
    assert holds(study_report, "harder null") is False


def test_intervals_that_hold_zero_leave_the_harder_null_open(planted, tmp_path):
    assert holds(told(planted, tmp_path, shell=[0.30, 0.44], bp_shell=[0.42, 0.421]), "harder null") is None


def test_another_null_gives_what_judging_by_it_gives(planted):
    """Replacing the null in the evidence is the same as reading the folder again with the other null."""
    config = SMOKE.runs([METHODS["DFA"]])[0]
    other = Results(planted / "runs", JudgeOptions(null="bp_shell")).case(config).report
    ours = under(Results(planted / "runs").case(config).report, "bp_shell")
    assert ours.flags == other.flags
    assert ours.verdicts == other.verdicts
    assert ours.margin == other.margin
    assert ours.margin.mean == pytest.approx(3.0)


@pytest.mark.slow
def test_at_smoke_scale_backprop_passes_under_both(smoke):
    assert holds(smoke("null-choice"), "passes under both") is True

"""The choice of null: verdicts under both frozen baselines from the same measurements, and their flips."""

import shutil
from pathlib import Path

import pytest
from planted import PlantedRuns, cells, holds

from walkback.judge.options import JudgeOptions
from walkback_papers.results import Results
from walkback_papers.scale import METHODS, RAW, SMOKE
from walkback_papers.studies.null_choice import STUDY, judge_against

MEASURED = {"cosines": 0.1, "groups": 2}


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Path:
    """Runs with accuracies of 0.45 for every method, 0.30 and 0.42 for its frozen baselines, 0.9 for backprop."""
    folder = tmp_path_factory.mktemp("planted")
    planted_runs = PlantedRuns(folder)
    for method in (*METHODS.values(), *RAW):
        if method != "bp":
            configs = SMOKE.runs([method])
            planted_runs.plant(
                configs, accuracy=[0.45, 0.451], shell=[0.30, 0.301], bp_shell=[0.42, 0.421], measured=MEASURED
            )
    planted_runs.plant(SMOKE.runs(["bp"]), accuracy=[0.9, 0.901], measured={"cosines": 1.0, "groups": 2})
    return folder


def make_report(planted: Path, tmp_path: Path, **shells):
    shutil.copytree(planted, tmp_path, dirs_exist_ok=True)
    planted_runs = PlantedRuns(tmp_path)
    if shells:
        planted_runs.plant(SMOKE.runs([METHODS["FA"]]), accuracy=[0.45, 0.451], measured=MEASURED, **shells)
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_nothing_flips_where_both_baselines_are_beaten(planted, tmp_path):
    study_report = make_report(planted, tmp_path)
    assert holds(study_report, "baseline-changes-verdicts") is False
    assert holds(study_report, "bp-baseline-harder") is True
    assert holds(study_report, "bp-passes-under-both") is True
    assert set(cells(study_report, "verdicts", "flips").values()) == {"none"}
    assert cells(study_report, "margins", "over frozen, pp")["FA"] == "+15.0 [+15.0, +15.0]"
    assert cells(study_report, "margins", "over bp frozen, pp")["FA"] == "+3.0 [+3.0, +3.0]"


def test_a_baseline_above_the_method_flips_its_verdict(planted, tmp_path):
    study_report = make_report(planted, tmp_path, shell=[0.445, 0.446], bp_shell=[0.42, 0.421])
    assert holds(study_report, "baseline-changes-verdicts") is True
    assert (
        "FA (three, 2 of 2 seeds) from walked back (D3) to trustworthy"
        in study_report.finding("baseline-changes-verdicts").details
    )
    assert {name for name, word in cells(study_report, "verdicts", "flips").items() if word != "none"} == {"FA"}
    assert holds(study_report, "bp-baseline-harder") is False


def test_intervals_that_include_zero_leave_the_harder_baseline_open(planted, tmp_path):
    assert (
        holds(make_report(planted, tmp_path, shell=[0.30, 0.44], bp_shell=[0.42, 0.421]), "bp-baseline-harder") is None
    )


def test_judge_against_equals_judging_with_that_baseline(planted):
    """Replacing the null in the evidence gives the same as reading the folder again with the other null."""
    config = SMOKE.runs([METHODS["DFA"]])[0]
    other = Results(planted / "runs", JudgeOptions(null="bp_shell")).case(config).report
    ours = judge_against(Results(planted / "runs").case(config).report, "bp_shell")
    assert ours.flags == other.flags
    assert ours.verdicts == other.verdicts
    assert ours.margin == other.margin
    assert ours.margin.mean == pytest.approx(3.0)


@pytest.mark.slow
def test_at_smoke_scale_backprop_passes_under_both(smoke):
    assert holds(smoke("null-choice"), "bp-passes-under-both") is True

"""Threshold sensitivity: gaps, flips and groups of planted audits."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, cells, holds, plant_all

from walkback.report.cells import tidy
from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.threshold_sensitivity import STUDY, group_of


def case(accuracy, growth, grad, shell=0.349):
    return {"accuracy": accuracy, "shell": shell, "measured": {"growth": growth, "grad": grad, "groups": 2}}


AUDIT = {
    "BP": case(0.615, 1.3, 4e-4),
    "EP": case(0.75, 2.0, 1.3e-4),
    "DFA": case(0.306, 700.0, 4.2e-9),
    "State Bridge": case(0.205, 12000.0, 1e-9),
    "Credit Bridge": case(0.289, 900.0, 1e-9),
    "other": case(0.41, 8.0, 1e-5),
}


@pytest.fixture(scope="module")
def planted_runs(tmp_path_factory):
    made = PlantedRuns(tmp_path_factory.mktemp("audit"))
    plant_all(made, STUDY.runs(SMOKE), AUDIT)
    return made


def test_an_audit_with_wide_gaps(planted_runs):
    study_report = STUDY.report_results(planted_runs.results(), SMOKE)
    assert [each.id for each in study_report.findings if each.holds is not True] == []
    gaps = cells(study_report, "gaps", "gap")
    assert gaps["growth (D1)"] == f"{700 / 2:.3g}x"
    assert gaps["floor (D2)"] == tidy(f"{1.3e-4 / 4.2e-9:.3g}x")
    assert gaps["margin (D3), pp"] == f"{61.5 - 30.6:+.1f} pp"
    # FA, DFA raw and EP short are 6.1 pp above their frozen baseline: only they change, by D3, in both editions.
    assert cells(study_report, "gaps", "flips, three")["margin (D3), pp"] == "6 of 16"
    assert cells(study_report, "gaps", "flips, four")["margin (D3), pp"] == "6 of 16"
    assert cells(study_report, "gaps", "flips, four")["floor (D2)"] == "0 of 16"
    assert cells(study_report, "flips", "margin (D3), pp")["FA s1"] == "+6.1"
    assert cells(study_report, "flips", "margin (D3), pp")["BP s1"] == "–"


@pytest.mark.parametrize(
    ("method", "given", "finding_id"),
    [
        ("DFA", case(0.306, 1.9, 4.2e-9), "d1-separates"),
        pytest.param("EP", case(0.75, 2.0, 4e-9), "d2-separates", marks=pytest.mark.slow),
        pytest.param("EP", case(0.75, 40.0, 1.3e-4), "d1-robust", marks=pytest.mark.slow),
        # Its verdict is decided by D3 as well.
        ("State Bridge", case(0.205, 12000.0, 2e-8), "d2-robust"),
        pytest.param("EP", case(0.75, 2.0, 5e-7), "d2-robust", marks=pytest.mark.slow),
    ],
)
def test_a_case_near_a_threshold_refutes_its_robustness(planted_runs, method, given, finding_id):
    planted_runs.plant(SMOKE.runs([METHODS[method]]), **given)
    study_report = STUDY.report_results(planted_runs.results(), SMOKE)
    planted_runs.plant(SMOKE.runs([METHODS[method]]), **AUDIT[method])
    assert holds(study_report, finding_id) is False


@pytest.mark.slow
def test_margins_far_from_the_line_are_robust(tmp_path):
    planted_runs = PlantedRuns(tmp_path)
    plant_all(planted_runs, STUDY.runs(SMOKE), AUDIT | {"other": case(0.75, 8.0, 1e-5)})
    assert holds(STUDY.report_results(planted_runs.results(), SMOKE), "d3-not-robust") is False


def test_groups_are_those_of_the_papers():
    assert [group_of(f"{name} s1") for name in ("BP", "EP", "EP short", "FA", "DFA raw", "DFA", "Credit Bridge")] == [
        "healthy", "healthy", None, None, None, "degenerate", "degenerate",
    ]  # fmt: skip


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("threshold-sensitivity")
    assert holds(study_report, "d3-not-robust") is True

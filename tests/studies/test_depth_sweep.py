"""The depth sweep: which check fails at which depth, with planted numbers."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, holds

from walkback_papers.scale import METHODS, PAPER, SMOKE
from walkback_papers.studies.depth_sweep import DEPTH_METHODS, DEPTH_SIZES, STUDY

EXPLODED = {"growth": 200.0, "grad": 1e-9}


def make_report(tmp_path, dfa=None, fa=None, bp=None, fa_accuracy=(0.500, 0.501)):
    """`dfa`, `fa` and `bp` give measurements by depth; at other depths DFA is exploded and the others are healthy."""
    planted_runs = PlantedRuns(tmp_path)
    for depth in DEPTH_SIZES["smoke"][1]:
        for method, accuracy, usual, given in (
            ("BP", (0.9, 0.901), {}, bp),
            ("FA", fa_accuracy, {}, fa),
            ("DFA", (0.3, 0.301), EXPLODED, dfa),
        ):
            runs = SMOKE.runs([METHODS[method]], arch=f"resmlp:d=32,depth={depth}")
            planted_runs.plant(runs, accuracy=accuracy, shell=[0.5, 0.501], measured=(given or {}).get(depth, usual))
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_published_pattern_supports_the_claims(tmp_path):
    study_report = make_report(tmp_path)
    for found in study_report.findings:
        assert found.holds is True, found
    assert [row[1].text for row in study_report.tables[0].rows] == ["2", "4", "6"] * 3


def test_one_depth_is_enough_to_refute_a_claim(tmp_path):
    study_report = make_report(tmp_path, dfa={2: {"growth": 200.0}}, fa={6: EXPLODED}, bp={4: EXPLODED})
    assert holds(study_report, "dfa-fails-d1") is True
    assert holds(study_report, "dfa-fails-d2") is False
    assert "L = 2: no" in study_report.finding("dfa-fails-d2").details
    assert holds(study_report, "fa-not-mode-1") is False
    assert holds(study_report, "bp-passes") is False


@pytest.mark.parametrize(("accuracy", "answer"), [((0.7, 0.701), False), ((0.4, 0.7), None)])
def test_depth_utility_is_decided_by_the_interval(tmp_path, accuracy, answer):
    assert holds(make_report(tmp_path, fa_accuracy=accuracy), "fa-depth-fails") is answer


def test_depths_at_paper_scale():
    assert len(STUDY.runs(PAPER)) == 4 * len(DEPTH_METHODS) * 3
    assert {str(config.arch) for config in STUDY.runs(PAPER)} == {
        f"resmlp:d=512,depth={depth}" for depth in (2, 4, 8, 12)
    }


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("depth-sweep")
    assert holds(study_report, "bp-passes") is True
    assert holds(study_report, "dfa-fails-d1") is True

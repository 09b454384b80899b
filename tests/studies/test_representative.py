"""The representative setting: verdicts, and whether the other network's frozen baseline matches, as planted."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, cells, holds

from walkback_papers.scale import SMOKE
from walkback_papers.studies.representative import REPRESENTATIVE_METHODS, STUDY
from walkback_papers.tables import is_within

EXPLODED = {"growth": 200.0, "grad": 1e-9, "cosines": [0.4, 0.0, 0.0]}


def make_report(tmp_path, other_frozen=0.5, fa=(0.50, 0.501), dfa_look=EXPLODED, bp=0.9):
    """The report of methods on the wide network, with their frozen baselines there and on the other network."""
    planted_runs = PlantedRuns(tmp_path)
    planted_runs.plant(SMOKE.runs(["bp"], place="wide"), accuracy=bp, shell=[0.50, 0.501], measured={"cosines": 1.0})
    planted_runs.plant(
        SMOKE.runs([REPRESENTATIVE_METHODS["FA"]], place="wide"),
        accuracy=fa,
        shell=[0.50, 0.501],
        measured={"cosines": 0.3},
    )
    for name in ("DFA", "DFA raw"):
        runs = SMOKE.runs([REPRESENTATIVE_METHODS[name]], place="wide")
        planted_runs.plant(runs, accuracy=[0.3, 0.301], shell=[0.50, 0.501], measured=dfa_look)
    for text in REPRESENTATIVE_METHODS.values():
        planted_runs.plant(SMOKE.runs([text]), shell=[other_frozen, other_frozen + 0.001])
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_published_pattern_supports_the_claims(tmp_path):
    study_report = make_report(tmp_path)
    for finding_id in (
        "bp-passes",
        "fa-depth-fails",
        "fa-not-mode-1",
        "dfa-walked-back",
        "dfa-fails-d1",
        "dfa-fails-d2",
    ):
        assert holds(study_report, finding_id) is True, finding_id
    assert holds(study_report, "other-baseline-matches") is True
    assert cells(study_report, "baselines", "D3")["BP"] == "passes with either"
    assert cells(study_report, "baselines", "own − other, pp")["FA"] == "+0.0 [+0.0, +0.0]"


def test_findings_depend_on_the_planted_numbers(tmp_path):
    study_report = make_report(tmp_path, fa=(0.60, 0.601), dfa_look={"cosines": 0.3}, bp=0.505)
    assert holds(study_report, "bp-passes") is False
    assert holds(study_report, "fa-depth-fails") is False
    assert holds(study_report, "dfa-fails-d1") is False
    assert holds(study_report, "dfa-fails-d2") is False
    assert holds(study_report, "dfa-walked-back") is True  # By its accuracy alone.


def test_an_unmatched_baseline_and_the_check_it_would_flip(tmp_path):
    study_report = make_report(tmp_path, other_frozen=0.2)
    assert holds(study_report, "other-baseline-matches") is False
    assert cells(study_report, "baselines", "own − other, pp")["DFA"] == "+30.0 [+30.0, +30.0]"
    assert cells(study_report, "baselines", "D3")["DFA"] == "fails, other's: passes"


def test_a_wide_interval_leaves_the_claim_open(tmp_path):
    assert holds(make_report(tmp_path, fa=(0.40, 0.70)), "fa-depth-fails") is None


@pytest.mark.parametrize(
    ("interval", "answer"),
    [((-1, 1), True), ((3, 5), False), ((-5, -2), False), ((-3, 1), None), ((1, 3), None), (None, None)],
)
def test_is_within_checks_both_ends(interval, answer):
    assert is_within(interval, 2.0) is answer


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("representative")
    assert holds(study_report, "bp-passes") is True
    assert holds(study_report, "dfa-walked-back") is True
    assert holds(study_report, "dfa-fails-d1") is True

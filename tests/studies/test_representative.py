"""The representative setting: verdicts, and whether a frozen baseline is matched, follow from the planted numbers."""

from __future__ import annotations

import pytest
from planted import Bed, cells, holds

from walkback_papers.scale import SMOKE
from walkback_papers.studies.representative import REPRESENTATIVE_METHODS, STUDY
from walkback_papers.tables import is_within

EXPLODED = {"growth": 200.0, "grad": 1e-9, "cosines": [0.4, 0.0, 0.0]}


def told(tmp_path, others_shell=0.5, fa=(0.50, 0.501), dfa_look=EXPLODED, bp=0.9):
    """Methods at the wide network, and their shells there and at the other one."""
    bed = Bed(tmp_path)
    bed.plant(SMOKE.runs(["bp"], place="wide"), accuracy=bp, shell=[0.50, 0.501], look={"cosines": 1.0})
    bed.plant(
        SMOKE.runs([REPRESENTATIVE_METHODS["FA"]], place="wide"),
        accuracy=fa,
        shell=[0.50, 0.501],
        look={"cosines": 0.3},
    )
    for name in ("DFA", "DFA raw"):
        runs = SMOKE.runs([REPRESENTATIVE_METHODS[name]], place="wide")
        bed.plant(runs, accuracy=[0.3, 0.301], shell=[0.50, 0.501], look=dfa_look)
    for text in REPRESENTATIVE_METHODS.values():
        bed.plant(SMOKE.runs([text]), shell=[others_shell, others_shell + 0.001])
    return STUDY.report_results(bed.results(), SMOKE)


def test_published_pattern(tmp_path):
    study_report = told(tmp_path)
    for words in (
        "Backprop passes",
        "FA's trained blocks",
        "FA does not trigger",
        "DFA is walked",
        "D1 fires",
        "D2 fires",
    ):
        assert holds(study_report, words) is True, words
    assert holds(study_report, "may stand for") is True
    assert cells(study_report, "baselines", "flag")["BP"] == "D3 clear with either"
    assert cells(study_report, "baselines", "own − other")["FA"] == "+0.0 [+0.0, +0.0]"


def test_findings_flip_with_the_numbers(tmp_path):
    study_report = told(tmp_path, fa=(0.60, 0.601), dfa_look={"cosines": 0.3}, bp=0.505)
    assert holds(study_report, "Backprop passes") is False
    assert holds(study_report, "FA's trained blocks") is False
    assert holds(study_report, "D1 fires") is False
    assert holds(study_report, "D2 fires") is False
    assert holds(study_report, "DFA is walked") is True  # by its accuracy alone


def test_an_unmatched_baseline_is_seen_and_what_it_would_flip(tmp_path):
    study_report = told(tmp_path, others_shell=0.2)
    assert holds(study_report, "may stand for") is False
    assert cells(study_report, "baselines", "own − other")["DFA"] == "+30.0 [+30.0, +30.0]"
    assert cells(study_report, "baselines", "flag")["DFA"] == "D3 raised, other's: clear"


def test_a_wide_interval_decides_nothing(tmp_path):
    assert holds(told(tmp_path, fa=(0.40, 0.70)), "FA's trained blocks") is None


@pytest.mark.parametrize(
    ("interval", "answer"),
    [((-1, 1), True), ((3, 5), False), ((-5, -2), False), ((-3, 1), None), ((1, 3), None), (None, None)],
)
def test_within_asks_both_ends(interval, answer):
    assert is_within(interval, 2.0) is answer


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("representative")
    assert holds(study_report, "Backprop passes") is True
    assert holds(study_report, "DFA is walked") is True
    assert holds(study_report, "D1 fires") is True

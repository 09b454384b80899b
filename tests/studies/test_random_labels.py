"""Random labels: whether growth, collapse and alignment need the task, as planted."""

from __future__ import annotations

import pytest
from planted import Bed, cells, holds, reading

from walkback_papers.scale import METHODS, PAPER, SMOKE
from walkback_papers.studies.random_labels import RANDOM_LABEL_METHODS, STUDY

RANDOM = f"{SMOKE.places['resmlp'].data},shuffled=true"
EXPLODED = {"growth": 200.0, "grad": 1e-9, "cosines": [0.4, 0.0, 0.0, 0.0, 0.0]}
ALIGNED = {"cosines": [0.3, 0.3, 0.3, 0.3, 0.3]}
NOTHING = {"cosines": [0.0] * 5}


def told(tmp_path, dfa=EXPLODED, fa=ALIGNED, true_dfa=EXPLODED, accuracy=0.1):
    """What is measured of DFA and FA on random labels."""
    bed = Bed(tmp_path)
    log = [reading(1, train_acc=0.1), reading(2, train_acc=0.9)]
    for method in RANDOM_LABEL_METHODS:
        is_dfa, is_fa = method == METHODS["DFA"], method == METHODS["FA"]
        on_random = dfa if is_dfa else fa if is_fa else ALIGNED
        bed.plant(SMOKE.runs([method]), accuracy=0.9, look=true_dfa if is_dfa else ALIGNED, log=log)
        bed.plant(SMOKE.runs([method], data=RANDOM), accuracy=accuracy, look=on_random, log=log)
    return STUDY.report_results(bed.results(), SMOKE)


def test_neither_needs_the_task(tmp_path):
    study_report = told(tmp_path)
    for found in study_report.findings:
        assert found.holds is True, found
    assert cells(study_report, "labels", "train acc.")["BP"] == "0.900 ± 0.000"


def test_both_need_it(tmp_path):
    study_report = told(tmp_path, dfa=NOTHING, fa=NOTHING)
    for words in ("grow on random", "collapses on random", "DFA's layer 0", "FA's layer 0", "deep alignment"):
        found = [each for each in study_report.findings if words in each.claim and "raw" not in each.claim]
        assert [each.holds for each in found] == [False] * len(found), words
        assert found, words


def test_what_is_not_there_with_the_task_is_not_asked_of_random_labels(tmp_path):
    study_report = told(tmp_path, true_dfa=NOTHING)
    assert holds(study_report, "grow on random") is None
    assert holds(study_report, "collapses on random") is None


def test_a_leak_of_the_labels_would_be_seen(tmp_path):
    assert holds(told(tmp_path, accuracy=0.25), "teach nothing") is False


def test_runs_ask_for_random_labels_on_both_scales():
    for scale, data in ((SMOKE, "prototypes"), (PAPER, "cifar10")):
        shuffled = [config for config in STUDY.runs(scale) if config.data.settings.get("shuffled")]
        assert len(shuffled) == len(STUDY.runs(scale)) // 2
        assert {config.data.name for config in shuffled} == {data}


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("random-labels")
    assert holds(study_report, "teach nothing") is True
    assert holds(study_report, "DFA's layer 0") is True

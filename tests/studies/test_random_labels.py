"""Random labels: whether growth, collapse and alignment need the task, with planted numbers."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, cells, holds, log_row

from walkback_papers.scale import METHODS, PAPER, SMOKE
from walkback_papers.studies.random_labels import RANDOM_LABEL_METHODS, STUDY

RANDOM = f"{SMOKE.places['resmlp'].data},shuffled=true"
EXPLODED = {"growth": 200.0, "grad": 1e-9, "cosines": [0.4, 0.0, 0.0, 0.0, 0.0]}
ALIGNED = {"cosines": [0.3, 0.3, 0.3, 0.3, 0.3]}
NOTHING = {"cosines": [0.0] * 5}


def make_report(tmp_path, dfa=EXPLODED, fa=ALIGNED, true_dfa=EXPLODED, accuracy=0.1):
    """The report with these measurements of DFA and FA on random labels, and of DFA on true ones."""
    planted_runs = PlantedRuns(tmp_path)
    log = [log_row(1, train_acc=0.1), log_row(2, train_acc=0.9)]
    for method in RANDOM_LABEL_METHODS:
        is_dfa, is_fa = method == METHODS["DFA"], method == METHODS["FA"]
        on_random = dfa if is_dfa else fa if is_fa else ALIGNED
        planted_runs.plant(SMOKE.runs([method]), accuracy=0.9, measured=true_dfa if is_dfa else ALIGNED, log=log)
        planted_runs.plant(SMOKE.runs([method], data=RANDOM), accuracy=accuracy, measured=on_random, log=log)
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_growth_and_alignment_that_do_not_need_the_task(tmp_path):
    study_report = make_report(tmp_path)
    for found in study_report.findings:
        assert found.holds is True, found
    assert cells(study_report, "labels", "train acc.")["BP"] == "0.900 ± 0.000"


def test_growth_and_alignment_that_need_the_task(tmp_path):
    study_report = make_report(tmp_path, dfa=NOTHING, fa=NOTHING)
    refuted = {each.id for each in study_report.findings if each.holds is False}
    assert refuted == {"dfa-grows", "dfa-collapses", "dfa-layer-0-aligned", "fa-layer-0-aligned", "fa-deep-aligned"}


def test_claims_are_open_where_nothing_happens_with_true_labels(tmp_path):
    study_report = make_report(tmp_path, true_dfa=NOTHING)
    assert holds(study_report, "dfa-grows") is None
    assert holds(study_report, "dfa-collapses") is None


def test_test_accuracy_above_chance_refutes_the_claim(tmp_path):
    assert holds(make_report(tmp_path, accuracy=0.25), "no-test-accuracy") is False


def test_half_of_the_runs_have_random_labels():
    for scale, data in ((SMOKE, "prototypes"), (PAPER, "cifar10")):
        shuffled = [config for config in STUDY.runs(scale) if config.data.settings.get("shuffled")]
        assert len(shuffled) == len(STUDY.runs(scale)) // 2
        assert {config.data.name for config in shuffled} == {data}


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("random-labels")
    assert holds(study_report, "no-test-accuracy") is True
    assert holds(study_report, "dfa-layer-0-aligned") is True

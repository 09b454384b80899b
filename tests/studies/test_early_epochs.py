"""The first epochs: near zero before the collapse, after it, or not at all, as planted."""

from __future__ import annotations

import pytest
from planted import Bed, cells, finding, holds, reading

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.early_epochs import EARLY_EPOCHS, LISTED_EPOCHS, STUDY

FIRST_ONLY = [0.4, 0.02, 0.01, -0.01, 0.0]
LOG = [reading(epoch) for epoch in range(1, 13)]


def told(tmp_path, cosines=FIRST_ONLY, grads=(1e-6, 5e-7, 2e-7, 1e-8, 1e-9), end=None, rho=0.0, gradient=0.997, **look):
    """`grads` are |g_L| after epochs 1 to 5."""
    bed = Bed(tmp_path)
    bed.plant(SMOKE.runs(["bp"]), functional={"rho_gradient": gradient}, log=LOG, look={"cosines": 1.0})
    close = {epoch: {"cosines": cosines, "grad": grad, **look} for epoch, grad in zip(EARLY_EPOCHS, grads, strict=True)}
    last = {"cosines": end or cosines, "grad": 1e-9}
    bed.plant(SMOKE.runs(LISTED_EPOCHS), close=close, look=last, functional={"rho": rho}, log=LOG)
    return STUDY.report_results(bed.results(), SMOKE)


def test_published_pattern(tmp_path):
    study_report = told(tmp_path)
    for found in study_report.findings:
        assert found.holds is True, found
    assert "after epochs 1, 2, 3" in finding(study_report, "while the reference").said
    table = [[cell.text for cell in row] for row in study_report.tables[0].rows]
    assert table[0][:5] == ["DFA", "1", "+0.005 ± 0.000", "-0.01 to +0.02", "+0.400 ± 0.000"]
    assert table[5][1] == "12 (end)"


def test_a_deep_alignment_is_seen(tmp_path):
    study_report = told(tmp_path, cosines=[0.4, 0.3, 0.3, 0.3, 0.3], rho=0.3)
    assert holds(study_report, "near zero (under") is False
    assert holds(study_report, "while the reference") is False
    assert holds(study_report, "stays near zero") is False
    assert holds(study_report, "finite steps either") is False
    assert holds(study_report, "Layer 0") is True


def test_one_that_comes_later_too(tmp_path):
    study_report = told(tmp_path, end=[0.4, 0.3, 0.3, 0.3, 0.3])
    assert holds(study_report, "near zero (under") is True
    assert holds(study_report, "stays near zero") is False


def test_a_reference_collapsed_from_the_start_decides_nothing(tmp_path):
    study_report = told(tmp_path, grads=(1e-9,) * 5)
    assert holds(study_report, "near zero (under") is True
    assert holds(study_report, "while the reference") is None
    assert "none of these epochs" in finding(study_report, "while the reference").said


def test_noise_is_no_reference(tmp_path):
    study_report = told(tmp_path, replay_cos=0.1)
    assert holds(study_report, "near zero (under") is None
    assert (
        cells(study_report, "epochs", "reference")["DFA"] == "valid"
    )  # the last row: the end was planted without noise
    assert study_report.tables[0].rows[0][2].text == "INVALID"


def test_layer_0_and_the_controls_flip(tmp_path):
    assert holds(told(tmp_path, cosines=[0.0] * 5), "Layer 0") is False
    assert holds(told(tmp_path, gradient=0.5), "true gradient predicts") is False


def test_it_is_measured_while_it_trains(tmp_path):
    looked = STUDY.epochs_to_measure(SMOKE)
    assert {epoch for _, epochs in looked for epoch in epochs} == {1, 2, 3, 4, 5}
    assert {str(config.method) for config, _ in looked} == {METHODS["DFA"], "dfa:site=input"}


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("early-epochs")
    assert holds(study_report, "Layer 0") is True
    assert holds(study_report, "true gradient predicts") is True

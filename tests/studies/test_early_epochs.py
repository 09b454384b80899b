"""The first epochs: a deep cosine near zero before the collapse, after it, or never, with planted numbers."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, cells, holds, log_row

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.early_epochs import EARLY_EPOCHS, EARLY_METHODS, STUDY

FIRST_ONLY = [0.4, 0.02, 0.01, -0.01, 0.0]
LOG = [log_row(epoch) for epoch in range(1, 13)]


def make_report(
    tmp_path, cosines=FIRST_ONLY, grads=(1e-6, 5e-7, 2e-7, 1e-8, 1e-9), end=None, rho=0.0, gradient=0.997, **measured
):
    """The report; `grads` are ‖g_L‖ after epochs 1 to 5."""
    planted_runs = PlantedRuns(tmp_path)
    planted_runs.plant(SMOKE.runs(["bp"]), functional={"rho_gradient": gradient}, log=LOG, measured={"cosines": 1.0})
    measured_after = {
        epoch: {"cosines": cosines, "grad": grad, **measured} for epoch, grad in zip(EARLY_EPOCHS, grads, strict=True)
    }
    last = {"cosines": end or cosines, "grad": 1e-9}
    planted_runs.plant(
        SMOKE.runs(EARLY_METHODS), measured_after=measured_after, measured=last, functional={"rho": rho}, log=LOG
    )
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_published_pattern_supports_the_claims(tmp_path):
    study_report = make_report(tmp_path)
    for found in study_report.findings:
        assert found.holds is True, found
    assert "after epochs 1, 2, 3" in study_report.finding("near-zero-while-valid").details
    table = [[cell.text for cell in row] for row in study_report.tables[0].rows]
    assert table[0][:5] == ["DFA", "1", "+0.005 ± 0.000", "-0.01 to +0.02", "+0.400 ± 0.000"]
    assert table[5][1] == "12 (end)"


def test_deep_alignment_refutes_the_claims(tmp_path):
    study_report = make_report(tmp_path, cosines=[0.4, 0.3, 0.3, 0.3, 0.3], rho=0.3)
    assert holds(study_report, "near-zero-at-epoch-1") is False
    assert holds(study_report, "near-zero-while-valid") is False
    assert holds(study_report, "near-zero-to-the-end") is False
    assert holds(study_report, "rho-near-zero") is False
    assert holds(study_report, "layer-0-aligned") is True


def test_deep_alignment_at_the_end_only(tmp_path):
    study_report = make_report(tmp_path, end=[0.4, 0.3, 0.3, 0.3, 0.3])
    assert holds(study_report, "near-zero-at-epoch-1") is True
    assert holds(study_report, "near-zero-to-the-end") is False


def test_a_reference_collapsed_from_the_start_leaves_the_claim_open(tmp_path):
    study_report = make_report(tmp_path, grads=(1e-9,) * 5)
    assert holds(study_report, "near-zero-at-epoch-1") is True
    assert holds(study_report, "near-zero-while-valid") is None
    assert "none of these epochs" in study_report.finding("near-zero-while-valid").details


def test_a_noisy_reference_is_not_valid(tmp_path):
    study_report = make_report(tmp_path, replay_cos=0.1)
    assert holds(study_report, "near-zero-at-epoch-1") is None
    assert (
        cells(study_report, "epochs", "reference")["DFA"] == "valid"
    )  # The last row: the end was planted without noise.
    assert study_report.tables[0].rows[0][2].text == "INVALID"


def test_layer_0_and_the_controls_can_fail(tmp_path):
    assert holds(make_report(tmp_path, cosines=[0.0] * 5), "layer-0-aligned") is False
    assert holds(make_report(tmp_path, gradient=0.5), "finite-step-controls") is False


def test_dfa_is_measured_after_the_first_epochs():
    requested = STUDY.epochs_to_measure(SMOKE)
    assert {epoch for _, epochs in requested for epoch in epochs} == {1, 2, 3, 4, 5}
    assert {str(config.method) for config, _ in requested} == {METHODS["DFA"], "dfa:site=input"}


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("early-epochs")
    assert holds(study_report, "layer-0-aligned") is True
    assert holds(study_report, "finite-step-controls") is True

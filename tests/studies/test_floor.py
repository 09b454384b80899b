"""The floor: size, direction and clamp of planted gradients are three different things."""

from __future__ import annotations

import numpy as np
import pytest
from fake_measurements import changed
from planted import PlantedRuns, cells, holds, plant_all

from walkback.core.measurements import GROUP
from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.floor import STUDY

LARGE = {"measured": {"cosines": 0.2}}
SMALL = {"measured": {"grad": 4e-10, "cosines": 0.2}}
"""Under the clamp at every layer, and confirmed by float64."""
NOISE = {"measured": {"grad": 4e-10, "cosines": 0.2, "replay_cos": 0.1}}
MARGIN = {"measured": {"grad": 1.2e-8, "cosines": 0.2}}
"""Between the clamp and the floor at every layer of the deepest network: 1.2e-8 to 6.1e-8, ± 10%."""


def make_report(tmp_path, dfa, other=LARGE):
    planted_runs = PlantedRuns(tmp_path)
    plant_all(planted_runs, STUDY.runs(SMOKE), {"DFA": dfa, "other": other})
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_a_small_gradient_with_a_valid_direction_is_only_clamped(tmp_path):
    study_report = make_report(tmp_path, SMALL)
    assert holds(study_report, "below-floor-is-noise") is False
    assert holds(study_report, "clamp-distorts-below-floor") is True
    assert holds(study_report, "samples-keep-direction") is True
    assert (
        cells(study_report, "layers", "under the floor")["DFA"] == cells(study_report, "layers", "valid")["DFA"] == "10"
    )
    assert cells(study_report, "below", "cosine")["DFA, h_4"] == "+0.200 ± 0.000"
    assert cells(study_report, "below", "clamped cosine")["DFA, h_4"] == f"{0.2 * 0.04:+.3f} ± 0.000"


def test_noise_below_the_floor_is_reported_as_noise(tmp_path):
    study_report = make_report(tmp_path, NOISE)
    assert holds(study_report, "below-floor-is-noise") is True
    assert holds(study_report, "clamp-distorts-below-floor") is False
    assert holds(study_report, "samples-keep-direction") is False
    assert cells(study_report, "below", "cosine")["DFA, h_4"] == "INVALID"


def test_between_clamp_and_floor_nothing_is_distorted(tmp_path):
    study_report = make_report(tmp_path, MARGIN)
    assert holds(study_report, "cosine-right-above-clamp") is True
    assert holds(study_report, "clamp-distorts-below-floor") is False
    assert cells(study_report, "decades", "clamped / true cosine")["1e-8 to 1e-7"] == "1.000"
    assert cells(study_report, "layers", "clamp-distorted")["DFA"] == "0"


def test_without_a_layer_under_the_floor_claims_about_it_are_open(tmp_path):
    study_report = make_report(tmp_path, LARGE)
    answers = {each.id: each.holds for each in study_report.findings}
    assert answers.pop("above-floor-is-valid") is True
    assert answers.pop("clamp-distorts-above-floor") is False
    assert set(answers.values()) == {None}
    assert [table.name for table in study_report.tables] == ["layers", "decades"]


def test_a_gradient_above_the_floor_can_have_an_invalid_direction(tmp_path):
    study_report = make_report(tmp_path, {"measured": {"cosines": 0.2, "replay_cos": 0.95}})
    assert holds(study_report, "above-floor-is-valid") is False
    assert cells(study_report, "layers", "above: other")["DFA"] == "10"


def test_a_credit_under_the_clamp_distorts_above_the_floor(tmp_path):
    """`fake` cannot make a small credit, so its norms are replaced here."""
    planted_runs = PlantedRuns(tmp_path)
    plant_all(planted_runs, STUDY.runs(SMOKE), {"other": LARGE})
    config = SMOKE.runs([METHODS["DFA"]])[0]
    measurements = planted_runs.results().case(config).measurements
    small = changed(
        measurements,
        credit_norm=np.full_like(measurements.arrays["credit_norm"], 1e-9 * GROUP),
        credit_cos_clamped=measurements.arrays["credit_cos"] / 10,
    )
    planted_runs.plant([config], measured=small)
    study_report = STUDY.report_results(planted_runs.results(), SMOKE)
    assert holds(study_report, "clamp-distorts-above-floor") is True
    assert "5 of 224" in study_report.finding("clamp-distorts-above-floor").details
    assert holds(study_report, "clamp-distorts-below-floor") is None


def test_samples_without_a_gradient_are_counted(tmp_path):
    """A saturated softmax leaves no gradient, which the mean norm over samples does not show."""
    planted_runs = PlantedRuns(tmp_path)
    plant_all(planted_runs, STUDY.runs(SMOKE), {"other": LARGE})
    config = SMOKE.runs([METHODS["DFA"]])[0]
    measurements = planted_runs.results().case(config).measurements
    grad = measurements.arrays["grad_norm"].copy()
    grad[:, ::4] = 0
    planted_runs.plant([config], measured=changed(measurements, grad_norm=grad))
    found = cells(STUDY.report_results(planted_runs.results(), SMOKE), "layers", "samples without gradient")
    assert found["BP"] == "0%"
    assert found["DFA"] == "0% to 25%"


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("floor")
    # Logits grow until the softmax saturates only without a terminal norm. How many samples saturate on StudentNet
    # depends on rounding, which differs between processors.
    invalid = {name for name, count in cells(study_report, "layers", "above: other").items() if count != "0"}
    assert {"DFA, no norm"} <= invalid <= {"DFA, no norm", "DFA, StudentNet"}
    assert invalid < {
        name for name, share in cells(study_report, "layers", "samples without gradient").items() if share != "0%"
    }
    assert holds(study_report, "samples-keep-direction") is True

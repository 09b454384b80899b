"""Floor, direction and clamp on planted networks: three things that must not be taken for one."""

from __future__ import annotations

import numpy as np
import pytest
from fake_measurements import changed
from planted import Bed, cells, finding, holds, plant_all

from walkback.core.measurements import GROUP
from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.floor import STUDY

CALM = {"look": {"cosines": 0.2}}
SMALL = {"look": {"grad": 4e-10, "cosines": 0.2}}
"""Under the clamp at every layer, and reproduced by float64."""
NOISE = {"look": {"grad": 4e-10, "cosines": 0.2, "replay_cos": 0.1}}
MARGIN = {"look": {"grad": 1.2e-8, "cosines": 0.2}}
"""Between the clamp and the floor at every layer of the deepest network: 1.2e-8 to 6.1e-8, give or take a tenth."""


def told(tmp_path, dfa, other=CALM):
    bed = Bed(tmp_path)
    plant_all(bed, STUDY.runs(SMOKE), {"DFA": dfa, "other": other})
    return STUDY.report_results(bed.results(), SMOKE)


def test_a_small_real_gradient_is_only_clamped(tmp_path):
    study_report = told(tmp_path, SMALL)
    assert holds(study_report, "holds noise") is False
    assert holds(study_report, "only distorted by the clamp") is True
    assert holds(study_report, "95% keep their direction") is True
    assert (
        cells(study_report, "layers", "under the floor")["DFA"] == cells(study_report, "layers", "valid")["DFA"] == "10"
    )
    assert cells(study_report, "below", "cosine")["DFA, h_4"] == "+0.200 ± 0.000"
    assert cells(study_report, "below", "clamped cosine")["DFA, h_4"] == f"{0.2 * 0.04:+.3f} ± 0.000"


def test_noise_is_noise(tmp_path):
    study_report = told(tmp_path, NOISE)
    assert holds(study_report, "holds noise") is True
    assert holds(study_report, "only distorted by the clamp") is False
    assert holds(study_report, "95% keep their direction") is False
    assert cells(study_report, "below", "cosine")["DFA, h_4"] == "INVALID"


def test_between_clamp_and_floor_nothing_is_distorted(tmp_path):
    study_report = told(tmp_path, MARGIN)
    assert holds(study_report, "a plain cosine is right") is True
    assert holds(study_report, "only distorted by the clamp") is False
    assert cells(study_report, "decades", "clamped / true cosine")["1e-8 to 1e-7"] == "1.000"
    assert cells(study_report, "layers", "clamp-distorted")["DFA"] == "0"


def test_without_a_layer_under_the_floor_nothing_is_decided(tmp_path):
    study_report = told(tmp_path, CALM)
    decided = {each.claim: each.holds for each in study_report.findings}
    assert decided.pop("Above the floor every layer's direction is valid.") is True
    assert holds(study_report, "A reference above the floor") is False
    decided = {claim: held for claim, held in decided.items() if not claim.startswith("A reference above")}
    assert set(decided.values()) == {None}
    assert [table.name for table in study_report.tables] == ["layers", "decades"]


def test_a_large_gradient_may_be_worn_too(tmp_path):
    study_report = told(tmp_path, {"look": {"cosines": 0.2, "replay_cos": 0.95}})
    assert holds(study_report, "Above the floor") is False
    assert cells(study_report, "layers", "above: other")["DFA"] == "10"


def test_a_credit_under_the_clamp_distorts_above_the_floor(tmp_path):
    """No look of `fake` has a small credit: its norms are put in by hand."""
    bed = Bed(tmp_path)
    plant_all(bed, STUDY.runs(SMOKE), {"other": CALM})
    config = SMOKE.runs([METHODS["DFA"]])[0]
    taken = bed.results().case(config).measurements
    small = changed(
        taken,
        credit_norm=np.full_like(taken.arrays["credit_norm"], 1e-9 * GROUP),
        credit_cos_clamped=taken.arrays["credit_cos"] / 10,
    )
    bed.plant([config], look=small)
    study_report = STUDY.report_results(bed.results(), SMOKE)
    assert holds(study_report, "A reference above the floor") is True
    assert "5 of 224" in finding(study_report, "A reference above the floor").said
    assert holds(study_report, "only distorted by the clamp") is None


def test_samples_whose_gradient_is_zero_are_told(tmp_path):
    """A softmax that saturates leaves no gradient: the mean norm of the others hides it."""
    bed = Bed(tmp_path)
    plant_all(bed, STUDY.runs(SMOKE), {"other": CALM})
    config = SMOKE.runs([METHODS["DFA"]])[0]
    taken = bed.results().case(config).measurements
    grad = taken.arrays["grad_norm"].copy()
    grad[:, ::4] = 0
    bed.plant([config], look=changed(taken, grad_norm=grad))
    found = cells(STUDY.report_results(bed.results(), SMOKE), "layers", "samples without gradient")
    assert found["BP"] == "0%"
    assert found["DFA"] == "0% to 25%"


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("floor")
    # Only without a terminal norm do logits grow until the softmax saturates.
    worn = {name for name, count in cells(study_report, "layers", "above: other").items() if count != "0"}
    assert worn == {"DFA, no norm", "DFA, StudentNet"}
    assert worn < {
        name for name, share in cells(study_report, "layers", "samples without gradient").items() if share != "0%"
    }
    assert holds(study_report, "95% keep their direction") is True

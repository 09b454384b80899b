"""Ratios, signs and rankings of planted alignments, against sums done by hand."""

from __future__ import annotations

import pytest
from planted import Bed, cells, finding, holds, plant_all

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.aggregation_spread import STUDY, both_signs, ratio, values

PLAIN = {"look": {"cosines": 0.2}}
FIRST = {"look": {"cosines": [0.4, 0.0, 0.0, 0.0, 0.0]}}
"""All of it at layer 0, where the gradient is largest."""
TURNED = {"look": {"cosines": [-0.4, 0.2, 0.2, 0.2, 0.2]}}
WEIGHTS = [1.5**power for power in (4, 3, 2, 1, 0)]
"""Sizes of the planted gradients by layer."""


def told(tmp_path, **given):
    bed = Bed(tmp_path)
    plant_all(bed, STUDY.runs(SMOKE), {"other": PLAIN} | {name.replace("_", " "): each for name, each in given.items()})
    return STUDY.report_results(bed.results(), SMOKE)


def test_the_four_ways_on_one_network(tmp_path):
    bed = Bed(tmp_path)
    configs = SMOKE.runs([METHODS["DFA"]], seeds=[1])
    bed.plant(configs, **FIRST)
    case = bed.results().case(configs[0])
    a4 = 0.4 * WEIGHTS[0] / sum(WEIGHTS)
    root = sum(weight**2 for weight in WEIGHTS) ** 0.5
    a2 = 0.4 * WEIGHTS[0] / (root * 5**0.5)  # The planted credit is as large at every layer.
    assert values(case) == pytest.approx([0.08, a2, 0.08, a4], abs=1e-9)
    assert ratio(case) == pytest.approx(a4 / 0.08)
    assert both_signs(case) is False
    bed.plant(configs, **TURNED)
    assert both_signs(bed.results().case(configs[0])) is True


def test_the_same_everywhere_is_the_same_by_every_way(tmp_path):
    study_report = told(tmp_path)
    assert holds(study_report, "DFA's Γ differs") is False
    assert holds(study_report, "turn the sign") is False
    assert cells(study_report, "ways", "both signs")["DFA"] == "0 of 2 seeds"


def test_planted_spread_signs_and_order(tmp_path):
    steep = {"look": {"cosines": [0.9, -0.2, -0.2, -0.2, -0.2]}}  # A1 +0.02, A4 about +0.22
    study_report = told(tmp_path, DFA=steep, State_Bridge=TURNED)
    assert holds(study_report, "DFA's Γ differs") is True
    assert holds(study_report, "turn the sign") is True
    assert "State Bridge s1" in finding(study_report, "turn the sign").said
    assert holds(study_report, "depends on the way") is True


def test_the_exact_layer_raises_the_deep_mean_of_fa(tmp_path):
    assert holds(told(tmp_path), "exact by construction") is True
    low = {"look": {"cosines": [0.2, 0.2, 0.2, 0.2, 0.1]}}
    assert holds(told(tmp_path, FA=low), "exact by construction") is False


def test_noise_is_invalid_and_decides_nothing(tmp_path):
    study_report = told(tmp_path, DFA={"look": {"cosines": 0.2, "replay_cos": 0.1}})
    assert cells(study_report, "ways", "A1")["DFA"] == "INVALID"
    assert holds(study_report, "DFA's Γ differs") is None
    assert holds(study_report, "turn the sign") is None


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("aggregation-spread")
    assert holds(study_report, "exact by construction") is True

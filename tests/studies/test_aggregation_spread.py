"""Aggregation: ratios, signs and rankings of planted alignments, compared with values worked out by hand."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, cells, holds, plant_all

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.aggregation_spread import STUDY, both_signs, ratio, values

PLAIN = {"measured": {"cosines": 0.2}}
FIRST = {"measured": {"cosines": [0.4, 0.0, 0.0, 0.0, 0.0]}}
"""Aligned at layer 0 only, where the gradient is largest."""
BOTH_SIGNS = {"measured": {"cosines": [-0.4, 0.2, 0.2, 0.2, 0.2]}}
WEIGHTS = [1.5**power for power in (4, 3, 2, 1, 0)]
"""Norms of the planted gradients by layer."""


def make_report(tmp_path, **given):
    planted_runs = PlantedRuns(tmp_path)
    plant_all(
        planted_runs,
        STUDY.runs(SMOKE),
        {"other": PLAIN} | {name.replace("_", " "): each for name, each in given.items()},
    )
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_four_aggregations_of_one_network(tmp_path):
    planted_runs = PlantedRuns(tmp_path)
    configs = SMOKE.runs([METHODS["DFA"]], seeds=[1])
    planted_runs.plant(configs, **FIRST)
    case = planted_runs.results().case(configs[0])
    a4 = 0.4 * WEIGHTS[0] / sum(WEIGHTS)
    root = sum(weight**2 for weight in WEIGHTS) ** 0.5
    a2 = 0.4 * WEIGHTS[0] / (root * 5**0.5)  # The planted credit has the same norm at every layer.
    assert values(case) == pytest.approx([0.08, a2, 0.08, a4], abs=1e-9)
    assert ratio(case) == pytest.approx(a4 / 0.08)
    assert both_signs(case) is False
    planted_runs.plant(configs, **BOTH_SIGNS)
    assert both_signs(planted_runs.results().case(configs[0])) is True


def test_equal_cosines_give_equal_aggregates(tmp_path):
    study_report = make_report(tmp_path)
    assert holds(study_report, "dfa-depends-on-aggregation") is False
    assert holds(study_report, "sign-depends-on-aggregation") is False
    assert cells(study_report, "ways", "both signs")["DFA"] == "0 of 2 seeds"


def test_spread_sign_and_order_depend_on_the_aggregation(tmp_path):
    steep = {"measured": {"cosines": [0.9, -0.2, -0.2, -0.2, -0.2]}}  # A1 +0.02, A4 about +0.22
    study_report = make_report(tmp_path, DFA=steep, State_Bridge=BOTH_SIGNS)
    assert holds(study_report, "dfa-depends-on-aggregation") is True
    assert holds(study_report, "sign-depends-on-aggregation") is True
    assert "State Bridge s1" in study_report.finding("sign-depends-on-aggregation").details
    assert holds(study_report, "order-depends-on-aggregation") is True


def test_the_exact_layer_raises_the_published_deep_mean_of_fa(tmp_path):
    assert holds(make_report(tmp_path), "fa-mean-includes-exact-layer") is True
    low = {"measured": {"cosines": [0.2, 0.2, 0.2, 0.2, 0.1]}}
    assert holds(make_report(tmp_path, FA=low), "fa-mean-includes-exact-layer") is False


def test_a_noisy_reference_is_invalid_and_leaves_findings_open(tmp_path):
    study_report = make_report(tmp_path, DFA={"measured": {"cosines": 0.2, "replay_cos": 0.1}})
    assert cells(study_report, "ways", "A1")["DFA"] == "INVALID"
    assert holds(study_report, "dfa-depends-on-aggregation") is None
    assert holds(study_report, "sign-depends-on-aggregation") is None


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("aggregation-spread")
    assert holds(study_report, "fa-mean-includes-exact-layer") is True

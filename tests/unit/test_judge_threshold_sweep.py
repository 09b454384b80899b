"""Threshold sensitivity and decision utility, on stored measurements."""

from __future__ import annotations

import pytest
from fake_measurements import fake

from walkback.core.errors import InputError
from walkback.judge.evidence import Evidence
from walkback.judge.report import judge
from walkback.judge.threshold_sweep import FIELDS, STRATEGIES, strategies, sweep_threshold
from walkback.judge.thresholds import DiagnosticThresholds


def case(growth, grad, drift, acc, frozen=0.349):
    return judge(fake(growth=growth, grad=grad, group_cos=drift), Evidence.of(acc, frozen), protocol="four")


# The first paper's audit: growth, |g_L|, (c), accuracy.
AUDIT = {
    "BP": case(1.3, 4e-4, 0.099, 0.615),
    "EP": case(11.6, 1.3e-4, 0.02, 0.316),
    "DFA": case(237.0, 4.2e-9, 0.16, 0.306),
    "SB": case(12000.0, 1e-9, 0.53, 0.205),
    "CB": case(96.0, 1e-9, 0.37, 0.289),
}


def caught(strategy):
    return {name for name, report in AUDIT.items() if strategies(report)[strategy] == "walked_back"}


def test_what_each_strategy_catches_in_the_published_audit():
    assert caught("S0") == caught("S1") == set()
    assert caught("S2") == caught("+(a)") == caught("+(b)") == {"DFA", "SB", "CB"}
    assert caught("+(c)") == {"SB", "CB"}
    assert caught("+(d)") == caught("full") == caught("S3") == {"EP", "DFA", "SB", "CB"}  # EP: the paper leaves it out.
    assert set(strategies(AUDIT["BP"]).values()) == {"trustworthy"}


def test_the_floor_can_change_by_an_order_of_magnitude_without_changing_a_verdict():
    found = sweep_threshold(AUDIT, "g_norm_floor", healthy=("BP", "EP"))
    assert found.gap == pytest.approx(1.3e-4 / 4.2e-9)
    assert found.flips == {}
    assert all(len(set(verdicts)) == 1 for verdicts in found.verdicts.values())
    assert found.thresholds[0] == pytest.approx(1e-8)
    assert found.thresholds[-1] == pytest.approx(1e-6)


def test_the_sweep_finds_where_the_depth_check_flips():
    reports = {"better": case(1.3, 4e-4, 0.1, 0.400), "BP": AUDIT["BP"]}
    found = sweep_threshold(reports, "frozen_acc_margin_pp", healthy=("BP",))
    assert found.flips == {"better": pytest.approx(5.1)}
    assert set(found.verdicts["better"]) == {"trustworthy", "walked_back"}
    assert found.gap == pytest.approx(26.6 - 5.1)


def test_the_gap_is_from_the_worst_healthy_case_to_the_mildest_degenerate_one():
    assert sweep_threshold(AUDIT, "h_norm_explosion_ratio", healthy=("BP", "EP")).gap == pytest.approx(96 / 11.6)
    assert sweep_threshold(AUDIT, "stability_drift_ceiling", healthy=("BP", "EP")).gap == pytest.approx(0.16 / 0.099)
    assert sweep_threshold(AUDIT, "frozen_acc_margin_pp", healthy=("BP", "EP")).gap == pytest.approx(31.6 - 30.6)


def test_thresholds_of_cosines_stay_under_one():
    assert max(sweep_threshold(AUDIT, "stability_drift_ceiling").thresholds) <= 1
    assert sweep_threshold(AUDIT, "stability_drift_ceiling").gap is None


def test_unknown_thresholds_and_cases_are_refused():
    with pytest.raises(InputError, match=r"Unknown threshold to sweep 'g_norm_flor'"):
        sweep_threshold(AUDIT, "g_norm_flor")
    with pytest.raises(InputError, match=r"Unknown case 'bp'"):
        sweep_threshold(AUDIT, "g_norm_floor", healthy=("bp",))
    with pytest.raises(InputError, match=r"no report to sweep"):
        sweep_threshold({}, "g_norm_floor")


def test_every_swept_threshold_belongs_to_a_check():
    assert set(FIELDS.values()) <= set(AUDIT["BP"].flags)
    assert FIELDS.keys() <= DiagnosticThresholds().to_json().keys()
    assert list(STRATEGIES)[:4] == ["S0", "S1", "S2", "S3"]

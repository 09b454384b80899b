"""Accuracies and thresholds from a user: what is accepted, and what is refused with which message."""

from __future__ import annotations

import numpy as np
import pytest

from walkback.core.errors import InputError
from walkback.judge.evidence import Evidence, OracleAccuracies
from walkback.judge.thresholds import DiagnosticThresholds


def test_a_bare_number_is_an_unnamed_baseline():
    evidence = Evidence.of(0.306, 0.349)
    assert evidence.headline_acc == (0.306,)
    assert evidence.frozen == {"unnamed": (0.349,)}
    assert evidence.deciding == "unnamed"


def test_named_nulls_and_seeds():
    evidence = Evidence.of([0.3, 0.31], {"method_shell": (0.34, 0.35), "bp_shell": 0.42}, np.array([0.6, 0.61]))
    assert evidence.frozen == {"method_shell": (0.34, 0.35), "bp_shell": (0.42,)}
    assert evidence.bp_acc == (0.6, 0.61)
    assert evidence.deciding == "method_shell"
    assert Evidence.of(0.3, {"bp_shell": None}).frozen == {}


def test_numbers_of_other_libraries():
    assert Evidence.of(np.float32(0.5), np.array(0.25)) == Evidence.of(0.5, 0.25)


def test_evidence_of_nothing_is_empty():
    assert Evidence.of() == Evidence()


def test_none_right_and_all_right_are_accuracies():
    assert Evidence.of([0, 1.0], 0.0).headline_acc == (0.0, 1.0)


@pytest.mark.parametrize("given", [30.6, [0.3, 30.6], 100])
def test_a_percentage_is_refused_with_the_fraction_that_was_meant(given):
    with pytest.raises(InputError, match=r"expected a fraction from 0 to 1, not a percentage\. Write (0\.306|1)\."):
        Evidence.of(given)


@pytest.mark.parametrize("given", ["0.3", True, {"a": 0.3}, -0.1, 101, float("nan"), [None], ["0.3"]])
def test_values_that_are_no_accuracies_are_refused(given):
    with pytest.raises(InputError, match=r"headline_acc is .*expected a number from 0 to 1"):
        Evidence.of(given)


def test_seeds_that_cannot_be_paired_are_refused():
    with pytest.raises(InputError, match=r"headline_acc has 3 seeds and the frozen baseline 'unnamed' 2"):
        Evidence.of([0.3, 0.3, 0.3], [0.3, 0.3])


def test_unknown_nulls_are_refused_with_a_suggestion():
    with pytest.raises(InputError, match=r"Unknown null 'method_shel'\. Did you mean 'method_shell'\?"):
        Evidence.of(0.3, {"method_shel": 0.3})
    with pytest.raises(InputError, match=r"Unknown null 'unnamed'"):
        Evidence.of(0.3, 0.3, null="unnamed")


def test_correctness_is_one_or_zero():
    assert Evidence.of(correct=np.array([1.0, 0.0])).correct == (True, False)
    with pytest.raises(InputError, match=r"correct contains 0.5"):
        Evidence.of(correct=[1, 0.5])


def test_thresholds_keep_the_reference_packages_names_and_order():
    given = DiagnosticThresholds(8e-7, 40, 0.2, 1)
    assert given.g_norm_floor == 8e-7
    assert given.frozen_acc_margin_pp == 1.0
    assert given.changed() == {
        "g_norm_floor": 8e-7,
        "h_norm_explosion_ratio": 40.0,
        "stability_drift_ceiling": 0.2,
        "frozen_acc_margin_pp": 1.0,
    }
    assert DiagnosticThresholds().changed() == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"g_norm_floor": 0.0},
        {"h_norm_explosion_ratio": -1.0},
        {"stability_drift_ceiling": 1.5},
        {"frozen_acc_margin_pp": float("nan")},
        {"direction_valid_share": 95},
        {"confidence": 1.0},
        {"null_z": "three"},
        {"min_groups": 1},
        {"concentration_layers": 2.5},
        {"direction_noise_median": 0.999},
    ],
)
def test_senseless_thresholds_are_refused_by_name(wrong):
    with pytest.raises(InputError, match=f"the threshold {next(iter(wrong))}"):
        DiagnosticThresholds(**wrong)


def test_oracles_are_in_the_json_form_only_where_there_are_some():
    exact = OracleAccuracies("bp", (0.6, 0.61), (0.4, 0.41))
    assert "oracles" not in Evidence.of([0.3, 0.31]).to_json()
    evidence = Evidence.of([0.3, 0.31], oracles={"exact": exact})
    assert evidence.oracles == {"exact": exact}
    assert evidence.to_json()["oracles"] == {"exact": {"method": "bp", "acc": [0.6, 0.61], "frozen_acc": [0.4, 0.41]}}


def test_oracles_that_cannot_be_paired_or_are_unknown_are_refused():
    with pytest.raises(InputError, match=r"oracle 'exact' has 2 seeds, its frozen baseline 1 and headline_acc 2"):
        Evidence.of([0.3, 0.31], oracles={"exact": OracleAccuracies("bp", (0.6, 0.6), (0.4,))})
    with pytest.raises(InputError, match=r"Unknown oracle 'exac'\. Did you mean 'exact'\?"):
        Evidence.of(0.3, oracles={"exac": OracleAccuracies("bp", (0.6,), (0.4,))})

"""Each check: its threshold, what flips it, and its reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fake_measurements import ALL, backprop, changed, concentrated, exploded, fake, healthy, noise, scaled
from hypothesis import given, settings
from hypothesis import strategies as st

from walkback.judge.card import CORE_CHECKS
from walkback.judge.checks import CHECKS
from walkback.judge.evidence import Evidence
from walkback.judge.flag import Flag
from walkback.judge.report import judge
from walkback.judge.threshold_sweep import FIELDS
from walkback.judge.thresholds import DiagnosticThresholds

FIELD = {check: field for field, check in FIELDS.items()}
EVIDENCE = Evidence.of([0.30, 0.31, 0.32], {"method_shell": [0.33, 0.33, 0.36], "bp_shell": [0.42, 0.41, 0.43]})


def status_at(report, name, threshold):
    return report.rejudge(replace(report.thresholds, **{FIELD[name]: threshold})).flags[name].status


@pytest.mark.parametrize("case", ["healthy", "exploded", "concentrated"])
@pytest.mark.parametrize("name", FIELD)
def test_a_flag_flips_at_the_threshold_it_names(case, name):
    report = judge(ALL[case](), EVIDENCE)
    flag = report.flags[name]
    if (
        flag.flips_at >= 1 and name == "concentration"
    ):  # All alignment is in one layer: it fails at every threshold below 1.
        assert status_at(report, name, 1.0) == "clear"
        return
    step = 1e-9 * abs(flag.flips_at)
    sides = {status_at(report, name, flag.flips_at - step), status_at(report, name, flag.flips_at + step)}
    assert sides == {"raised", "clear"}


@pytest.mark.parametrize("case", ["healthy", "exploded", "concentrated"])
@pytest.mark.parametrize("name", FIELD)
def test_a_value_exactly_at_its_threshold_passes(case, name):
    report = judge(ALL[case](), EVIDENCE)
    assert status_at(report, name, report.flags[name].value) == "clear"


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(sorted(FIELD)), st.floats(0.01, 1.0), st.floats(0.01, 1.0))
def test_flags_are_monotone_in_their_thresholds(name, one, other):
    low, high = sorted((one, other))
    report = judge(MIXED, EVIDENCE)
    at_low, at_high = status_at(report, name, low), status_at(report, name, high)
    if report.flags[name].side == "above":
        assert not (at_low == "clear" and at_high == "raised")
    else:
        assert not (at_low == "raised" and at_high == "clear")


MIXED = concentrated(growth=0.5, grad=0.3, group_cos=0.4)


@settings(deadline=None, max_examples=25)
@given(st.floats(-12, 12).map(lambda power: 10.0**power))
def test_the_scale_of_the_loss_changes_only_the_gradient_norm(factor):
    base = healthy(fresh=0.0)
    one, other = judge(base, EVIDENCE), judge(scaled(base, factor), EVIDENCE)
    assert other.flags["D2"].value == pytest.approx(one.flags["D2"].value * factor)
    assert other.verdict == one.verdict
    assert other.claims == one.claims
    for name in set(CORE_CHECKS) - {"D2"}:
        assert other.flags[name] == one.flags[name]
    for mine, its in zip(one.quantities.layers, other.quantities.layers, strict=True):
        assert mine.credit.cos == its.credit.cos
        assert mine.direction == its.direction
    for name, number in one.quantities.aggregates.to_json().items():
        assert other.quantities.aggregates.to_json()[name]["value"] == pytest.approx(number["value"])


def test_d1_has_the_layer_and_the_distance_to_its_threshold():
    grown = healthy()
    norms = grown.arrays["hidden_norm"].copy()
    norms[3:] *= 100
    flag = judge(changed(grown, hidden_norm=norms)).flags["D1"]
    assert (flag.status, flag.layer, flag.n) == ("raised", 3, 1024)
    assert flag.value == pytest.approx(130)
    assert flag.margin == pytest.approx(2.6)
    assert judge(grown).flags["D1"].margin == pytest.approx(50 / 1.3)


def test_d1_ignores_the_constant_cls_token():
    grown = healthy(pool="cls")
    norms = grown.arrays["hidden_norm"].copy()
    norms[1:] *= 1000
    assert judge(changed(grown, hidden_norm=norms)).flags["D1"].status == "clear"
    alone = fake(blocks=1, pool="cls")
    assert judge(alone).flags["D1"].status == "not_informative"


def test_d1_with_states_that_are_not_finite():
    grown = healthy()
    norms = grown.arrays["hidden_norm"].copy()
    norms[3, 5] = np.nan
    flag = judge(changed(grown, hidden_norm=norms)).flags["D1"]
    assert (flag.status, flag.shown) == ("missing", "INVALID")
    assert "not finite for 1 of 1024 samples" in flag.reason
    norms[1:] *= 1000
    assert judge(changed(grown, hidden_norm=norms)).flags["D1"].status == "raised"
    norms[3:] = np.inf
    flag = judge(changed(grown, hidden_norm=norms)).flags["D1"]
    assert (flag.status, flag.layer, flag.to_json()["value"]) == ("raised", 3, None)


def test_d1_with_a_growth_exactly_at_its_limit_still_depends_on_a_growth_that_is_unknown():
    grown = healthy()
    norms = grown.arrays["hidden_norm"].copy()
    norms[4, 5] = np.nan
    report = judge(changed(grown, hidden_norm=norms))
    largest = max(ratio.known for ratio in report.quantities.growth.values() if ratio.ok)
    assert status_at(report, "D1", largest) == "missing"
    assert status_at(report, "D1", largest * (1 - 1e-12)) == "raised"


def test_the_reason_of_d2_contains_the_result_of_the_replay():
    flag = judge(exploded()).flags["D2"]
    assert flag.status == "raised"
    assert "direction valid" in flag.reason
    assert "clamp distorted" in flag.reason
    assert "only code that clamps sees noise" in flag.reason
    assert "|e| = 0.8" in flag.reason
    assert "direction noise" in judge(noise()).flags["D2"].reason
    assert "direction not checked" in judge(healthy(replay=False)).flags["D2"].reason


def test_d2_is_quoted_for_a_batch_of_128_with_an_interval():
    flag = judge(healthy(grad=4e-4)).flags["D2"]
    assert flag.value == pytest.approx(4e-4)
    low, high = flag.interval
    assert low < flag.value < high
    assert judge(fake(grad=0.0)).flags["D2"].flips_at is None


def test_the_reason_of_d2_mentions_float16():
    assert "float16 ends at 6e-8" in judge(healthy(dtype="float16")).flags["D2"].reason


def test_direction_is_invalid_where_the_reference_is_noise():
    flag = judge(noise()).flags["direction"]
    assert (flag.status, flag.shown, flag.value) == ("missing", "INVALID", None)
    assert judge(healthy(group_cos=0.5)).flags["direction"].status == "raised"


def test_d3_pairs_seeds_and_compares_the_frozen_baselines():
    flag = judge(healthy(), EVIDENCE).flags["D3"]
    assert (flag.value, flag.n, flag.counts) == (-3.0, 3, "paired seeds")
    assert flag.margin == pytest.approx(-5.0)
    assert "bp frozen baseline" in flag.reason
    assert "which agrees" in flag.reason
    split = Evidence.of(0.40, {"method_shell": 0.35, "bp_shell": 0.42})
    assert "DISAGREES" in judge(healthy(), split).flags["D3"].reason
    assert "null unnamed" in judge(healthy(), Evidence.of(0.40, 0.35)).flags["D3"].reason


def test_d3_at_exactly_its_margin_is_clear():
    assert judge(healthy(), Evidence.of(0.369, 0.349)).flags["D3"].status == "clear"
    both = judge(healthy(), Evidence.of(0.369, {"method_shell": 0.349, "bp_shell": 0.349})).flags["D3"]
    assert "DISAGREES" not in both.reason


@pytest.mark.parametrize(("bp", "status"), [(0.36, "raised"), (0.35, "not_informative"), (0.34, "not_informative")])
def test_d3_says_nothing_if_the_frozen_baseline_reaches_backprop(bp, status):
    assert judge(healthy(), Evidence.of(0.36, 0.35, bp_acc=bp)).flags["D3"].status == status


def test_the_reason_of_d3_names_what_was_not_given():
    assert "no frozen baseline" in judge(healthy(), Evidence.of(0.4)).flags["D3"].reason
    assert "no headline accuracy" in judge(healthy(), Evidence.of(None, 0.3)).flags["D3"].reason


def test_concentration_is_reported_and_never_decides():
    report = judge(concentrated(), Evidence.of(0.6, 0.3), protocol="three")
    flag = report.flags["concentration"]
    assert (flag.status, flag.layer) == ("raised", 1)
    assert flag.value == pytest.approx(0.6 / 0.75, abs=1e-9)
    assert not flag.decides
    assert report.verdict == "trustworthy"
    assert [mode.name for mode in report.modes] == ["concentrated credit"]


def test_concentration_leaves_exact_layers_out_and_needs_three_others():
    top = judge(healthy(cosines=[0.1, 0.1, 0.1, 0.1, 1.0], labels=["none"] * 4 + ["exact"])).flags["concentration"]
    assert top.status == "clear"
    assert judge(backprop()).flags["concentration"].status == "not_informative"
    assert judge(healthy(blocks=1, cosines=[0.3, 0.0])).flags["concentration"].status == "not_informative"
    assert judge(healthy(cosines=[0.0] * 5)).flags["concentration"].status == "not_informative"
    assert judge(fake()).flags["concentration"].status == "missing"
    assert judge(changed(healthy(), null_haar_std=None)).flags["concentration"].status == "missing"


def test_concentration_needs_the_number_of_layers_of_its_threshold():
    three = judge(healthy(blocks=2, cosines=[0.3, 0.3, 0.3]))
    assert (three.flags["concentration"].status, three.flags["concentration"].n) == ("clear", 3)
    four = replace(three.thresholds, concentration_layers=4)
    assert three.rejudge(four).flags["concentration"].status == "not_informative"


@pytest.mark.parametrize("case", ALL)
def test_every_case_has_all_flags_with_reasons(case):
    flags = judge(ALL[case](), EVIDENCE).flags
    assert list(flags)[: len(CORE_CHECKS)] == list(CORE_CHECKS)
    assert len(flags) == len(CHECKS.names())
    assert all(isinstance(flag, Flag) and flag.reason for flag in flags.values())


def test_docstrings_of_checks_have_the_facts_that_explain_shows():
    entries = CHECKS.entries()
    assert {entry.name for entry in entries} == set(CHECKS.names())
    for entry in entries:
        assert entry.summary
        assert {"Formula", "Threshold", "Misleads"} <= entry.facts.keys()


def test_nothing_measured_is_missing_and_never_an_error():
    report = judge(changed(fake(), **dict.fromkeys(fake().arrays)), thresholds=DiagnosticThresholds())
    assert {flag.status for flag in report.flags.values()} == {"missing"}
    assert report.verdict == "inconclusive"

"""Quantities: definitions by hand, counted exclusions, and INVALID wherever a precondition failed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from fake_measurements import ALL, backprop, changed, exploded, fake, healthy, noise

from walkback.core.errors import InputError
from walkback.core.measurements import FIRST_EDITION, GROUP
from walkback.judge.evidence import Evidence
from walkback.judge.number import Number
from walkback.judge.quantities import FITTED_ERROR, quantities
from walkback.judge.report import judge
from walkback.judge.thresholds import DiagnosticThresholds

T = DiagnosticThresholds()


def of(m, **thresholds):
    return quantities(m, replace(T, **thresholds))


def test_the_aggregates_by_hand():
    cosines = [0.5, 0.4, 0.3, 0.2, 0.1]
    a = of(healthy(cosines=cosines)).aggregates
    weights = 1.5 ** np.arange(4, -1, -1)
    assert a.a1.value == pytest.approx(0.3)
    assert a.a3.value == pytest.approx(0.3)
    assert a.a4.value == pytest.approx((weights * cosines).sum() / weights.sum())
    joint = (weights * cosines).sum() / np.sqrt(5 * (weights**2).sum())
    assert a.a2.value == pytest.approx(joint, abs=1e-3)
    assert a.deep_mean.value == pytest.approx(0.25)
    assert a.deep_mean_papers.value == pytest.approx(0.25)
    assert a.deep_mean_z.value == pytest.approx(0.25 / (0.01 / np.sqrt(4)))


def test_a2_divides_inner_products_by_the_norms_of_the_gradients_they_were_taken_with():
    m = healthy()
    true = m.arrays["grad_norm64"]
    rounded = true * np.linspace(0.5, 2, len(true))[:, None]
    # The credit is the gradient itself, so the cosine over all layers is 1.
    replayed = changed(m, grad_norm=rounded, credit_norm=true, credit_dot=true**2)
    assert of(replayed).aggregates.a2.value == pytest.approx(1, abs=1e-12)
    own = changed(m, grad_norm=rounded, credit_norm=rounded, credit_dot=rounded**2, grad_norm64=None, grad_cos64=None)
    assert of(own).aggregates.a2.value == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("empty", ["credit_norm", "grad_norm64"])
def test_a2_leaves_out_samples_without_a_credit_or_a_gradient_at_any_layer(empty):
    m = healthy()
    norms, dots, cosines = (m.arrays[name].copy() for name in (empty, "credit_dot", "credit_cos"))
    norms[:, :10], dots[:, :10], cosines[:, :10] = 0.0, 0.0, np.nan
    found = of(changed(m, **{empty: norms}, credit_dot=dots, credit_cos=cosines)).aggregates.a2
    rest = {name: m.arrays[name][:, 10:] for name in ("credit_dot", "credit_norm", "grad_norm64")}
    lengths = [np.sqrt((rest[name] ** 2).sum(axis=0)) for name in ("credit_norm", "grad_norm64")]
    expected = (rest["credit_dot"].sum(axis=0) / lengths[0] / lengths[1]).mean()
    assert found.value == pytest.approx(expected, rel=1e-12)


def test_a_layer_is_above_its_null_from_exactly_null_z_standard_deviations_on():
    m = healthy(cosines=[0.5, 0.5, 0.5, 0.5, 0.5], null_std=0.01)
    stds = np.full(5, 0.01)
    stds[[1, 3]] = of(m).layers[1].credit.cos.known / T.null_z, 1.0
    q = of(changed(m, null_haar_std=stds))
    assert q.layers[1].credit.z.known == T.null_z
    assert q.layers[3].credit.z.known < T.null_z
    assert q.aggregates.concentration.value == pytest.approx(1 / 4)
    assert not q.aggregates.none_above_null
    stds[:] = 1.0
    assert of(changed(m, null_haar_std=stds)).aggregates.none_above_null
    stds[:] = of(m).layers[1].credit.cos.known / T.null_z
    assert not of(changed(m, null_haar_std=stds)).aggregates.none_above_null


def test_deep_mean_follows_the_site_and_leaves_exact_layers_out():
    cosines, labels = [0.0, 0.1, 0.2, 0.3, 1.0], ["none"] * 4 + ["exact"]
    output = of(healthy(cosines=cosines, labels=labels)).aggregates
    assert output.deep_layers == (1, 2, 3)
    assert output.deep_mean.value == pytest.approx(0.2)
    assert output.deep_mean_papers.value == pytest.approx(0.4)
    given = of(healthy(cosines=cosines, site="input")).aggregates
    assert given.deep_layers == (0, 1, 2, 3)
    assert given.deep_mean.value == pytest.approx(0.15)
    assert given.deep_mean_papers.value == pytest.approx(0.4)
    assert of(healthy(site="input", labels=["exact", *labels[1:]])).aggregates.deep_layers == (1, 2, 3)
    assert of(backprop()).aggregates.deep_mean.status == "missing"


@pytest.mark.parametrize(("site", "deep"), [("input", (1, 2, 3)), ("output", (1, 2, 3, 4))])
def test_the_first_state_of_a_cls_token_is_not_in_deep_mean(site, deep):
    assert of(healthy(site=site, pool="cls")).aggregates.deep_layers == deep


@pytest.mark.parametrize(("site", "deep"), [("input", (1, 2, 3)), ("output", (1, 2, 3, 4))])
def test_the_first_edition_reads_deep_mean_without_the_first_state(site, deep):
    assert of(changed(healthy(site=site), facts={FIRST_EDITION: True})).aggregates.deep_layers == deep


def test_the_null_of_fresh_feedback_by_hand():
    credit = of(healthy(fresh=0.05)).layers[2].credit
    std = 0.01 * np.sqrt(20 / 19)
    assert credit.fresh.mean == pytest.approx(0.05)
    assert credit.fresh.z.value == pytest.approx((0.2 - 0.05) / (std * np.sqrt(1 + 1 / 20)))
    assert credit.z.value == pytest.approx(0.2 / 0.01)


def test_a_null_of_one_draw_or_without_width_gives_no_score():
    m = changed(healthy(fresh=0.05), null_used_fresh=None)
    assert of(changed(m, null_fresh=m.arrays["null_fresh"][:, :1])).layers[2].credit.fresh is None
    assert of(changed(m, null_fresh=m.arrays["null_fresh"][:, :2])).layers[2].credit.fresh.draws == 2
    for width in (0.0, np.nan):
        assert of(changed(m, null_haar_std=np.full(5, width))).layers[2].credit.z.status == "invalid"


def test_a_state_of_zeros_has_no_growth():
    m = healthy()
    norms = m.arrays["hidden_norm"].copy()
    norms[1] = 0.0
    growth = of(changed(m, hidden_norm=norms)).growth
    assert growth[0].value == 0
    assert growth[1].status == "invalid"
    assert growth[2].value == pytest.approx(1.3)


def test_with_a_cls_token_the_first_growth_is_that_of_the_mean_norms_of_all_tokens():
    m = healthy(pool="cls")
    whole = np.ones((5, 1024))
    whole[0, :512], whole[1, :512] = 3.0, 12.0
    q = of(changed(m, hidden_norm_all=whole))
    assert q.growth[0].value == pytest.approx(6.5 / 2)
    whole[0] = 0.0
    assert 0 not in of(changed(m, hidden_norm_all=whole)).growth


def test_a_group_whose_mean_gradient_vanished_makes_the_group_cosine_invalid():
    m = healthy()
    pairs = m.arrays["group_cos"].copy()
    pairs[3] = np.nan
    assert of(changed(m, group_cos=pairs)).group_cos.status == "invalid"


def test_a_network_is_fitted_if_its_gradient_would_reach_the_floor_with_an_error_of_one():
    q = of(changed(healthy(grad=1e-9), error_norm=np.full(1024, 1e-3)))
    reached = q.top.grad_norm_raw.known / 1e-3 / GROUP
    assert reached == pytest.approx(1e-6)
    assert q.is_fitted(q.grad_over_error.known / GROUP)
    assert q.is_fitted(reached * 0.99)
    assert not q.is_fitted(reached * 1.01)
    assert of(changed(healthy(), error_norm=np.zeros(1024))).is_fitted(1.0)
    for error, is_fitted in ((FITTED_ERROR, True), (1.01 * FITTED_ERROR, False)):
        assert replace(q, error_norm=Number.of(error)).is_fitted(1e-9) == is_fitted


def test_excluded_samples_are_counted_and_given_no_value():
    m = healthy()
    cosines = m.arrays["credit_cos"].copy()
    expected = cosines[2, 10:].mean()
    cosines[2, :10] = np.nan
    credit = of(changed(m, credit_cos=cosines)).layers[2].credit
    assert (credit.n, credit.excluded) == (1014, 10)
    assert credit.cos.value == pytest.approx(expected)
    assert "10 of 1024 samples excluded" in str(credit.cos)
    cosines[2] = np.nan
    q = of(changed(m, credit_cos=cosines))
    assert q.layers[2].credit.cos.status == "invalid"
    assert q.aggregates.a1.status == q.aggregates.deep_mean.status == "invalid"


@pytest.mark.parametrize(
    ("cosine", "status"), [(1.0, "valid"), (0.995, "valid"), (0.99, "degraded"), (0.9, "degraded"), (0.89, "noise")]
)
def test_direction_status_by_cosine(cosine, status):
    assert of(fake(replay_cos=cosine)).top.direction.status == status


def test_a_direction_is_valid_with_five_percent_wrong_samples():
    m = fake()
    cosines = m.arrays["grad_cos64"].copy()
    cosines[-1, :51] = 0.0
    assert of(changed(m, grad_cos64=cosines)).top.direction.status == "valid"
    cosines[-1, :52] = 0.0
    assert of(changed(m, grad_cos64=cosines)).top.direction.status == "degraded"


def test_a_direction_is_valid_from_exactly_the_share_of_samples_on():
    m = fake()
    cosines = m.arrays["grad_cos64"].copy()
    cosines[-1, :512] = 0.95
    found = changed(m, grad_cos64=cosines)
    assert of(found, direction_valid_share=0.5).top.direction.status == "valid"
    assert of(found, direction_valid_share=513 / 1024).top.direction.status == "degraded"


def test_the_cosines_of_a_direction_are_summarised_by_their_median_and_fifth_percentile():
    m = fake(groups=8)
    cosines = m.arrays["grad_cos64"].copy()
    cosines[-1] = np.linspace(0.9, 1.0, 1024)[::-1]
    found = of(changed(m, grad_cos64=cosines)).top.cos64
    assert (found.median, found.p05) == pytest.approx((0.95, 0.905))
    assert found.share_valid == pytest.approx(0.05, abs=1e-3)


def test_a_credit_that_is_zero_in_float64_has_no_direction_to_reproduce():
    m = healthy()
    cosines, norms = np.ones((5, 1024)), m.arrays["credit_norm"].copy()
    cosines[2, :600] = np.nan
    assert of(changed(m, credit_cos64=cosines)).layers[2].credit.direction.status == "noise"
    norms[2, :600] = 0.0
    found = of(changed(m, credit_cos64=cosines, credit_norm=norms)).layers[2].credit.direction
    assert (found.status, found.n) == ("valid", 424)


def test_gradients_that_underflow_to_zero_and_those_that_lose_digits_are_counted_apart():
    m = fake(grad=1e-30)
    own = m.arrays["grad_norm"].copy()
    own[-1, :3], own[-1, 3:8] = 0.0, 1e-40
    reason = of(changed(m, grad_norm=own)).top.direction.reason
    assert "3 of 1024" in reason
    assert "5 of 1024" in reason
    assert "of 1024 gradients" not in of(m).top.direction.reason


def test_gradients_that_underflow_count_as_wrong_and_true_zeros_do_not():
    m = fake()
    cosines = m.arrays["grad_cos64"].copy()
    cosines[-1, :600] = np.nan
    lost = of(changed(m, grad_cos64=cosines)).top.direction
    assert lost.status == "noise"
    assert lost.median == 1.0
    assert "600 vanished" in lost.reason
    norms = m.arrays["grad_norm64"].copy()
    norms[-1, :600] = 0.0
    fitted = of(changed(m, grad_cos64=cosines, grad_norm64=norms)).top.direction
    assert (fitted.status, fitted.n) == ("valid", 424)


def test_the_clamp_depends_on_both_norms():
    assert of(healthy(grad=1e-6)).top.clamp.status == "clear"
    assert of(healthy(grad=5e-9)).top.clamp.status == "distorted"
    m = healthy()
    norms = m.arrays["credit_norm"].copy()
    norms[-1] = 1e-7
    assert of(changed(m, credit_norm=norms)).top.clamp.status == "distorted"


def test_a_norm_of_exactly_epsilon_is_not_clamped_and_the_share_must_be_exceeded():
    m = healthy()
    eps = 2.0**-27
    norms = m.arrays["grad_norm"].copy()
    norms[-1] = eps * GROUP
    assert of(changed(m, grad_norm=norms), cosine_eps=eps).top.clamp.share == 0
    norms[-1, :256] /= 2
    clamp = of(changed(m, grad_norm=norms), cosine_eps=eps, clamp_share=0.25).top.clamp
    assert (clamp.share, clamp.status) == (0.25, "clear")
    norms[-1, 256] /= 2
    assert of(changed(m, grad_norm=norms), cosine_eps=eps, clamp_share=0.25).top.clamp.status == "distorted"


def test_a_clamped_cosine_is_never_shown_without_its_label():
    for layer in of(exploded(grad=1e-10)).layers:
        assert "clamped at 1e-08, distorted" in str(layer.credit.clamped)
    assert "(clamped at 1e-08)" in str(of(healthy()).top.credit.clamped)


def test_without_a_replay_a_cosine_is_shown_with_its_caveat_and_claims_nothing():
    report = judge(healthy(replay=False))
    q = report.quantities
    assert f"{q.top.credit.cos:.3f}" == "0.250 (direction not checked)"
    assert f"{q.aggregates.a1:.2f}" == "0.26 (direction not checked)"
    assert report.claims["alignment"].outcome == "inconclusive"


def test_credit_that_float64_does_not_reproduce_is_invalid():
    m = healthy()
    bad = changed(m, credit_cos64=np.where(np.arange(5)[:, None] == 3, 0.1, np.ones((5, 1024))))
    report = judge(bad)
    assert "the credit is noise" in str(report.quantities.layers[3].credit.cos)
    assert report.claims["alignment"].shown == "walked back: noise"
    good = judge(changed(m, credit_cos64=np.ones((5, 1024))))
    assert good.claims["alignment"].outcome == "stands"


def test_invalid_wherever_it_appears():
    report = judge(noise(), Evidence.of(0.6, 0.3))
    q = report.quantities
    for layer in (3, 4):
        credit = q.layers[layer].credit
        for number in (credit.cos, credit.clamped, credit.z):
            assert number.value is None
            assert f"{number:.3f}".startswith("INVALID (the reference is noise")
    for number in (q.aggregates.a1, q.aggregates.a2, q.aggregates.a3, q.aggregates.a4, q.aggregates.deep_mean):
        assert str(number).startswith("INVALID (it rests on layer 3: the reference is noise")
    card = report.to_json()
    for name in ("A1", "A2", "A3", "A4", "deep_mean", "deep_mean_papers", "concentration"):
        assert card["aggregates"][name]["status"] == "invalid"
        assert card["aggregates"][name]["value"] is None
    assert card["claim"]["alignment"]["status"] == "invalid"
    assert card["layers"][3]["credit"]["cos"]["value"] is None
    assert {check["id"] for check in card["checks"] if check["shown"] == "INVALID"} == {"direction", "concentration"}
    assert "INVALID (it rests on layer 3" in card["chain"][0]["answer"]
    printed = str(report)
    assert printed.count("INVALID") >= 6
    layers = printed.split("block")[0]
    rows = [line for line in layers.splitlines() if line.startswith(("3 ", "4 "))]
    assert [row.split()[-1] for row in rows] == ["INVALID", "INVALID"]


def test_the_cls_token_before_the_first_block_is_not_informative():
    q = of(healthy(pool="cls"))
    assert "not informative" in str(q.layers[0].credit.cos)
    assert q.aggregates.a1.value == pytest.approx(0.25)
    assert "layer 0 left out: cls" in str(q.aggregates.a1)
    assert 0 not in q.growth


@pytest.mark.parametrize("case", ALL)
def test_cards_contain_no_nan(case):
    card = judge(ALL[case](), Evidence.of([0.3, 0.31], [0.2, 0.2])).to_json()
    json.dumps(card, allow_nan=False)


def test_numbers_print_their_value_their_caveat_or_their_reason():
    assert f"{Number.of(0.5):.2f}" == "0.50"
    assert f"{Number.of(0.5, 'clamped'):.2f}" == "0.50 (clamped)"
    assert f"{Number.missing('no replay'):.2f}" == "NOT MEASURED (no replay)"
    assert str(Number.of(float("nan"))) == "INVALID (it is not a finite number)"
    assert Number.invalid("x").short(".3f") == "INVALID"


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"layers": 6}, r"'hidden_norm' has 5 along 'layer'; expected 6"),
        ({"samples": 7}, r"has 1024 along 'sample'; expected 7"),
        ({"groups": None}, r"'groups' is None; expected a whole number"),
        ({"samples": 0}, r"hold no sample"),
        ({"layers": 1}, r"hold no block"),
        ({"labels": ["none"]}, r"1 labels for 5 hidden states"),
    ],
)
def test_measurements_that_do_not_fit_together_are_refused(facts, message):
    with pytest.raises(InputError, match=message):
        judge(changed(healthy(), facts))

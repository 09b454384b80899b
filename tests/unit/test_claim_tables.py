"""The four decision tables, row by row: alignment, depth, credit, headline."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from fake_measurements import changed, exploded, fake, healthy
from hypothesis import given, settings
from hypothesis import strategies as st

from walkback.judge.alignment_claim import ALIGNMENT_TABLE, alignment_of_seeds, judge_alignment
from walkback.judge.alignment_facts import AlignmentFacts, NullScore
from walkback.judge.claim import CHECKPOINT, Claim, ClaimOutcome
from walkback.judge.credit_claim import CREDIT_TABLE, CreditFacts, judge_credit
from walkback.judge.decision_table import matching_row
from walkback.judge.depth_claim import DEPTH_TABLE, DepthFacts, holm_depth, judge_depth
from walkback.judge.editions import EDITIONS
from walkback.judge.evidence import Evidence, OracleAccuracies
from walkback.judge.headline import HEADLINE_TABLE, HeadlineFacts
from walkback.judge.report import judge
from walkback.judge.statistics import Margin, paired_margin
from walkback.judge.thresholds import DiagnosticThresholds


def score(z, highest=0.0, null="random rotations"):
    return NullScore(null, z, 3.0, highest)


ALIGNED = AlignmentFacts(cosine=0.3, scores=(score(30.0, 0.33),))
NO_MARGIN = Margin(0.0, 3, "paired seeds", 0.1, (-0.2, 0.2))
MARGIN = Margin(10.0, 3, "paired seeds", 0.1, (9.0, 11.0))
WIDE = Margin(3.0, 3, "paired seeds", 0.1, (1.0, 5.0))
DEEP = DepthFacts(margin=MARGIN, gate=MARGIN)

ALIGNMENT_ROWS = {
    "frozen": (replace(ALIGNED, frozen=True), "not applicable"),
    "no credit": (AlignmentFacts(has_credit=False, has_update=False), "not made"),
    "invalid": (replace(ALIGNED, invalid="not the derivative"), "invalid"),
    "exact": (replace(ALIGNED, all_exact=True), "trivial"),
    "signs": (replace(ALIGNED, all_signs=True), "trivial"),
    "noise": (replace(ALIGNED, noise="noise at layer 3"), "walked back: noise"),
    "unsure": (replace(ALIGNED, unsure="degraded at layer 3"), "inconclusive"),
    "anti-aligned": (replace(ALIGNED, cosine=-0.3, scores=(score(-30.0),)), "walked back: anti-aligned"),
    "null missing": (replace(ALIGNED, scores=()), "inconclusive"),
    "absent": (replace(ALIGNED, cosine=0.0, scores=(score(0.0, 0.03),)), "walked back: null"),
    "not shown": (replace(ALIGNED, cosine=0.0, scores=(score(0.0, 0.3),)), "inconclusive"),
    "skip path": (replace(ALIGNED, skip_path="nothing is left"), "walked back: carried by the skip path"),
    "absent, fresh": (replace(ALIGNED, scores=(score(30.0), score(0.0, 0.03, "fresh"))), "walked back: null"),
    "not shown, fresh": (replace(ALIGNED, scores=(score(30.0), score(0.0, 0.3, "fresh"))), "inconclusive"),
    "blocks": (replace(ALIGNED, failing_blocks=(0, 2)), "walked back: not in blocks 0, 2"),
    "update": (replace(ALIGNED, failing_updates=(1,)), "walked back: update of block 1"),
    "blocks not shown": (replace(ALIGNED, unsure_blocks=(0, 2)), "inconclusive"),
    "update not shown": (replace(ALIGNED, unsure_updates=(1,)), "inconclusive"),
    "small": (replace(ALIGNED, cosine=0.04), "detectable, small"),
    "stands": (ALIGNED, "stands"),
}
DEPTH_ROWS = {
    "frozen": (replace(DEEP, frozen=True), "not applicable"),
    "no baseline": (DepthFacts(baseline=False, missing="none given"), "not checked"),
    "not finite": (replace(DEEP, not_finite="the loss is not finite"), "cannot be judged"),
    "chance": (replace(DEEP, at_chance="backprop is at chance"), "not informative"),
    "no interval": (replace(DEEP, margin=Margin(10.0, 1, "paired seeds")), "inconclusive"),
    "stands": (replace(DEEP, gate=None), "stands"),
    "depth not needed": (replace(DEEP, margin=NO_MARGIN, gate=NO_MARGIN), "not informative"),
    "gate undecided": (replace(DEEP, margin=NO_MARGIN, gate=WIDE), "inconclusive"),
    "no margin": (replace(DEEP, margin=NO_MARGIN), "walked back: no margin"),
    "undecided": (replace(DEEP, margin=WIDE), "inconclusive"),
}
BACK = CreditFacts(method="walked_back", oracles={"exact": "stands"}, gain=MARGIN)
CREDIT_ROWS = {
    "frozen": (replace(BACK, frozen=True), "not applicable"),
    "exact": (replace(BACK, is_exact=True), "not applicable"),
    "no oracle": (replace(BACK, oracles={}), "not made"),
    "not the credit": (replace(BACK, oracles={"exact": "walked_back"}), "not the credit"),
    "attributable": (BACK, "attributable to the credit"),
    "costs": (replace(BACK, method="stands"), "costs 10.0 pp"),
    "as good as exact": (replace(BACK, method="stands", gain=NO_MARGIN), "as good as exact credit"),
    "undecided": (replace(BACK, gain=Margin(1.0, 3, "paired seeds", 9.0, (-20.0, 22.0))), "inconclusive"),
}


def claim(question, outcome, name=""):
    return Claim(question, outcome, "reason", name)


def headline_facts(depth, alignment, claimed=True, grows=False):
    return HeadlineFacts(claim("depth", depth), claim("alignment", alignment), claimed, grows)


HEADLINE_ROWS = {
    "cannot be judged": (headline_facts("cannot_be_judged", "stands"), "cannot_be_judged"),
    "walked back": (headline_facts("stands", "walked_back"), "walked_back"),
    "trustworthy": (headline_facts("stands", "trivial"), "trustworthy"),
    "inconclusive": (headline_facts("not_checked", "stands"), "inconclusive"),
}
TABLES = {
    "alignment": (ALIGNMENT_TABLE, ALIGNMENT_ROWS),
    "depth": (DEPTH_TABLE, DEPTH_ROWS),
    "credit": (CREDIT_TABLE, CREDIT_ROWS),
    "headline": (HEADLINE_TABLE, HEADLINE_ROWS),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_row_is_reached_and_gives_its_outcome(name):
    table, rows = TABLES[name]
    assert [row.id for row in table] == list(rows)
    for row_id, (facts, shown) in rows.items():
        row = matching_row(table, facts)
        assert row.id == row_id
        result = row.result(facts)
        assert (result.outcome if name == "headline" else result.shown) == shown


margins = st.one_of(
    st.none(),
    st.builds(
        lambda mean, half, n: Margin(mean, n, "paired seeds", 1.0, (mean - half, mean + half) if n > 1 else None),
        st.floats(-30, 30),
        st.floats(0.01, 20),
        st.integers(1, 5),
    ),
)
texts = st.sampled_from(["", "a reason"])
blocks = st.sampled_from([(), (0,), (1, 3)])
alignment_facts = st.builds(
    AlignmentFacts,
    frozen=st.booleans(),
    has_credit=st.booleans(),
    has_update=st.booleans(),
    invalid=texts,
    all_exact=st.booleans(),
    all_signs=st.booleans(),
    noise=texts,
    unsure=texts,
    cosine=st.floats(-1, 1),
    scores=st.lists(st.builds(score, st.floats(-50, 50), st.floats(-1, 1)), max_size=2).map(tuple),
    null_problem=texts,
    skip_path=texts,
    failing_blocks=blocks,
    failing_updates=blocks,
    unsure_blocks=blocks,
    unsure_updates=blocks,
)
depth_facts = st.builds(
    DepthFacts,
    frozen=st.booleans(),
    baseline=st.booleans(),
    not_finite=texts,
    at_chance=texts,
    margin=margins,
    gate=margins,
).map(lambda facts: replace(facts, baseline=facts.baseline and facts.margin is not None))
depth_outcomes = st.sampled_from([row.result(DEPTH_ROWS[row.id][0]).outcome for row in DEPTH_TABLE])
credit_facts = st.builds(
    CreditFacts,
    frozen=st.booleans(),
    is_exact=st.booleans(),
    method=depth_outcomes,
    oracles=st.dictionaries(st.sampled_from(["exact", "input", "direction"]), depth_outcomes),
    gain=margins,
)


@settings(max_examples=300, deadline=None)
@given(alignment_facts, depth_facts, credit_facts)
def test_every_combination_is_decided_by_one_row(alignment, depth, credit):
    for found, table in (
        (judge_alignment(alignment), ALIGNMENT_TABLE),
        (judge_depth(depth), DEPTH_TABLE),
        (judge_credit(credit), CREDIT_TABLE),
    ):
        assert found.outcome in get_args(ClaimOutcome)
        assert found.row in [row.id for row in table]
        assert found.reason or found.row == "no baseline"


@settings(max_examples=300, deadline=None)
@given(alignment_facts, depth_facts, st.booleans(), st.booleans())
def test_no_headline_contradicts_a_claim(alignment, depth, claimed, grows):
    claims = judge_depth(depth), judge_alignment(alignment)
    facts = HeadlineFacts(*claims, claimed, grows)
    verdict = matching_row(HEADLINE_TABLE, facts).result(facts)
    failed = claims[0].outcome == "walked_back" or (claimed and claims[1].outcome in ("walked_back", "invalid"))
    if verdict.outcome == "trustworthy":
        assert claims[0].outcome == "stands"
        assert not failed
        assert not depth.not_finite
        assert ("scale unstable" in verdict.note) == grows
    if verdict.outcome == "walked_back":
        assert failed
        assert verdict.reasons
    if depth.not_finite and not depth.frozen and depth.baseline:
        assert verdict.outcome == "cannot_be_judged"


def test_an_alignment_that_is_not_claimed_decides_nothing():
    evidence = Evidence.of([0.6, 0.61, 0.6], {"method_shell": [0.3, 0.3, 0.31]})
    report = judge(exploded(growth=1.3), evidence)
    assert report.verdict == "walked_back"
    assert report.decision.decided_by == ("alignment",)
    only_depth = judge(exploded(growth=1.3), evidence, claimed=("depth",))
    assert only_depth.verdict == "trustworthy"
    assert only_depth.claims["alignment"].outcome == "walked_back"
    assert only_depth.to_json()["claimed"] == ["depth"]


def test_growth_is_named_beside_a_trustworthy_headline():
    evidence = Evidence.of([0.6, 0.61, 0.6], {"method_shell": [0.3, 0.3, 0.31]})
    report = judge(healthy(growth=200.0), evidence)
    assert report.verdict == "trustworthy"
    assert "scale unstable" in report.decision.sentence


BROKEN = {
    "loss": changed(healthy(), loss=healthy().arrays["loss"] * float("nan")),
    "output": changed(healthy(), error_norm=healthy().arrays["error_norm"] * float("inf")),
    "state": changed(healthy(), hidden_norm=healthy().arrays["hidden_norm"] * float("nan")),
    "one class": changed(healthy(), facts={"label_classes": 1}),
    "constant prediction": changed(healthy(), facts={"predicted_classes": 1}),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_model_without_predictions_is_trustworthy_under_no_edition(name):
    report = judge(BROKEN[name], Evidence.of([0.6, 0.61, 0.6], {"method_shell": [0.3, 0.3, 0.31]}))
    assert report.verdict == "cannot_be_judged"
    assert {report.verdicts[edition].outcome for edition in EDITIONS} <= {"cannot_be_judged", "walked_back"}


def fitted():
    """Small gradients because the error is small."""
    m = fake(grad=5e-8)
    return changed(m, error_norm=m.arrays["error_norm"] * 0 + 1e-4)


def test_edition_four_does_not_walk_back_a_fitted_network():
    evidence = Evidence.of(1.0, {"method_shell": 0.3})
    assert judge(fitted(), evidence).flags["D2"].status == "raised"
    assert judge(fitted(), evidence).verdicts["four"].outcome == "trustworthy"
    collapsed = judge(fake(grad=5e-8), evidence)
    assert collapsed.verdicts["four"].decided_by == ("D2",)
    as_published = judge(changed(fitted(), facts={"first_edition": True}), evidence)
    assert as_published.verdicts["four"].decided_by == ("D2",)


SEEDS = ([0.30, 0.305, 0.31], [0.35, 0.352, 0.351])
BP = ([0.60, 0.61, 0.605], [0.35, 0.352, 0.351])


def depth_of(ours, theirs, bp=BP, **given):
    frozen = {"method_shell": theirs, **({"bp_shell": bp[1]} if bp else {})}
    return judge(healthy(), Evidence.of(ours, frozen, bp[0] if bp else None, **given)).claims["depth"]


def test_a_walk_back_needs_a_task_where_depth_helps_backprop():
    assert depth_of(*SEEDS).row == "no margin"
    assert depth_of(*SEEDS, bp=None).row == "gate undecided"
    assert depth_of(*SEEDS, bp=([0.351, 0.353, 0.35], BP[1])).row == "depth not needed"
    assert depth_of([0.6, 0.61, 0.62], SEEDS[1], bp=None).row == "stands"


def test_bare_accuracies_need_the_size_of_the_test_set():
    bp = (0.6, 0.35)
    assert "test_samples=" in depth_of(0.30, 0.35, bp).reason
    found = depth_of(0.30, 0.35, bp, test_samples=10_000)
    assert (found.row, found.scope) == ("no margin", CHECKPOINT)
    assert "(this checkpoint)" in found.shown
    assert depth_of(0.60, 0.35, bp, test_samples=10_000).shown == "stands (this checkpoint)"
    assert depth_of(0.371, 0.35, bp, test_samples=1_000).row == "undecided"


def test_backprop_at_chance_says_nothing_about_depth():
    m = changed(healthy(), facts={"majority_share": 0.1})

    def row(bp_acc):
        frozen = {"method_shell": [0.1, 0.101, 0.1], "bp_shell": [0.1, 0.1, 0.1]}
        evidence = Evidence.of([0.1, 0.1, 0.101], frozen, bp_acc, test_samples=1000)
        return judge(m, evidence).claims["depth"].row

    assert row([0.1, 0.11, 0.1]) == "chance"
    assert row([0.2, 0.21, 0.2]) == "no margin"


def test_seeds_of_an_alignment_are_judged_by_the_worst():
    found = [judge_alignment(ALIGNMENT_ROWS[row][0]) for row in ("stands", "small", "invalid", "absent")]
    assert alignment_of_seeds(found).outcome == "invalid"
    assert alignment_of_seeds(found[:2]).outcome == "detectable_small"


def test_holm_agrees_with_the_interval_where_there_is_one_method():
    """At the limit p equals alpha and the interval ends at the line."""
    t = DiagnosticThresholds()
    at = Claim("depth", "stands", "reason", p=1 - t.confidence)
    assert holm_depth({"a": at}, t)["a"].outcome == "stands"
    assert holm_depth({"a": at, "b": at}, t)["a"].outcome == "inconclusive"


def credit_of(method, exact, exact_frozen=(0.35, 0.352, 0.351), **others):
    oracles = {"exact": OracleAccuracies("bp", exact, exact_frozen)}
    oracles |= {name: OracleAccuracies("bp", *found) for name, found in others.items()}
    frozen = {"method_shell": SEEDS[1], "bp_shell": BP[1]}
    evidence = replace(Evidence.of(method, frozen, BP[0]), oracles=oracles)
    return judge(healthy(), evidence).claims["credit"]


def test_the_credit_claim_compares_with_exact_credit_seed_by_seed():
    assert credit_of(SEEDS[0], (0.6, 0.61, 0.62)).outcome == "attributable_to_credit"
    assert credit_of(SEEDS[0], (0.3, 0.31, 0.305)).outcome == "not_the_credit"
    assert credit_of([0.5, 0.51, 0.5], (0.6, 0.61, 0.6)).shown == "costs 10.0 pp"
    assert credit_of([0.6, 0.61, 0.6], (0.605, 0.608, 0.605)).outcome == "as_good_as_exact"
    assert credit_of([0.40, 0.50, 0.45], (0.60, 0.45, 0.5)).outcome == "inconclusive"
    beside = credit_of(SEEDS[0], (0.6, 0.61, 0.62), input=((0.1, 0.11, 0.1), (0.35, 0.352, 0.351)))
    assert "the site" in beside.reason


def test_paired_margins_of_oracles_are_exact_minus_method():
    gain = paired_margin((0.6, 0.61, 0.62), SEEDS[0])
    assert f"{gain.mean:+.1f}" in credit_of(SEEDS[0], (0.6, 0.61, 0.62)).reason

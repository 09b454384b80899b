"""The alignment and depth claims, judged separately."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fake_measurements import backprop, changed, concentrated, exploded, fake, healthy, noise, without_blocks

from walkback.judge.alignment_claim import alignment_of_seeds
from walkback.judge.claim import Claim
from walkback.judge.depth_claim import holm_depth
from walkback.judge.evidence import Evidence
from walkback.judge.report import judge
from walkback.judge.thresholds import DiagnosticThresholds


def alignment(m, **context):
    return judge(m, context=context).claims["alignment"]


NEEDED = {"bp_shell": [0.35, 0.35, 0.351]}
"""With backprop's accuracies below: depth helps backprop."""
BP = [0.6, 0.61, 0.6]


def depth(ours, theirs, **given):
    return judge(healthy(), Evidence.of(ours, {"method_shell": theirs, **NEEDED}, **({"bp_acc": BP} | given))).claims[
        "depth"
    ]


@pytest.mark.parametrize(
    ("m", "shown"),
    [
        (healthy(), "stands"),
        (healthy(fresh=0.0), "stands"),
        (healthy(fresh=0.25), "walked back: null"),
        (healthy(cosines=[0.04] * 5), "detectable, small"),
        (healthy(cosines=[-0.3] * 5), "walked back: anti-aligned"),
        (exploded(), "walked back: null"),
        (noise(), "walked back: noise"),
        (concentrated(), "walked back: not in block 2"),
        (without_blocks(healthy()), "inconclusive"),
        (backprop(), "trivial"),
        (fake(), "not made"),
        (healthy(replay=False), "inconclusive"),
        (healthy(replay_cos=0.95), "inconclusive"),
        (changed(healthy(), null_haar_std=None), "inconclusive"),
        (healthy(null_std=0.2, cosines=[0.1] * 5), "inconclusive"),
        (healthy(blocks=1, cosines=[0.3, 0.3], site="input"), "stands"),
        (healthy(blocks=1, cosines=[0.3, 0.3], site="input", labels=["exact", "none"]), "stands"),
    ],
)
def test_outcomes_of_the_alignment_claim(m, shown):
    assert alignment(m).shown == shown


def test_an_alignment_exactly_at_a_threshold_reaches_it():
    report = judge(healthy())
    a = report.quantities.aggregates
    lowest = min(block.used_z.known for block in report.quantities.blocks)
    for name, at in (("null_z", lowest), ("small_alignment", a.deep_mean.known)):
        above = at * (1 + 1e-9)
        assert report.rejudge(replace(report.thresholds, **{name: at})).claims["alignment"].outcome == "stands"
        assert report.rejudge(replace(report.thresholds, **{name: above})).claims["alignment"].outcome != "stands"


def with_first_block(used: float, update: float, width: float):
    """Healthy measurements, but block 0 with these cosines; `width` is that of both nulls."""
    m = healthy()
    used_cos, stds = m.arrays["used_cos"].copy(), m.arrays["null_used_std"].copy()
    used_cos[0] += used - used_cos[0].mean()
    stds[0] = width
    update_cos = np.full((4, 8), 0.3)
    update_cos[0] = update
    draws = np.tile([-1.0, 1.0], (4, 10)) * 0.01
    draws[0] *= width / 0.01
    return changed(m, used_cos=used_cos, null_used_std=stds, update_cos=update_cos, null_update=draws)


@pytest.mark.parametrize(
    ("used", "update", "width", "shown"),
    [
        (0.3, 0.3, 0.01, "stands"),
        # Not above its null, and everything from 0.05 on excluded; then not excluded.
        (0.0, 0.3, 0.01, "walked back: not in block 0"),
        (0.1, 0.3, 0.05, "inconclusive"),
        (0.3, 0.0, 0.01, "walked back: update of block 0"),
        (0.3, 0.1, 0.05, "inconclusive"),
        (0.3, -0.5, 0.05, "walked back: update of block 0"),
    ],
)
def test_a_block_walks_the_claim_back_only_where_its_alignment_is_shown_to_be_small(used, update, width, shown):
    assert alignment(with_first_block(used, update, width)).shown == shown


def test_noise_outside_the_judged_layers_does_not_affect_the_claim():
    m = healthy(replay_cos=[0.1, 1, 1, 1, 1])
    assert alignment(m).outcome == "stands"


def test_a_real_direction_under_the_clamp_still_makes_an_alignment():
    assert alignment(healthy(grad=1e-12)).outcome == "stands"


def test_claims_are_not_applicable_to_frozen_blocks():
    report = judge(healthy(), Evidence.of(0.3, 0.3), context={"shell": "method"})
    assert {claim.outcome for claim in report.claims.values()} == {"not_applicable"}
    assert alignment(healthy(), shell="none").outcome == "stands"


def test_over_seeds_an_alignment_stands_only_if_it_stands_in_each():
    good, bad = alignment(healthy()), alignment(exploded())
    assert alignment_of_seeds([good, good]).outcome == "stands"
    claim = alignment_of_seeds([good, bad, good])
    assert claim.shown == "walked back: null"
    assert claim.reason.startswith("in 1 of 3 seeds")


def test_depth_by_its_interval():
    assert depth([0.61, 0.62, 0.615], [0.35, 0.35, 0.35]).outcome == "stands"
    back = depth([0.30, 0.31, 0.305], [0.35, 0.35, 0.35])
    assert back.shown == "walked back: no margin"
    assert depth([0.36, 0.40, 0.38], [0.35, 0.35, 0.35]).outcome == "inconclusive"
    assert depth([0.6], [0.35]).outcome == "inconclusive"
    assert depth(None, 0.35).outcome == "not_checked"
    assert depth(0.6, None).outcome == "not_checked"
    assert depth(0.9, 0.9, bp_acc=0.8).outcome == "inconclusive"


def test_a_depth_claim_stands_from_a_lower_end_at_the_threshold_and_fails_with_an_upper_end_under_it():
    evidence = Evidence.of([0.42, 0.45, 0.44], {"method_shell": [0.35, 0.35, 0.35], **NEEDED}, BP)
    report = judge(healthy(), evidence)
    low, high = report.flags["D3"].interval
    for line, outcome in (
        (low - 1e-6, "stands"),
        (low, "stands"),
        (low + 1e-6, "inconclusive"),
        (high, "inconclusive"),
        (high + 1e-6, "walked_back"),
    ):
        found = report.rejudge(replace(report.thresholds, frozen_acc_margin_pp=line)).claims["depth"]
        assert found.outcome == outcome, line


def test_two_seeds_are_not_judged_over_the_samples_of_one():
    base, better = np.zeros(1024, dtype=bool), np.ones(1024, dtype=bool)
    stored = {"correct": better, "frozen_correct": {"method_shell": base}}
    for accuracies, outcome in (([0.9, 0.9], "inconclusive"), (0.9, "stands")):
        evidence = Evidence.of(accuracies, {"method_shell": 0.3}, **stored)
        assert judge(healthy(), evidence).claims["depth"].outcome == outcome


def test_one_seed_is_judged_over_samples_where_correctness_was_stored():
    rng = np.random.default_rng(0)
    base = rng.uniform(size=1024) < 0.35
    better = base | (rng.uniform(size=1024) < 0.4)
    claim = depth(float(better.mean()), float(base.mean()), correct=better, frozen_correct={"method_shell": base})
    assert claim.outcome == "stands"
    assert "1024 samples" in claim.reason
    m = changed(healthy(), correct=base.astype(np.float64))
    bp = np.ones(1024, dtype=bool)
    own = Evidence.of(
        0.35,
        {"method_shell": 0.6, "bp_shell": 0.6},
        1.0,
        frozen_correct={"method_shell": better, "bp_shell": better},
        bp_correct=bp,
    )
    assert judge(m, own).claims["depth"].outcome == "walked_back"


def test_holm_makes_insignificant_claims_inconclusive():
    t = DiagnosticThresholds()
    claims = {"a": Claim("depth", "stands", "a", p=0.001), "b": Claim("depth", "stands", "b", p=0.03)}
    claims |= {"c": Claim("depth", "inconclusive", "c", p=0.5), "d": Claim("depth", "not_made", "d")}
    after = holm_depth(claims, t)
    assert [claim.outcome for claim in after.values()] == ["stands", "inconclusive", "inconclusive", "not_made"]
    assert "Holm" in after["b"].reason


def test_the_chain_has_the_protocols_order():
    report = judge(exploded(), Evidence.of(0.306, 0.349), context={"replay": "float64 agrees"})
    questions = [step.question for step in report.chain]
    for word, question in zip(("alone", "reference", "random", "mode"), questions, strict=True):
        assert word in question
    answers = [step.answer for step in report.chain]
    assert answers[0].startswith("accuracy 0.306")
    assert answers[1].startswith("yes: |g_4|")  # Small, but float64 reproduces it.
    assert answers[2].startswith("no: ")
    assert "1a scale growth, 1b reference collapse, 2 concentrated credit" in answers[3]
    assert "replay: float64 agrees" in answers[3]
    assert "no intervention, cross architecture evidence" in answers[3]


def test_modes_by_name():
    def names(m):
        return [mode.name for mode in judge(m).modes]

    assert names(healthy()) == []
    assert names(healthy(cosines=[0.0] * 5)) == ["low credit"]
    assert names(healthy(grad=1e-9, group_cos=0.6)) == ["reference collapse"]
    assert "drift-dominated" in judge(healthy(grad=1e-9, group_cos=0.6)).modes[0].reason
    assert "sample-specific" in judge(healthy(grad=1e-9)).modes[0].reason

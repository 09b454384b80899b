"""The quantities of blocks: means, nulls, and which blocks matter singly."""

from __future__ import annotations

import numpy as np
import pytest
from fake_measurements import changed, healthy, without_blocks

from walkback.core.measurements import NULL_GROUPS, NULL_OVER_GROUPS, Measurements
from walkback.judge.blocks import NO_UPDATE
from walkback.judge.card_text import card_text
from walkback.judge.quantities import quantities
from walkback.judge.report import judge
from walkback.judge.thresholds import DiagnosticThresholds


def measured(**arrays):
    base = healthy()
    return Measurements({**base.arrays, **arrays}, base.facts)


def blocks(**arrays):
    return quantities(measured(**arrays), DiagnosticThresholds()).blocks


def sizes():
    base = healthy()
    return base.depth, int(base.facts["samples"]), int(base.facts["groups"])


def test_older_measurements_have_no_blocks():
    old = without_blocks(healthy())
    assert quantities(old, DiagnosticThresholds()).blocks == ()
    assert "blocks" not in judge(old).to_json()
    assert judge(old).claims["alignment"].outcome == "inconclusive"


def test_used_cos_is_a_mean_over_known_samples_in_widths_of_its_null():
    depth, samples, _ = sizes()
    values = np.full((depth, samples), 0.5)
    values[:, 0] = np.nan
    (first, *_) = blocks(
        used_cos=values, null_used_std=np.full(depth, 0.1), credit_ratio=np.full((depth, samples), 2.0)
    )
    assert first.used_cos.known == pytest.approx(0.5)
    assert f"1 of {samples}" in first.used_cos.reason
    assert first.used_z.known == pytest.approx(5)
    assert first.credit_ratio.known == 2


def test_update_cos_is_compared_with_the_draws_of_its_null():
    depth, _, groups = sizes()
    made = np.full((depth, groups), 0.8) + np.linspace(-0.1, 0.1, groups)
    null = np.tile(np.linspace(-0.2, 0.2, 20), (depth, 1))
    of_first_group = measured(update_cos=made, null_update=null)
    over_groups = changed(of_first_group, facts={NULL_OVER_GROUPS: True})
    of_two_groups = changed(of_first_group, facts={NULL_GROUPS: 2})
    width = null[0].std(ddof=1) * np.sqrt(1 + 1 / 20)
    # Measurements of 0.10 have the null of the first group, with whose cosine it is compared.
    for m, cosine in ((over_groups, 0.8), (of_two_groups, made[0, :2].mean()), (of_first_group, 0.7)):
        first = quantities(m, DiagnosticThresholds()).blocks[0]
        assert first.update_cos.known == pytest.approx(0.8)
        assert first.update_z.known == pytest.approx(cosine / width)
        assert first.update_null_std.known == pytest.approx(width)


def test_an_update_of_zeros_is_not_made():
    depth, _, groups = sizes()
    (first, *_) = blocks(update_cos=np.full((depth, groups), np.nan))
    assert (first.update_cos.reason, first.update_z.reason) == (NO_UPDATE, NO_UPDATE)


def test_a_block_matters_if_skipping_it_costs_more_than_chance():
    depth, samples, _ = sizes()
    correct = np.ones(samples)
    skipped = np.ones((depth, samples))
    skipped[0, : samples // 4] = 0
    skipped[1, 0] = 0
    found = blocks(correct=correct, lesion_skip=skipped)
    assert [block.matters for block in found] == [True] + [False] * (depth - 1)
    assert found[0].accuracy_skipped.known == pytest.approx(0.75, abs=0.01)


def test_the_text_card_has_the_columns_that_were_measured_in_80_columns():
    depth, samples, groups = sizes()
    text = card_text(
        judge(
            measured(
                used_cos=np.full((depth, samples), 0.5),
                null_used_std=np.full(depth, 0.1),
                credit_ratio=np.ones((depth, samples)),
                update_cos=np.full((depth, groups), 0.25),
                lesion_skip=np.ones((depth, samples)),
                lesion_cut=np.ones((depth + 1, samples)),
            )
        )
    )
    assert "used cos" in text
    assert "+0.250" in text
    assert "probe" not in text
    assert max(map(len, text.splitlines()[:-1])) <= 80

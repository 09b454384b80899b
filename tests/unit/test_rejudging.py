"""What a card holds for judging it again: intervals at any level, and the alignment claim by threshold."""

from __future__ import annotations

import json
from dataclasses import replace

import fake_audit
import pytest
from fake_measurements import ALL, healthy

from walkback.judge.card import read_card, seal
from walkback.judge.compare import compare_cards
from walkback.judge.evidence import Evidence
from walkback.judge.rejudging import NULL_Z_VALUES, StoredMargin
from walkback.judge.report import judge
from walkback.judge.statistics import paired_margin, paired_score_margin, unpaired_score_margin
from walkback.judge.thresholds import DiagnosticThresholds

OURS, THEIRS = [True] * 60 + [False] * 40, [True] * 45 + [False] * 30 + [True] * 5 + [False] * 20
MARGINS = {
    "seeds": paired_margin([0.61, 0.64, 0.62], [0.5, 0.55, 0.56]),
    "samples": paired_score_margin(OURS, THEIRS),
    "test set": unpaired_score_margin(0.61, 0.56, 1000, 1000),
}


@pytest.mark.parametrize("name", MARGINS)
@pytest.mark.parametrize("level", [0.05, 0.05 / 3, 0.05 / 7])
def test_a_stored_margin_has_the_interval_of_its_test(name, level):
    """Inside of the interval at 1 - level the p-value is above the level, outside below."""
    margin = MARGINS[name]
    stored = StoredMargin.from_json(json.loads(json.dumps(StoredMargin.of(margin).to_json())))
    low, high = stored.interval_at(1 - level)
    for inside, outside in ((low + 1e-6, low - 1e-6), (high - 1e-6, high + 1e-6)):
        assert margin.p_value(inside) > level > margin.p_value(outside)
    assert stored.interval_at(0.95) == pytest.approx(margin.interval)


@pytest.mark.parametrize("case", [*ALL, "weak"])
def test_the_steps_are_the_alignment_claim_at_every_threshold(case):
    made = healthy(cosines=[0.05, 0.03, 0.04, 0.06, 0.035], null_std=0.011) if case == "weak" else ALL[case]()
    report = judge(made, fake_audit.GOOD, method_name=case)
    steps = report.to_json()["rejudging"]["alignment"]
    for null_z in NULL_Z_VALUES:
        claim = report.rejudge(replace(DiagnosticThresholds(), null_z=null_z)).claims["alignment"]
        (*_, step) = [step for step in steps if step["null_z"] <= null_z]
        assert (step["outcome"], step["name"]) == (claim.outcome, claim.name)
    assert len(steps) > 1 or case != "weak"


def test_a_card_without_these_numbers_is_read_and_is_no_difference():
    found = judge(ALL["healthy"](), Evidence(), method_name="x").to_json()
    older = {key: value for key, value in found.items() if key != "rejudging"}
    assert "rejudging" not in read_card(seal(older))
    assert compare_cards(older, found) == []

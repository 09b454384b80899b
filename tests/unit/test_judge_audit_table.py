"""Several methods in one table: worst verdict over seeds, depth corrected for multiple comparisons."""

from __future__ import annotations

from dataclasses import replace

import fake_measurements as fakes
import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkback.core.errors import InputError
from walkback.judge.audit_table import make_audit_table, worst_outcome
from walkback.judge.evidence import Evidence
from walkback.judge.report import judge
from walkback.judge.thresholds import DiagnosticThresholds


def report(method="dfa", seed=1, measured=None, ours=(0.50, 0.51, 0.52), shell=(0.40, 0.41, 0.41), **named):
    context = {"arch": "resmlp", "data": "cifar10", "seed": seed}
    evidence = Evidence.of(ours, {"method_shell": shell})
    return judge(measured or fakes.healthy(), evidence, method_name=method, context=context, **named).to_json()


def test_seeds_of_a_method_share_a_row_in_the_order_of_their_numbers():
    table = make_audit_table([report("fa", 2), report("dfa", 3), report("fa", 1), report("dfa", 1)])
    rows = [(row["method"], row["seeds"]) for row in table.to_json()["rows"]]
    assert rows == [("fa", [1, 2]), ("dfa", [1, 3])]
    assert table.verdict == "trustworthy"


def test_one_bad_seed_is_counted_and_decides():
    # Grown and collapsed in one seed of three; D3 passes in all.
    table = make_audit_table([report(seed=1), report(seed=2, measured=fakes.exploded()), report(seed=3)])
    (row,) = table.rows
    ruling = row.rulings["three"]
    assert (ruling.outcome, ruling.decided_by, ruling.agreeing_seeds, ruling.seeds) == (
        "walked_back",
        ("D1", "D2"),
        1,
        3,
    )
    assert table.verdict == "walked_back"
    assert row.claims["alignment"].outcome == "walked_back"
    assert row.claims["alignment"].reason.startswith("in 1 of 3 seeds")


def test_alignment_stands_only_where_it_stands_in_every_seed():
    (row,) = make_audit_table([report(seed=1), report(seed=2)]).rows
    assert row.claims["alignment"].outcome == "stands"
    (row,) = make_audit_table([report(seed=1), report(seed=2, measured=fakes.healthy(replay=False))]).rows
    assert row.claims["alignment"].outcome == "inconclusive"


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_seed_that_cannot_be_judged_decides_wherever_it_is(place):
    healthy = fakes.healthy()
    constant = replace(healthy, facts={**healthy.facts, "predicted_classes": 1})
    cards = [report(seed=seed, measured=constant if seed == place else healthy) for seed in range(3)]
    (row,) = make_audit_table(cards).rows
    assert row.claims["depth"].outcome == "cannot_be_judged"
    assert row.rulings["claims"].outcome == row.rulings["three"].outcome == "cannot_be_judged"


def test_depth_is_corrected_over_the_methods_of_the_table():
    # Alone its p is just under 0.05; with a second test Holm requires 0.025.
    close = {"ours": (0.462, 0.478, 0.500), "shell": (0.400, 0.400, 0.400)}
    alone = make_audit_table([report("a", **close)]).rows[0].claims["depth"]
    assert alone.outcome == "stands"
    assert 0.025 < alone.p < 0.05
    together = make_audit_table([report("a", **close), report("b", ours=(0.5, 0.4, 0.45))]).rows[0].claims["depth"]
    assert together.outcome == "inconclusive"
    assert "Holm's correction over 2 methods" in together.reason
    # Several seeds of one method are one test, not several.
    again = make_audit_table([report("a", seed=1, **close), report("a", seed=2, **close)]).rows[0].claims["depth"]
    assert again.outcome == "stands"


def test_cards_without_a_seed_get_rows_of_their_own():
    table = make_audit_table([report("mine", None), report("mine", None)])
    assert [len(row.cards) for row in table.rows] == [1, 1]


def test_no_cards_and_cards_with_different_thresholds_are_refused():
    with pytest.raises(InputError, match="no cards"):
        make_audit_table([])
    with pytest.raises(InputError, match="different editions or thresholds"):
        make_audit_table([report("a"), report("b", protocol="four")])
    with pytest.raises(InputError, match="different editions or thresholds"):
        make_audit_table([report("a"), report("b", thresholds=DiagnosticThresholds(g_norm_floor=1e-6))])


@given(st.lists(st.sampled_from(["trustworthy", "walked_back", "inconclusive"]), min_size=1))
def test_the_worst_verdict_decides(outcomes):
    found = worst_outcome(outcomes)
    assert found in outcomes
    if "walked_back" in outcomes:
        assert found == "walked_back"
    elif "inconclusive" in outcomes:
        assert found == "inconclusive"

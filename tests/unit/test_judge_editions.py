"""The editions: a verdict for every combination of checks, and the published audits' verdicts."""

from __future__ import annotations

import itertools

import pytest
from fake_measurements import backprop, exploded, fake, healthy

from walkback.core.errors import InputError
from walkback.judge.editions import EDITIONS, decide
from walkback.judge.evidence import Evidence
from walkback.judge.flag import FLAG_STATUSES, Flag
from walkback.judge.report import judge

IDS = ("D1", "D2", "direction", "D3")


def flags_of(*statuses):
    return {name: Flag(name, name, status, f"{name} says so") for name, status in zip(IDS, statuses, strict=True)}


def worlds(statuses):
    """Every way in which the unknown flags could turn out."""
    options = [{"raised": [True], "clear": [False]}.get(status, [True, False]) for status in statuses]
    return itertools.product(*options)


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("name", EDITIONS)
def test_every_combination_of_flags_has_exactly_one_verdict_and_it_is_the_logical_one(name, given):
    fails = {
        "three": lambda d1, d2, c, d3: (d1 and d2) or d3,
        "four": lambda d1, d2, c, d3: d1 or d2 or (d3 and given),
    }
    for statuses in itertools.product(FLAG_STATUSES, repeat=4):
        verdict = decide(name, flags_of(*statuses), baseline_given=given)
        possible = {bool(fails[name](*world)) for world in worlds(statuses)}
        expected = {(True,): "walked_back", (False,): "trustworthy"}.get(tuple(possible), "inconclusive")
        assert verdict.outcome == expected
        assert (verdict.reasons == ()) == (expected == "trustworthy")


@pytest.mark.parametrize("name", EDITIONS)
def test_direction_never_decides(name):
    for d1, d2, d3 in itertools.product(FLAG_STATUSES, repeat=3):
        outcomes = {decide(name, flags_of(d1, d2, c, d3), True).outcome for c in FLAG_STATUSES}
        assert len(outcomes) == 1


def test_only_checks_that_could_change_the_outcome_are_missing():
    verdict = decide("three", flags_of("clear", "missing", "clear", "missing"), True)
    assert verdict.decided_by == ("D3",)
    assert verdict.outcome == "inconclusive"
    assert "D3 is not measured: D3 says so" in verdict.line
    assert "D2" not in verdict.line


def test_printed_verdict_lines():
    assert decide("three", flags_of("clear", "raised", "clear", "clear"), True).line == "VERDICT: trustworthy"
    assert decide("four", flags_of("clear", "clear", "clear", "missing"), False).line == (
        "VERDICT: trustworthy (depth utility not checked)"
    )
    assert decide("three", flags_of("clear", "raised", "clear", "raised"), True).line.startswith(
        "VERDICT: needs walk-back: D3"
    )


def test_an_unknown_edition_gets_a_suggestion():
    with pytest.raises(InputError, match=r"Unknown protocol 'fuor'\. Did you mean 'four'\?"):
        judge(fake(), protocol="fuor")


def published(growth, grad, acc, frozen=0.349, drift=0.1, **given):
    evidence = Evidence.of(acc, None if frozen is None else {"method_shell": frozen})
    return judge(fake(growth=growth, grad=grad, group_cos=drift, **given), evidence, protocol="three")


AUDIT = {
    # ResMLP d=256 L=4, the first paper: growth, |g_L| @128, accuracy, (c); the verdicts of (three, four).
    "BP": ((1.3, 4e-4, 0.615, 0.349, 0.099), ("trustworthy", "trustworthy")),
    "DFA": ((237.0, 4.2e-9, 0.306, 0.349, 0.16), ("walked_back", "walked_back")),
    "State Bridge": ((12000.0, 1e-9, 0.205, 0.349, 0.53), ("walked_back", "walked_back")),
    "Credit Bridge": ((96.0, 1e-9, 0.289, 0.349, 0.37), ("walked_back", "walked_back")),
    # CIFAR-100, the later paper.
    "BP, CIFAR-100": ((1.0, 9.5e-4, 0.321, 0.178), ("trustworthy", "trustworthy")),
    "FA, CIFAR-100": ((15.6, 1.3e-6, 0.133, 0.178), ("walked_back", "walked_back")),
    "DFA, CIFAR-100": ((1004.0, 9.1e-9, 0.088, 0.178), ("walked_back", "walked_back")),
}


@pytest.mark.parametrize("name", AUDIT)
def test_the_published_audits_come_out_as_printed(name):
    figures, (three, four) = AUDIT[name]
    report = published(*figures)
    assert report.verdicts["three"].outcome == three
    assert report.verdicts["four"].outcome == four


def test_fa_fails_by_depth_alone():
    report = published(15.6, 1.3e-6, 0.133, 0.178)
    assert report.decision.decided_by == ("D3",)
    assert report.rejudge(protocol="four").decision.decided_by == ("D3",)


def test_ep_is_walked_back_by_its_own_depth_check_where_the_first_paper_prints_trustworthy():
    report = published(11.6, 1.3e-4, 0.316, 0.349, 0.02).rejudge(protocol="four")
    assert report.verdict == "walked_back"
    assert report.decision.decided_by == ("D3",)
    without = published(11.6, 1.3e-4, 0.316, None, 0.02).rejudge(protocol="four")
    assert without.decision.line == "VERDICT: trustworthy (depth utility not checked)"
    assert without.verdicts["three"].outcome == "inconclusive"


def test_growth_or_collapse_alone_fails_only_the_edition_four():
    for grown in (healthy(growth=60.0), healthy(grad=1e-8)):
        report = judge(grown, Evidence.of(0.6, {"method_shell": 0.3}))
        assert report.verdicts["three"].outcome == "trustworthy"
        assert report.verdicts["four"].outcome == "walked_back"


def test_another_frozen_baseline_does_not_replace_the_deciding_one():
    report = judge(backprop(), Evidence.of(0.6, {"bp_shell": 0.3}), protocol="four")
    assert report.flags["D3"].status == "missing"
    assert "only bp_shell" in report.flags["D3"].reason
    assert report.verdict == "inconclusive"


def test_where_frozen_blocks_reach_backprop_depth_is_not_informative():
    evidence = Evidence.of(0.85, {"method_shell": 0.908}, 0.796)
    report = judge(exploded(growth=2.0, grad=1e-3), evidence, protocol="three")
    assert report.flags["D3"].shown == "NOT INFORMATIVE"
    assert report.verdict == "inconclusive"
    assert "depth is not needed" in str(report)

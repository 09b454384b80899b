"""Both drivers train the same models, frozen leaves stay unchanged, and training resumes to the same bits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
import torch

import tiny
from walkback.training.driver import Snapshot
from walkback.training.fleet import Fleet
from walkback.training.resolved_run import ResolvedRun
from walkback.training.single import Single

PAIRS = pytest.mark.parametrize(("rule", "net"), tiny.driven_pairs())


@dataclass(frozen=True)
class Trained:
    resolved: ResolvedRun
    in_fleet: Snapshot
    alone: Snapshot


@cache
def trained(rule: str, net: str) -> list[Trained]:
    """Two epochs in float64 with strong decay, by both drivers."""
    fleets: dict = {}
    for text, seed in tiny.variants(rule, net):
        resolved = tiny.resolved(text, arch=tiny.arch(net), seeds=seed, weight_decay=0.5)
        fleets.setdefault(resolved.fleet_key(), []).append(resolved)
    assert max(map(len, fleets.values())) >= 4
    found = []
    for members in fleets.values():
        data = members[0].source.load(None)
        together = tiny.train(Fleet(members, data, tiny.CPU), 2)
        alone = [tiny.train(Single(resolved, data, tiny.CPU), 2)[0] for resolved in members]
        found += [Trained(*each) for each in zip(members, together, alone, strict=True)]
    return found


@PAIRS
def test_a_fleet_equals_its_models_trained_alone(rule, net):
    """With mixed seeds, and settings varied one at a time within each fleet."""
    for model in trained(rule, net):
        name = model.resolved.method
        # How far rounding carries depends on the processor's order of summation.
        assert tiny.distance(model.in_fleet.params, model.alone.params) < 1e-10, name
        assert tiny.distance(model.in_fleet.moments, model.alone.moments) < 1e-10, name
        assert not tiny.same_bits(model.alone.params, model.resolved.params()), "training changed nothing"


@PAIRS
def test_frozen_leaves_keep_their_bits_under_weight_decay_and_all_others_change(rule, net):
    """Frozen are the blocks of a frozen baseline, and leaves without credit; data statistics are recomputed."""
    for model in trained(rule, net):
        resolved = model.resolved
        without_credit = resolved.rule.untrained(resolved.net)
        for name, leaf in resolved.params().items():
            if name in resolved.net.buffers:
                continue
            frozen = resolved.shared_options.shell != "none" and name.startswith("blocks.")
            frozen = frozen or name.startswith(without_credit)
            for found in (model.alone, model.in_fleet):
                assert torch.equal(found.params[name], leaf) == frozen, (resolved.method, name)
                assert (f"first.{name}" in found.moments) != frozen


@PAIRS
@pytest.mark.parametrize("make", [lambda rs, d: Single(rs[0], d, tiny.CPU), lambda rs, d: Fleet(rs, d, tiny.CPU)])
def test_resuming_from_a_snapshot_and_restarting_give_the_same_bits(rule, net, make):
    methods = (rule, tiny.frozen_baseline(rule))
    resolved_runs = [tiny.resolved(text, arch=tiny.arch(net), dtype="float32", epochs=3) for text in methods]
    data = resolved_runs[0].source.load(None)
    uninterrupted = make(resolved_runs, data)
    start = uninterrupted.snapshots()
    middle = tiny.train(uninterrupted, 1)
    accuracy = uninterrupted.test_accuracy()
    end = tiny.train(uninterrupted, 2)
    again = make(resolved_runs, data)
    assert_same_bits(again.snapshots(), start)
    again.restore(middle)
    assert again.test_accuracy() == accuracy
    assert_same_bits(tiny.train(again, 2), end)
    again.restore(start)
    assert_same_bits(tiny.train(again, 1), middle)


def assert_same_bits(left: list[Snapshot], right: list[Snapshot]) -> None:
    for one, other in zip(left, right, strict=True):
        assert one.epoch == other.epoch
        assert tiny.same_bits(one.params, other.params)
        assert tiny.same_bits(one.moments, other.moments)
        assert tiny.same_bits(one.state, other.state)


def test_a_fleets_snapshots_can_be_resumed_by_the_single_driver():
    resolved = tiny.resolved("dfa", epochs=3)
    other = tiny.resolved("dfa:shell=method", epochs=3)
    data = resolved.source.load(None)
    fleet = Fleet([resolved, other], data, tiny.CPU)
    middle = tiny.train(fleet, 1)
    end = tiny.train(fleet, 2)
    for index, one in enumerate((resolved, other)):
        single = Single(one, data, tiny.CPU)
        single.restore([middle[index]])
        assert tiny.distance(tiny.train(single, 2)[0].params, end[index].params) < 1e-11


def test_sample_order_and_initial_weights_depend_on_the_seed_and_not_on_the_method():
    from walkback.data.feed import Feed

    resolved = tiny.resolved("bp")
    feed = Feed(resolved.source.load(None), 16, "none", resolved.dtype, tiny.CPU)
    assert feed.order(1, 0)["index"].equal(feed.order(1, 0)["index"])
    assert not feed.order(1, 0)["index"].equal(feed.order(2, 0)["index"])
    assert not feed.order(1, 0)["index"].equal(feed.order(1, 1)["index"])
    start_bp, start_dfa = resolved.params(), tiny.resolved("dfa").params()
    assert tiny.same_bits(start_bp, start_dfa)


def test_a_fleet_reports_each_models_own_log_and_accuracy():
    resolved_runs = [tiny.resolved("bp", seeds=1), tiny.resolved("bp", seeds=2), tiny.resolved("bp:shell=bp", seeds=1)]
    data = resolved_runs[0].source.load(None)
    fleet = Fleet(resolved_runs, data, tiny.CPU)
    logs, accuracies = fleet.train_epoch(lambda _: None), fleet.test_accuracy()
    for resolved, log, accuracy in zip(resolved_runs, logs, accuracies, strict=True):
        single = Single(resolved, data, tiny.CPU)
        (own,) = single.train_epoch(lambda _: None)
        assert own == pytest.approx(log, rel=1e-12)
        assert single.test_accuracy() == [accuracy]

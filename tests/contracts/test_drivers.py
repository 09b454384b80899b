"""A fleet trains what the single driver trains; frozen means frozen; the same seed gives the same bits."""

from __future__ import annotations

import pytest

import tiny
from walkback.training.fleet import Fleet
from walkback.training.single import Single

PAIRS = pytest.mark.parametrize(("rule", "net"), tiny.pairs())


@PAIRS
def test_a_fleet_equals_its_models_trained_alone(rule, net):
    """12 steps in float64, seeds mixed, the settings varied one at a time within each fleet's bucket."""
    recipes = [tiny.recipe(text, arch=tiny.arch(net), seeds=seed) for text in tiny.variants(rule) for seed in (1, 2)]
    fleets: dict = {}
    for recipe in recipes:
        fleets.setdefault(recipe.bucket(), []).append(recipe)
    assert max(map(len, fleets.values())) >= 4
    for members in fleets.values():
        data = members[0].source.load(None)
        together = tiny.train(Fleet(members, data, tiny.CPU), 2)
        for recipe, snapshot in zip(members, together, strict=True):
            (alone,) = tiny.train(Single(recipe, data, tiny.CPU), 2)
            assert tiny.distance(snapshot.params, alone.params) < 1e-11, recipe.method
            assert tiny.distance(snapshot.moments, alone.moments) < 1e-10, recipe.method
            assert not tiny.same_bits(alone.params, recipe.params()), "nothing was trained"


@PAIRS
@pytest.mark.parametrize("make", [lambda r, d: Single(r, d, tiny.CPU), lambda r, d: Fleet([r], d, tiny.CPU)])
def test_the_same_seed_gives_the_same_bits(rule, net, make):
    recipe = tiny.recipe(rule, arch=tiny.arch(net), dtype="float32")
    data = recipe.source.load(None)
    (first,), (second,) = (tiny.train(make(recipe, data), 2) for _ in range(2))
    assert tiny.same_bits(first.params, second.params)
    assert tiny.same_bits(first.moments, second.moments)


@PAIRS
def test_a_frozen_block_keeps_its_bits_through_weight_decay(rule, net):
    shell = f"{rule}:shell={'bp' if rule == 'bp' else 'method'}"
    recipe = tiny.recipe(shell, arch=tiny.arch(net), dtype="float32", weight_decay=0.5, lr=0.1)
    free = tiny.recipe(rule, arch=tiny.arch(net), dtype="float32", weight_decay=0.5, lr=0.1)
    data = recipe.source.load(None)
    start = recipe.params()
    (alone,) = tiny.train(Single(recipe, data, tiny.CPU), 2)
    beside, other = tiny.train(Fleet([recipe, free], data, tiny.CPU), 2)
    for found in (alone, beside):
        for name, leaf in start.items():
            assert (found.params[name] == leaf).all().item() == name.startswith("blocks."), name
    assert not any((other.params[n] == leaf).all() for n, leaf in start.items() if n.endswith("weight"))


@PAIRS
@pytest.mark.parametrize("make", [lambda rs, d: Single(rs[0], d, tiny.CPU), lambda rs, d: Fleet(rs, d, tiny.CPU)])
def test_going_on_from_a_snapshot_gives_the_same_bits(rule, net, make):
    shell = f"{rule}:shell={'bp' if rule == 'bp' else 'method'}"
    recipes = [tiny.recipe(text, arch=tiny.arch(net), dtype="float32", epochs=3) for text in (rule, shell)]
    data = recipes[0].source.load(None)
    through = make(recipes, data)
    middle = tiny.train(through, 1)
    end = tiny.train(through, 2)
    again = make(recipes, data)
    again.restore(middle)
    for left, right in zip(tiny.train(again, 2), end, strict=True):
        assert left.epoch == right.epoch == 3
        assert tiny.same_bits(left.params, right.params)
        assert tiny.same_bits(left.moments, right.moments)
        assert tiny.same_bits(left.state, right.state)


def test_a_snapshot_moves_between_the_drivers():
    recipe = tiny.recipe("dfa", epochs=3)
    other = tiny.recipe("dfa:shell=method", epochs=3)
    data = recipe.source.load(None)
    fleet = Fleet([recipe, other], data, tiny.CPU)
    middle = tiny.train(fleet, 1)
    end = tiny.train(fleet, 2)
    for index, one in enumerate((recipe, other)):
        single = Single(one, data, tiny.CPU)
        single.restore([middle[index]])
        assert tiny.distance(tiny.train(single, 2)[0].params, end[index].params) < 1e-11


def test_methods_of_one_seed_see_the_same_data_and_other_seeds_other_data():
    from walkback.data.feed import Feed

    recipe = tiny.recipe("bp")
    feed = Feed(recipe.source.load(None), 16, "none", recipe.dtype, tiny.CPU)
    assert feed.order(1, 0)["index"].equal(feed.order(1, 0)["index"])
    assert not feed.order(1, 0)["index"].equal(feed.order(2, 0)["index"])
    assert not feed.order(1, 0)["index"].equal(feed.order(1, 1)["index"])
    start_bp, start_dfa = recipe.params(), tiny.recipe("dfa").params()
    assert tiny.same_bits(start_bp, start_dfa)


def test_a_fleet_reports_each_models_own_log_and_accuracy():
    recipes = [tiny.recipe("bp", seeds=1), tiny.recipe("bp", seeds=2), tiny.recipe("bp:shell=bp", seeds=1)]
    data = recipes[0].source.load(None)
    fleet = Fleet(recipes, data, tiny.CPU)
    logs, accuracies = fleet.train_epoch(lambda _: None), fleet.test_accuracy()
    for recipe, log, accuracy in zip(recipes, logs, accuracies, strict=True):
        single = Single(recipe, data, tiny.CPU)
        (own,) = single.train_epoch(lambda _: None)
        assert own == pytest.approx(log, rel=1e-12)
        assert single.test_accuracy() == [accuracy]

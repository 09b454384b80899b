"""The plan: who trains together, in how many fleets, and at what counted cost."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tiny
from walkback.training.planning import load_balance
from walkback.training.planning import plan_fleets as planning
from walkback.training.planning.cost_model import Speed
from walkback.training.planning.fleet_plan import Group, halves
from walkback.training.planning.flop_count import count_step
from walkback.training.planning.load_balance import Workers, evened, ready_first, shared_out
from walkback.training.planning.plan_fleets import plan

ROOMY = 1 << 40


@pytest.fixture(autouse=True)
def known_speed(monkeypatch):
    """A device that moves 1e9 bytes a second and takes a microsecond for a product, however many models share it, and
    another for each of them; no time is spent on measuring it."""
    known = Speed(tiny.CPU, bandwidth=1e9, timed=lambda product, models, device: 1e-6 * (1 + models))
    monkeypatch.setattr(planning, "Speed", type("Known", (), {"of": staticmethod(lambda device: known)}))


def groups(recipes, keys=None, driver="fleet", memory=ROOMY):
    return plan(recipes, keys or [()] * len(recipes), driver, tiny.CPU, memory)


def names(found):
    return [[recipe.name for recipe in group.recipes] for group in found]


def memory_of_one(method="bp"):
    (group,) = groups([tiny.recipe(method)])
    return group.memory


@pytest.mark.parametrize(
    "methods",
    [
        ["bp", "bp:shell=bp", "bp:penalty=0.01", "bp:penalty=0.5,shell=bp"],
        ["dfa", "dfa:scale=unit_error", "dfa:shell=method", "dfa:penalty=0.01"],
        ["fa:site=input", "fa:site=input,shell=method"],
    ],
)
def test_treatments_and_seeds_of_one_rule_share_a_fleet(methods):
    recipes = [tiny.recipe(method, seeds=seed) for method in methods for seed in (1, 2)]
    (group,) = groups(recipes)
    assert group.recipes == tuple(recipes)
    assert group.driver == "fleet"


APART = [
    (tiny.recipe("fa"), tiny.recipe("dfa")),
    (tiny.recipe("fa"), tiny.recipe("fa:site=input")),
    (tiny.recipe("fa:penalty=0.1"), tiny.recipe("fa:penalty=0.1,penalty_reduction=mean")),
    (tiny.recipe(), tiny.recipe(lr=0.01)),
    (tiny.recipe(), tiny.recipe(batch=8)),
    (tiny.recipe(), tiny.recipe(epochs=3)),
    (tiny.recipe(), tiny.recipe(weight_decay=0.0)),
    (tiny.recipe(), tiny.recipe(dtype="float32")),
    (tiny.recipe(), tiny.recipe(arch="resmlp:d=8,depth=2")),
    (tiny.recipe(), tiny.recipe(data=f"{tiny.DATA},noise=0.3")),
]


@pytest.mark.parametrize(("left", "right"), APART, ids=lambda recipe: recipe.name)
def test_what_a_step_cannot_tell_apart_does_not_share_a_fleet(left, right):
    assert names(groups([left, right])) == [[left.name], [right.name]]


def test_groups_and_their_runs_keep_the_order_asked_for():
    recipes = [tiny.recipe(method, seeds=seed) for seed in (3, 1) for method in ("dfa", "bp")]
    assert names(groups(recipes)) == [[recipes[0].name, recipes[2].name], [recipes[1].name, recipes[3].name]]


def test_keys_keep_apart_what_the_bucket_would_mix():
    recipes = [tiny.recipe(seeds=seed) for seed in range(4)]
    found = groups(recipes, keys=["x", "y", "x", ()])
    assert names(found) == [[recipes[0].name, recipes[2].name], [recipes[1].name], [recipes[3].name]]


@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_a_bucket_too_large_is_cut_into_as_few_and_as_even_fleets_as_possible(count, most):
    recipes = [tiny.recipe(seeds=seed) for seed in range(count)]
    found = groups(recipes, memory=most * memory_of_one() + 1)
    sizes = [len(group.recipes) for group in found]
    assert len(sizes) == math.ceil(count / most)
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert [recipe for group in found for recipe in group.recipes] == recipes


def test_a_model_too_large_for_the_memory_is_still_tried_alone():
    found = groups([tiny.recipe(seeds=seed) for seed in range(3)], memory=1)
    assert [len(group.recipes) for group in found] == [1, 1, 1]


def test_the_single_driver_trains_one_by_one():
    found = groups([tiny.recipe(seeds=seed) for seed in range(3)], driver="single")
    assert [(len(group.recipes), group.driver) for group in found] == [(1, "single")] * 3


def test_bps_flops_are_those_counted_by_hand():
    batch, dim, d, depth, classes = 16, 6, 8, 3, 4
    recipe = tiny.recipe("bp", batch=batch, arch=f"resmlp:d={d},depth={depth}")
    assert (recipe.net.input_shape, recipe.net.classes) == ((dim,), classes)
    stem, blocks, head = dim * d, depth * 2 * d * d, d * classes
    forward = 2 * batch * (stem + blocks + head)
    weight_gradients = forward
    input_gradients = 2 * batch * (blocks + head)  # Nobody asks for the gradient in the pixels.
    assert count_step(recipe).flops == forward + weight_gradients + input_gradients


def test_dfa_costs_what_bp_costs_and_its_projections():
    """Its credit skips the blocks, but a block's own norm is trained through both of the block's Linears."""
    batch, d, depth, classes = 16, 8, 3, 4
    projections = 2 * batch * (depth + 1) * classes * d
    assert count_step(tiny.recipe("dfa")).flops == count_step(tiny.recipe("bp")).flops + projections


@pytest.mark.parametrize(("rule", "net"), tiny.driven_pairs())
def test_every_step_has_a_cost(rule, net):
    recipe = tiny.recipe(rule, arch=tiny.arch(net))
    count = count_step(recipe)
    assert min(count.small_operations, len(count.products), count.flops, count.bytes_made) > 0
    assert count.leaf_bytes == sum(leaf.nbytes for leaf in recipe.params().values())
    (group,) = groups([recipe])
    assert group.memory > count.leaf_bytes
    assert group.seconds > 0


def test_the_estimate_grows_with_what_there_is_to_do():
    (one,) = groups([tiny.recipe()])
    (longer,) = groups([tiny.recipe(epochs=4)])
    (two,) = groups([tiny.recipe(seeds=seed) for seed in (1, 2)])
    (longest,) = groups([tiny.recipe(epochs=6)])
    assert longest.seconds - longer.seconds == pytest.approx(longer.seconds - one.seconds), (
        "after its start, by the step"
    )
    assert one.seconds < two.seconds < 2 * one.seconds, "a fleet pays for its launches once"
    assert two.memory == 2 * one.memory


def test_a_group_is_labelled_by_its_methods_and_size():
    (group,) = groups([tiny.recipe(method) for method in ("dfa", "dfa:shell=method")])
    assert group.label == "dfa ×2"


def test_shells_of_a_large_network_train_apart_and_without_their_blocks_gradients():
    """The frozen blocks' gradients are most of what a large step costs; a small one costs little but its launches."""
    small = [tiny.recipe(method) for method in ("dfa", "dfa:shell=method")]
    assert len(groups(small)) == 1
    large = [tiny.recipe(method, arch="resmlp:d=2048,depth=1", batch=64) for method in ("dfa", "dfa:shell=method")]
    assert count_step(large[0]).mean_product > planning.LARGE_PRODUCT
    assert names(groups(large)) == [[large[0].name], [large[1].name]]


@pytest.fixture
def every_second_counts(monkeypatch):
    monkeypatch.setattr(load_balance, "WORTH_CUTTING", 0.0)


@pytest.mark.usefixtures("every_second_counts")
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_no_worker_has_more_than_its_share_where_fleets_can_be_cut(workers):
    found = groups([tiny.recipe(method, seeds=seed) for method in ("bp", "fa", "dfa") for seed in range(8)])
    even = evened(found, workers)
    loads = [sum(group.seconds for group in share) for share in shared_out(even, workers)]
    assert len(loads) == workers
    assert max(loads) <= 1.2 * sum(loads) / workers
    assert sorted(name for members in names(even) for name in members) == sorted(
        name for members in names(found) for name in members
    )
    assert even == found or workers > 1


def test_the_longest_fleets_are_given_out_first():
    found = groups([tiny.recipe("bp", epochs=epochs) for epochs in (1, 4, 2)])
    given = shared_out(found, 2)
    assert [[group.recipes[0].config.epochs for group in share] for share in given] == [[4], [2, 1]]
    assert [len(share) for share in shared_out(found, 8)] == [1, 1, 1]


def test_a_second_is_not_worth_a_cut():
    found = groups([tiny.recipe(seeds=seed) for seed in range(6)])
    assert evened(found, 2) == found


@pytest.mark.usefixtures("every_second_counts")
def test_runs_that_are_begun_keep_their_company():
    (group,) = groups([tiny.recipe(seeds=seed) for seed in range(6)])
    assert evened([group], 2, is_begun=lambda recipe: recipe.config.seed == 3) == [group]
    assert len(evened([group], 2)) == 2


@pytest.mark.parametrize(("shell", "most"), [("bp:shell=bp", 0.85), ("dfa:shell=method", 0.6)])
def test_shells_apart_are_counted_without_the_gradients_of_their_blocks(shell, most):
    """Backprop's shell still pulls gradients back through all blocks; DFA's needs their forward pass alone."""
    arch = tiny.arch("vit_mini")
    whole = tiny.recipe(shell.partition(":")[0], arch=arch)
    frozen = tiny.recipe(shell, arch=arch)
    every = count_step(whole).flops
    assert count_step(frozen).flops == every, "beside others every gradient is computed"
    assert count_step(frozen, frozen_apart=True).flops < most * every
    assert count_step(whole, frozen_apart=True).flops == pytest.approx(every, rel=0.01)


def test_nothing_is_timed_where_nobody_wants_to_know(monkeypatch):
    recipes = [tiny.recipe(method) for method in ("bp", "fa")]
    predicted = groups(recipes)
    monkeypatch.setattr(planning, "Speed", None)
    found = plan(recipes, [(), ()], "fleet", tiny.CPU, ROOMY, predict=False)
    assert [group.seconds for group in found] == [0.0, 0.0]
    assert names(found) == names(predicted)
    assert [group.memory for group in found] == [group.memory for group in predicted]


def timed(*seconds):
    """A fleet for each pair of seconds: ahead of its turn, and in all."""
    (group,) = groups([tiny.recipe()])
    return [replace(group, ahead=ahead, seconds=whole) for ahead, whole in seconds]


def test_processes_side_by_side_take_as_long_as_the_longest_share():
    found = timed((0, 6), (0, 4), (0, 3))
    assert Workers(1, in_turns=False).seconds(found) == 13
    assert Workers(2, in_turns=False).seconds(found) == 7
    assert Workers(8, in_turns=False).seconds(found) == 6
    assert Workers(8, in_turns=False).seconds([]) == 0
    (whole,) = groups([tiny.recipe(seeds=seed) for seed in range(4)])
    assert Workers(2, in_turns=False).seconds([replace(whole, seconds=100.0)]) == 50, "its fleet will be cut in two"


def test_on_one_gpu_compiling_is_hidden_behind_the_turns_of_others():
    found = timed((2, 10), (3, 10), (4, 10))
    assert Workers(1, in_turns=True).seconds(found) == 30
    assert Workers(3, in_turns=True).seconds(found) == 2 + 8 + 7 + 6
    assert Workers(2, in_turns=True).seconds(timed((30, 31), (30, 31))) == pytest.approx(32), (
        "the first has to be waited for"
    )
    assert Workers(2, in_turns=True).seconds(timed(*[(30, 31)] * 8)) == 124, "two compile two at a time"


def test_what_is_ready_first_is_given_out_first():
    found = timed((9, 10), (2, 20), (5, 6), (2, 3))
    assert [group.seconds for group in ready_first(found)] == [20, 3, 6, 10]
    assert Workers(2, in_turns=True).seconds(found) == 2 + 1 + 18 + 1 + 1


@pytest.mark.parametrize("net", ["resmlp", "small_cnn"])
def test_a_long_run_is_compiled_and_a_short_one_is_not(net):
    """On a GPU; only then are a convolution's products Winograd's."""
    asked = []

    def timed(product, models, device):
        asked.append(product.kind)
        return 1e-3 if product.kind != "matmul" else 1e-6

    speed = Speed(torch.device("cuda"), bandwidth=1e12, timed=timed)
    count = count_step(tiny.recipe(arch=tiny.arch(net)))
    short, long = (speed.estimate(count, 6, steps) for steps in (10, 10**7))
    assert long.ahead > short.ahead + 2
    saved = short.steps / 10 - long.steps / 10**7
    tiled = sum(times for product, times in count.products if product.kind != "matmul" and product.stride == 1)
    assert (tiled > 0) == (net == "small_cnn") == ("convolution" in asked)
    assert saved > 1e-3 * tiled, "none of these is done the library's way"


@pytest.fixture
def abreast(monkeypatch):
    monkeypatch.setitem(planning.ABREAST, "cpu", 3)


def of(count, **settings):
    """Recipes of so many fleets, two models in each."""
    methods = ("bp", "fa", "dfa", "dfa:site=input", "sham", "fa:site=input", "kp")[:count]
    return [tiny.recipe(method, seeds=seed, **settings) for method in methods for seed in (1, 2)]


@pytest.mark.usefixtures("abreast")
@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (2, [2]), (3, [3]), (4, [2, 2]), (5, [3, 2]), (7, [3, 2, 2])])
def test_small_fleets_are_trained_side_by_side_as_many_as_are_allowed(count, sizes):
    found = groups(of(count))
    assert [len(group.fleets) for group in found] == sizes
    assert [recipe for group in found for recipe in group.recipes] == of(count)
    assert all(len(fleet) == 2 for group in found for fleet in group.fleets)
    for group in found:
        again = groups(list(group.recipes))
        assert [each.fleets for each in again] == [group.fleets], "a worker that is given one plans the same"


@given(st.integers(0, 8), st.integers(0, 8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_behind_a_group_takes_no_time_again(first, second):
    """Going on twice is going on from the second; tracing and compiling have to be done again."""
    whole = Group((tiny.recipe(epochs=9),), "fleet", seconds=11.0, memory=1, flops=10, ahead=2.0)
    rest = whole.gone_on_from(first)
    assert (rest.done, rest.epochs_left, rest.ahead) == (first, 9 - first, 2.0)
    assert rest.seconds == pytest.approx(2 + 9 - first)
    assert rest.costs["operations"] == 10 * rest.steps_left == 10 * (9 - first) * tiny.recipe().steps_per_epoch
    again = rest.gone_on_from(second)
    assert again.seconds == pytest.approx(whole.gone_on_from(second).seconds)
    assert again.done == second


def test_a_group_whose_last_epoch_is_done_has_nothing_left():
    whole = Group((tiny.recipe(epochs=9),), "fleet", seconds=11.0, memory=1, flops=10, ahead=2.0)
    done = whole.gone_on_from(9)
    assert (done.steps_left, done.seconds) == (0, 2.0)
    assert done.gone_on_from(9) == done


@pytest.mark.usefixtures("abreast")
def test_what_takes_other_steps_or_is_large_or_was_begun_elsewhere_is_not(monkeypatch):
    assert [len(group.fleets) for group in groups(of(2) + of(2, epochs=5))] == [2, 2]
    assert [len(group.fleets) for group in groups(of(2) + of(2, batch=8))] == [2, 2]
    assert [len(group.fleets) for group in groups(of(2) + of(2, data=f"{tiny.DATA},noise=0.3"))] == [2, 2]
    assert [len(group.fleets) for group in groups(of(2), keys=["x", "x", "y", "y"])] == [1, 1]
    assert [len(group.fleets) for group in groups(of(2), driver="single")] == [1] * 4
    monkeypatch.setattr(planning, "LARGE_FLEET", 2 * count_step(tiny.recipe()).flops)
    assert [len(group.fleets) for group in groups(of(3))] == [1, 1, 1]


def test_side_by_side_they_need_memory_for_all_and_less_time_than_in_turn(monkeypatch):
    apart = groups(of(3))
    monkeypatch.setitem(planning.ABREAST, "cpu", 3)
    (beside,) = groups(of(3))
    assert beside.memory == sum(group.memory for group in apart)
    assert beside.flops == sum(group.flops for group in apart)
    assert beside.ahead == pytest.approx(sum(group.ahead for group in apart)), "they are compiled one after the other"
    steps = [group.seconds - group.ahead for group in apart]
    assert max(steps) < beside.seconds - beside.ahead < sum(steps)
    assert beside.costs["fleets"] == [2, 2, 2]
    assert beside.costs["operations"] == 2 * 6 * sum(group.flops for group in apart), "two epochs of six steps"
    most = max(group.memory for group in apart)
    assert [len(group.fleets) for group in groups(of(3), memory=2 * most)] == [2, 1]


@pytest.mark.usefixtures("abreast")
def test_where_they_do_not_fit_they_part_between_fleets():
    (beside,) = groups(of(3))
    first, second = halves(beside)
    assert [len(first.fleets), len(second.fleets)] == [2, 1]
    assert [*first.recipes, *second.recipes] == of(3)
    assert [len(part.recipes) for part in halves(second)] == [1, 1]

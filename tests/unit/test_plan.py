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
from walkback.training.planning.cost_model import CostModel
from walkback.training.planning.fleet_plan import FleetGroup, halves
from walkback.training.planning.flop_count import count_step
from walkback.training.planning.load_balance import Workers, shortest_compile_first, split_evenly, split_long_fleets
from walkback.training.planning.plan_fleets import plan_fleets

ROOMY = 1 << 40


@pytest.fixture(autouse=True)
def known_speed(monkeypatch):
    """A device that moves 1e9 bytes a second and takes a microsecond for a product, however many models share it, and
    another for each of them; no time is spent on measuring it."""
    known = CostModel(tiny.CPU, bandwidth=1e9, timed=lambda product, models, device: 1e-6 * (1 + models))
    monkeypatch.setattr(planning, "Speed", type("Known", (), {"of": staticmethod(lambda device: known)}))


def groups(resolved_runs, keys=None, driver="fleet", memory=ROOMY):
    return plan_fleets(resolved_runs, keys or [()] * len(resolved_runs), driver, tiny.CPU, memory)


def names(found):
    return [[resolved.name for resolved in group.resolved_runs] for group in found]


def memory_of_one(method="bp"):
    (group,) = groups([tiny.resolved(method)])
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
    resolved_runs = [tiny.resolved(method, seeds=seed) for method in methods for seed in (1, 2)]
    (group,) = groups(resolved_runs)
    assert group.resolved_runs == tuple(resolved_runs)
    assert group.driver == "fleet"


APART = [
    (tiny.resolved("fa"), tiny.resolved("dfa")),
    (tiny.resolved("fa"), tiny.resolved("fa:site=input")),
    (tiny.resolved("fa:penalty=0.1"), tiny.resolved("fa:penalty=0.1,penalty_reduction=mean")),
    (tiny.resolved(), tiny.resolved(lr=0.01)),
    (tiny.resolved(), tiny.resolved(batch=8)),
    (tiny.resolved(), tiny.resolved(epochs=3)),
    (tiny.resolved(), tiny.resolved(weight_decay=0.0)),
    (tiny.resolved(), tiny.resolved(dtype="float32")),
    (tiny.resolved(), tiny.resolved(arch="resmlp:d=8,depth=2")),
    (tiny.resolved(), tiny.resolved(data=f"{tiny.DATA},noise=0.3")),
]


@pytest.mark.parametrize(("left", "right"), APART, ids=lambda resolved: resolved.name)
def test_what_a_step_cannot_tell_apart_does_not_share_a_fleet(left, right):
    assert names(groups([left, right])) == [[left.name], [right.name]]


def test_groups_and_their_runs_keep_the_order_asked_for():
    resolved_runs = [tiny.resolved(method, seeds=seed) for seed in (3, 1) for method in ("dfa", "bp")]
    assert names(groups(resolved_runs)) == [
        [resolved_runs[0].name, resolved_runs[2].name],
        [resolved_runs[1].name, resolved_runs[3].name],
    ]


def test_keys_keep_apart_what_the_bucket_would_mix():
    resolved_runs = [tiny.resolved(seeds=seed) for seed in range(4)]
    found = groups(resolved_runs, keys=["x", "y", "x", ()])
    assert names(found) == [
        [resolved_runs[0].name, resolved_runs[2].name],
        [resolved_runs[1].name],
        [resolved_runs[3].name],
    ]


@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_a_bucket_too_large_is_cut_into_as_few_and_as_even_fleets_as_possible(count, most):
    resolved_runs = [tiny.resolved(seeds=seed) for seed in range(count)]
    found = groups(resolved_runs, memory=most * memory_of_one() + 1)
    sizes = [len(group.resolved_runs) for group in found]
    assert len(sizes) == math.ceil(count / most)
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert [resolved for group in found for resolved in group.resolved_runs] == resolved_runs


def test_a_model_too_large_for_the_memory_is_still_tried_alone():
    found = groups([tiny.resolved(seeds=seed) for seed in range(3)], memory=1)
    assert [len(group.resolved_runs) for group in found] == [1, 1, 1]


def test_the_single_driver_trains_one_by_one():
    found = groups([tiny.resolved(seeds=seed) for seed in range(3)], driver="single")
    assert [(len(group.resolved_runs), group.driver) for group in found] == [(1, "single")] * 3


def test_bps_flops_are_those_counted_by_hand():
    batch, dim, d, depth, classes = 16, 6, 8, 3, 4
    resolved = tiny.resolved("bp", batch=batch, arch=f"resmlp:d={d},depth={depth}")
    assert (resolved.net.input_shape, resolved.net.classes) == ((dim,), classes)
    stem, blocks, head = dim * d, depth * 2 * d * d, d * classes
    forward = 2 * batch * (stem + blocks + head)
    weight_gradients = forward
    input_gradients = 2 * batch * (blocks + head)  # Nobody asks for the gradient in the pixels.
    assert count_step(resolved).flops == forward + weight_gradients + input_gradients


def test_dfa_costs_what_bp_costs_and_its_projections():
    """Its credit skips the blocks, but a block's own norm is trained through both of the block's Linears."""
    batch, d, depth, classes = 16, 8, 3, 4
    projections = 2 * batch * (depth + 1) * classes * d
    assert count_step(tiny.resolved("dfa")).flops == count_step(tiny.resolved("bp")).flops + projections


@pytest.mark.parametrize(("rule", "net"), tiny.driven_pairs())
def test_every_step_has_a_cost(rule, net):
    resolved = tiny.resolved(rule, arch=tiny.arch(net))
    count = count_step(resolved)
    assert min(count.small_operations, len(count.products), count.flops, count.bytes_made) > 0
    assert count.leaf_bytes == sum(leaf.nbytes for leaf in resolved.params().values())
    (group,) = groups([resolved])
    assert group.memory > count.leaf_bytes
    assert group.seconds > 0


def test_the_estimate_grows_with_what_there_is_to_do():
    (one,) = groups([tiny.resolved()])
    (longer,) = groups([tiny.resolved(epochs=4)])
    (two,) = groups([tiny.resolved(seeds=seed) for seed in (1, 2)])
    (longest,) = groups([tiny.resolved(epochs=6)])
    assert longest.seconds - longer.seconds == pytest.approx(longer.seconds - one.seconds), (
        "after its start, by the step"
    )
    assert one.seconds < two.seconds < 2 * one.seconds, "a fleet pays for its launches once"
    assert two.memory == 2 * one.memory


def test_a_group_is_labelled_by_its_methods_and_size():
    (group,) = groups([tiny.resolved(method) for method in ("dfa", "dfa:shell=method")])
    assert group.label == "dfa ×2"


def test_shells_of_a_large_network_train_apart_and_without_their_blocks_gradients():
    """The frozen blocks' gradients are most of what a large step costs; a small one costs little but its launches."""
    small = [tiny.resolved(method) for method in ("dfa", "dfa:shell=method")]
    assert len(groups(small)) == 1
    large = [tiny.resolved(method, arch="resmlp:d=2048,depth=1", batch=64) for method in ("dfa", "dfa:shell=method")]
    assert count_step(large[0]).mean_product > planning.LARGE_PRODUCT
    assert names(groups(large)) == [[large[0].name], [large[1].name]]


@pytest.fixture
def every_second_counts(monkeypatch):
    monkeypatch.setattr(load_balance, "WORTH_CUTTING", 0.0)


@pytest.mark.usefixtures("every_second_counts")
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_no_worker_has_more_than_its_share_where_fleets_can_be_cut(workers):
    found = groups([tiny.resolved(method, seeds=seed) for method in ("bp", "fa", "dfa") for seed in range(8)])
    even = split_long_fleets(found, workers)
    loads = [sum(group.seconds for group in share) for share in split_evenly(even, workers)]
    assert len(loads) == workers
    assert max(loads) <= 1.2 * sum(loads) / workers
    assert sorted(name for members in names(even) for name in members) == sorted(
        name for members in names(found) for name in members
    )
    assert even == found or workers > 1


def test_the_longest_fleets_are_given_out_first():
    found = groups([tiny.resolved("bp", epochs=epochs) for epochs in (1, 4, 2)])
    given = split_evenly(found, 2)
    assert [[group.resolved_runs[0].config.epochs for group in share] for share in given] == [[4], [2, 1]]
    assert [len(share) for share in split_evenly(found, 8)] == [1, 1, 1]


def test_a_second_is_not_worth_a_cut():
    found = groups([tiny.resolved(seeds=seed) for seed in range(6)])
    assert split_long_fleets(found, 2) == found


@pytest.mark.usefixtures("every_second_counts")
def test_runs_that_are_begun_keep_their_company():
    (group,) = groups([tiny.resolved(seeds=seed) for seed in range(6)])
    assert split_long_fleets([group], 2, is_begun=lambda resolved: resolved.config.seed == 3) == [group]
    assert len(split_long_fleets([group], 2)) == 2


@pytest.mark.parametrize(("shell", "most"), [("bp:shell=bp", 0.85), ("dfa:shell=method", 0.6)])
def test_shells_apart_are_counted_without_the_gradients_of_their_blocks(shell, most):
    """Backprop's shell still pulls gradients back through all blocks; DFA's needs their forward pass alone."""
    arch = tiny.arch("vit_mini")
    whole = tiny.resolved(shell.partition(":")[0], arch=arch)
    frozen = tiny.resolved(shell, arch=arch)
    every = count_step(whole).flops
    assert count_step(frozen).flops == every, "beside others every gradient is computed"
    assert count_step(frozen, frozen_apart=True).flops < most * every
    assert count_step(whole, frozen_apart=True).flops == pytest.approx(every, rel=0.01)


def test_nothing_is_timed_where_nobody_wants_to_know(monkeypatch):
    resolved_runs = [tiny.resolved(method) for method in ("bp", "fa")]
    predicted = groups(resolved_runs)
    monkeypatch.setattr(planning, "Speed", None)
    found = plan_fleets(resolved_runs, [(), ()], "fleet", tiny.CPU, ROOMY, predict=False)
    assert [group.seconds for group in found] == [0.0, 0.0]
    assert names(found) == names(predicted)
    assert [group.memory for group in found] == [group.memory for group in predicted]


def timed(*seconds):
    """A fleet for each pair of seconds: ahead of its turn, and in all."""
    (group,) = groups([tiny.resolved()])
    return [replace(group, ahead=ahead, seconds=whole) for ahead, whole in seconds]


def test_processes_side_by_side_take_as_long_as_the_longest_share():
    found = timed((0, 6), (0, 4), (0, 3))
    assert Workers(1, in_turns=False).seconds(found) == 13
    assert Workers(2, in_turns=False).seconds(found) == 7
    assert Workers(8, in_turns=False).seconds(found) == 6
    assert Workers(8, in_turns=False).seconds([]) == 0
    (whole,) = groups([tiny.resolved(seeds=seed) for seed in range(4)])
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
    assert [group.seconds for group in shortest_compile_first(found)] == [20, 3, 6, 10]
    assert Workers(2, in_turns=True).seconds(found) == 2 + 1 + 18 + 1 + 1


@pytest.mark.parametrize("net", ["resmlp", "small_cnn"])
def test_a_long_run_is_compiled_and_a_short_one_is_not(net):
    """On a GPU; only then are a convolution's products Winograd's."""
    asked = []

    def timed(product, models, device):
        asked.append(product.kind)
        return 1e-3 if product.kind != "matmul" else 1e-6

    speed = CostModel(torch.device("cuda"), bandwidth=1e12, timed=timed)
    count = count_step(tiny.resolved(arch=tiny.arch(net)))
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
    return [tiny.resolved(method, seeds=seed, **settings) for method in methods for seed in (1, 2)]


@pytest.mark.usefixtures("abreast")
@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (2, [2]), (3, [3]), (4, [2, 2]), (5, [3, 2]), (7, [3, 2, 2])])
def test_small_fleets_are_trained_side_by_side_as_many_as_are_allowed(count, sizes):
    found = groups(of(count))
    assert [len(group.fleets) for group in found] == sizes
    assert [resolved for group in found for resolved in group.resolved_runs] == of(count)
    assert all(len(fleet) == 2 for group in found for fleet in group.fleets)
    for group in found:
        again = groups(list(group.resolved_runs))
        assert [each.fleets for each in again] == [group.fleets], "a worker that is given one plans the same"


@given(st.integers(0, 8), st.integers(0, 8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_behind_a_group_takes_no_time_again(first, second):
    """Going on twice is going on from the second; tracing and compiling have to be done again."""
    whole = FleetGroup((tiny.resolved(epochs=9),), "fleet", seconds=11.0, memory=1, flops=10, ahead=2.0)
    rest = whole.resumed_from(first)
    assert (rest.done, rest.epochs_left, rest.ahead) == (first, 9 - first, 2.0)
    assert rest.seconds == pytest.approx(2 + 9 - first)
    assert rest.costs["operations"] == 10 * rest.steps_left == 10 * (9 - first) * tiny.resolved().steps_per_epoch
    again = rest.resumed_from(second)
    assert again.seconds == pytest.approx(whole.resumed_from(second).seconds)
    assert again.done == second


def test_a_group_whose_last_epoch_is_done_has_nothing_left():
    whole = FleetGroup((tiny.resolved(epochs=9),), "fleet", seconds=11.0, memory=1, flops=10, ahead=2.0)
    done = whole.resumed_from(9)
    assert (done.steps_left, done.seconds) == (0, 2.0)
    assert done.resumed_from(9) == done


@pytest.mark.usefixtures("abreast")
def test_what_takes_other_steps_or_is_large_or_was_begun_elsewhere_is_not(monkeypatch):
    assert [len(group.fleets) for group in groups(of(2) + of(2, epochs=5))] == [2, 2]
    assert [len(group.fleets) for group in groups(of(2) + of(2, batch=8))] == [2, 2]
    assert [len(group.fleets) for group in groups(of(2) + of(2, data=f"{tiny.DATA},noise=0.3"))] == [2, 2]
    assert [len(group.fleets) for group in groups(of(2), keys=["x", "x", "y", "y"])] == [1, 1]
    assert [len(group.fleets) for group in groups(of(2), driver="single")] == [1] * 4
    monkeypatch.setattr(planning, "LARGE_FLEET", 2 * count_step(tiny.resolved()).flops)
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
    assert [*first.resolved_runs, *second.resolved_runs] == of(3)
    assert [len(part.resolved_runs) for part in halves(second)] == [1, 1]

"""Planning: which runs share a fleet, how many fleets there are, and their predicted costs."""

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
def known_cost_model(monkeypatch):
    """A device that moves 1e9 bytes a second and takes a microsecond for a matmul and another for each model in it;
    nothing is measured."""
    known = CostModel(tiny.CPU, bandwidth=1e9, time_matmul=lambda matmul, models, device: 1e-6 * (1 + models))
    monkeypatch.setattr(planning, "CostModel", type("Known", (), {"of": staticmethod(lambda device: known)}))


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
def test_shared_options_and_seeds_of_one_rule_share_a_fleet(methods):
    resolved_runs = [tiny.resolved(method, seeds=seed) for method in methods for seed in (1, 2)]
    (group,) = groups(resolved_runs)
    assert group.resolved_runs == tuple(resolved_runs)
    assert group.driver == "fleet"


DIFFERENT_FLEETS = [
    (tiny.resolved("fa"), tiny.resolved("dfa")),
    (tiny.resolved("fa"), tiny.resolved("fa:site=input")),
    (tiny.resolved("fa:penalty=0.1"), tiny.resolved("fa:penalty=0.1,penalty_reduction=mean")),
    (tiny.resolved(), tiny.resolved(optimizer="sgd")),
    (tiny.resolved(), tiny.resolved(schedule="constant")),
    (tiny.resolved(), tiny.resolved(batch=8)),
    (tiny.resolved(), tiny.resolved(epochs=3)),
    (tiny.resolved(), tiny.resolved(weight_decay=0.0)),
    (tiny.resolved(), tiny.resolved(dtype="float32")),
    (tiny.resolved(), tiny.resolved(arch="resmlp:d=8,depth=2")),
    (tiny.resolved(), tiny.resolved(data=f"{tiny.DATA},noise=0.3")),
]


@pytest.mark.parametrize(("left", "right"), DIFFERENT_FLEETS, ids=lambda resolved: resolved.name)
def test_runs_that_differ_in_a_static_setting_do_not_share_a_fleet(left, right):
    assert names(groups([left, right])) == [[left.name], [right.name]]


def test_runs_that_differ_in_their_learning_rate_share_a_fleet():
    left, right = tiny.resolved(), tiny.resolved(lr=0.01)
    assert names(groups([left, right])) == [[left.name, right.name]]


def test_groups_and_their_runs_keep_the_given_order():
    resolved_runs = [tiny.resolved(method, seeds=seed) for seed in (3, 1) for method in ("dfa", "bp")]
    assert names(groups(resolved_runs)) == [
        [resolved_runs[0].name, resolved_runs[2].name],
        [resolved_runs[1].name, resolved_runs[3].name],
    ]


def test_runs_with_different_keys_do_not_share_a_fleet():
    resolved_runs = [tiny.resolved(seeds=seed) for seed in range(4)]
    found = groups(resolved_runs, keys=["x", "y", "x", ()])
    assert names(found) == [
        [resolved_runs[0].name, resolved_runs[2].name],
        [resolved_runs[1].name],
        [resolved_runs[3].name],
    ]


@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_runs_that_do_not_fit_into_memory_are_split_into_few_and_even_fleets(count, most):
    resolved_runs = [tiny.resolved(seeds=seed) for seed in range(count)]
    found = groups(resolved_runs, memory=most * memory_of_one() + 1)
    sizes = [len(group.resolved_runs) for group in found]
    assert len(sizes) == math.ceil(count / most)
    assert max(sizes) <= most
    assert max(sizes) - min(sizes) <= 1
    assert [resolved for group in found for resolved in group.resolved_runs] == resolved_runs


def test_a_model_too_large_for_the_memory_still_gets_a_fleet():
    found = groups([tiny.resolved(seeds=seed) for seed in range(3)], memory=1)
    assert [len(group.resolved_runs) for group in found] == [1, 1, 1]


def test_the_single_driver_trains_one_by_one():
    found = groups([tiny.resolved(seeds=seed) for seed in range(3)], driver="single")
    assert [(len(group.resolved_runs), group.driver) for group in found] == [(1, "single")] * 3


def test_bp_flops_match_a_count_by_hand():
    batch, dim, d, depth, classes = 16, 6, 8, 3, 4
    resolved = tiny.resolved("bp", batch=batch, arch=f"resmlp:d={d},depth={depth}")
    assert (resolved.net.input_shape, resolved.net.classes) == ((dim,), classes)
    stem, blocks, head = dim * d, depth * 2 * d * d, d * classes
    forward = 2 * batch * (stem + blocks + head)
    weight_gradients = forward
    input_gradients = 2 * batch * (blocks + head)  # The gradient with respect to the pixels is not computed.
    assert count_step(resolved).flops == forward + weight_gradients + input_gradients


def test_dfa_flops_are_those_of_bp_and_its_projections():
    """DFA's credit skips the blocks, but a block's norm is trained through both of the block's Linears."""
    batch, d, depth, classes = 16, 8, 3, 4
    projections = 2 * batch * (depth + 1) * classes * d
    assert count_step(tiny.resolved("dfa")).flops == count_step(tiny.resolved("bp")).flops + projections


@pytest.mark.parametrize(("rule", "net"), tiny.driven_pairs())
def test_every_step_has_a_cost(rule, net):
    resolved = tiny.resolved(rule, arch=tiny.arch(net))
    cost = count_step(resolved)
    assert min(cost.small_operations, len(cost.matmuls), cost.flops, cost.bytes_made) > 0
    assert cost.leaf_bytes == sum(leaf.nbytes for leaf in resolved.params().values())
    (group,) = groups([resolved])
    assert group.memory > cost.leaf_bytes
    assert group.seconds > 0


def test_the_estimate_grows_with_epochs_and_models():
    (one,) = groups([tiny.resolved()])
    (longer,) = groups([tiny.resolved(epochs=4)])
    (two,) = groups([tiny.resolved(seeds=seed) for seed in (1, 2)])
    (longest,) = groups([tiny.resolved(epochs=6)])
    assert longest.seconds - longer.seconds == pytest.approx(longer.seconds - one.seconds), (
        "linear in steps, apart from the fixed start"
    )
    assert one.seconds < two.seconds < 2 * one.seconds, "a fleet pays for its launches once"
    assert two.memory == 2 * one.memory


def test_a_group_is_labelled_by_its_methods_and_size():
    (group,) = groups([tiny.resolved(method) for method in ("dfa", "dfa:shell=method")])
    assert group.label == "dfa ×2"


def test_frozen_baselines_of_a_large_network_get_their_own_fleet():
    """The frozen blocks' gradients are most of the cost of a large step; a small step costs mostly kernel launches."""
    small = [tiny.resolved(method) for method in ("dfa", "dfa:shell=method")]
    assert len(groups(small)) == 1
    large = [tiny.resolved(method, arch="resmlp:d=2048,depth=1", batch=64) for method in ("dfa", "dfa:shell=method")]
    assert count_step(large[0]).mean_matmul_flops > planning.LARGE_MATMUL
    assert names(groups(large)) == [[large[0].name], [large[1].name]]


@pytest.fixture
def no_minimal_excess(monkeypatch):
    monkeypatch.setattr(load_balance, "MIN_EXCESS", 0.0)


@pytest.mark.usefixtures("no_minimal_excess")
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_fleets_are_split_so_that_workers_have_equal_shares(workers):
    found = groups([tiny.resolved(method, seeds=seed) for method in ("bp", "fa", "dfa") for seed in range(8)])
    even = split_long_fleets(found, workers)
    loads = [sum(group.work for group in share) for share in split_evenly(even, workers)]
    assert len(loads) == workers
    assert max(loads) <= 1.2 * sum(loads) / workers
    assert sorted(name for members in names(even) for name in members) == sorted(
        name for members in names(found) for name in members
    )
    assert even == found or workers > 1


def test_the_longest_fleets_are_assigned_first():
    found = groups([tiny.resolved("bp", epochs=epochs) for epochs in (1, 4, 2)])
    shares = split_evenly(found, 2)
    assert [[group.resolved_runs[0].config.epochs for group in share] for share in shares] == [[4], [2, 1]]
    assert [len(share) for share in split_evenly(found, 8)] == [1, 1, 1]


def test_fleets_are_not_split_for_a_second():
    found = groups([tiny.resolved(seeds=seed) for seed in range(6)])
    assert split_long_fleets(found, 2) == found


@pytest.mark.usefixtures("no_minimal_excess")
def test_a_settled_fleet_is_not_split():
    (group,) = groups([tiny.resolved(seeds=seed) for seed in range(6)])
    settled = replace(group, is_settled=True)
    assert split_long_fleets([settled], 2) == [settled]
    assert len(split_long_fleets([group], 2)) == 2


@pytest.mark.parametrize(("shell", "most"), [("bp:shell=bp", 0.85), ("dfa:shell=method", 0.6)])
def test_frozen_baselines_in_their_own_fleet_are_counted_without_their_blocks_gradients(shell, most):
    """Backprop's frozen baseline still propagates gradients through all blocks; DFA's needs only the forward pass."""
    arch = tiny.arch("vit_mini")
    whole = tiny.resolved(shell.partition(":")[0], arch=arch)
    frozen = tiny.resolved(shell, arch=arch)
    every = count_step(whole).flops
    assert count_step(frozen).flops == every, "in a mixed fleet every gradient is computed"
    assert count_step(frozen, frozen_apart=True).flops < most * every
    assert count_step(whole, frozen_apart=True).flops == pytest.approx(every, rel=0.01)


def test_without_predict_nothing_is_timed(monkeypatch):
    resolved_runs = [tiny.resolved(method) for method in ("bp", "fa")]
    predicted = groups(resolved_runs)
    monkeypatch.setattr(planning, "CostModel", None)
    found = plan_fleets(resolved_runs, [(), ()], "fleet", tiny.CPU, ROOMY, predict=False)
    assert [group.seconds for group in found] == [0.0, 0.0]
    assert names(found) == names(predicted)
    assert [group.memory for group in found] == [group.memory for group in predicted]


def timed(*seconds):
    """A fleet for each pair of seconds: compile time, and total time."""
    (group,) = groups([tiny.resolved()])
    return [
        replace(group, compile_seconds=compile_seconds, seconds=whole, work=whole) for compile_seconds, whole in seconds
    ]


def test_parallel_processes_take_as_long_as_the_longest_share():
    found = timed((0, 6), (0, 4), (0, 3))
    assert Workers(1, in_turns=False).seconds(found) == 13
    assert Workers(2, in_turns=False).seconds(found) == 7
    assert Workers(8, in_turns=False).seconds(found) == 6
    assert Workers(8, in_turns=False).seconds([]) == 0
    (whole,) = groups([tiny.resolved(seeds=seed) for seed in range(4)])
    assert Workers(2, in_turns=False).seconds([replace(whole, seconds=100.0, work=70.0)]) == 50, (
        "its fleet will be split in half"
    )


def test_on_one_gpu_compile_time_overlaps_with_the_training_of_others():
    found = timed((2, 10), (3, 10), (4, 10))
    assert Workers(1, in_turns=True).seconds(found) == 30
    assert Workers(3, in_turns=True).seconds(found) == 2 + 8 + 7 + 6
    assert Workers(2, in_turns=True).seconds(timed((30, 31), (30, 31))) == pytest.approx(32), (
        "the first compile time does not overlap"
    )
    assert Workers(2, in_turns=True).seconds(timed(*[(30, 31)] * 8)) == 124, "two compile two at a time"


def test_groups_with_the_shortest_compile_time_come_first():
    found = timed((9, 10), (2, 20), (5, 6), (2, 3))
    assert [group.seconds for group in shortest_compile_first(found)] == [20, 3, 6, 10]
    assert Workers(2, in_turns=True).seconds(found) == 2 + 1 + 18 + 1 + 1


@pytest.mark.parametrize("net", ["resmlp", "small_cnn"])
def test_a_long_run_is_compiled_and_a_short_one_is_not(net):
    """On a GPU; only a compiled step computes 3x3 convolutions by Winograd's algorithm."""
    kinds = []

    def time_matmul(matmul, models, device):
        kinds.append(matmul.kind)
        return 1e-3 if matmul.kind != "matmul" else 1e-6

    cost_model = CostModel(torch.device("cuda"), bandwidth=1e12, time_matmul=time_matmul)
    cost = count_step(tiny.resolved(arch=tiny.arch(net)))
    short, long = (cost_model.estimate(cost, 6, steps) for steps in (10, 10**7))
    assert long.compile_seconds > short.compile_seconds + 2
    saved = short.step_seconds / 10 - long.step_seconds / 10**7
    tiled = sum(times for matmul, times in cost.matmuls if matmul.kind != "matmul" and matmul.how[0] == (1, 1))
    assert (tiled > 0) == (net == "small_cnn") == ("convolution" in kinds)
    assert saved > 1e-3 * tiled, "none of these is computed by cuDNN"


@pytest.fixture
def concurrent(monkeypatch):
    monkeypatch.setitem(planning.MAX_CONCURRENT, "cpu", 3)


def runs_of_fleets(count, **settings):
    """Runs that form `count` fleets of two models each."""
    methods = ("bp", "fa", "dfa", "dfa:site=input", "sham", "fa:site=input", "kp")[:count]
    return [tiny.resolved(method, seeds=seed, **settings) for method in methods for seed in (1, 2)]


@pytest.mark.usefixtures("concurrent")
@pytest.mark.parametrize(("count", "sizes"), [(1, [1]), (2, [2]), (3, [3]), (4, [2, 2]), (5, [3, 2]), (7, [3, 2, 2])])
def test_small_fleets_are_trained_concurrently_up_to_the_limit(count, sizes):
    found = groups(runs_of_fleets(count))
    assert [len(group.fleets) for group in found] == sizes
    assert [resolved for group in found for resolved in group.resolved_runs] == runs_of_fleets(count)
    assert all(len(fleet) == 2 for group in found for fleet in group.fleets)
    for group in found:
        again = groups(list(group.resolved_runs))
        assert [each.fleets for each in again] == [group.fleets], "a worker that gets one group makes the same plan"


@given(st.integers(0, 8), st.integers(0, 8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_resumed_group_counts_only_the_epochs_left(first, second):
    """Resuming twice is resuming from the second epoch; tracing and compiling are repeated."""
    whole = FleetGroup((tiny.resolved(epochs=9),), "fleet", seconds=11.0, memory=1, flops=10, compile_seconds=2.0)
    rest = whole.resumed_from(first)
    assert (rest.done, rest.epochs_left, rest.compile_seconds) == (first, 9 - first, 2.0)
    assert rest.seconds == pytest.approx(2 + 9 - first)
    assert rest.costs["operations"] == 10 * rest.steps_left == 10 * (9 - first) * tiny.resolved().steps_per_epoch
    again = rest.resumed_from(second)
    assert again.seconds == pytest.approx(whole.resumed_from(second).seconds)
    assert again.done == second


def test_a_group_whose_last_epoch_is_done_has_nothing_left():
    whole = FleetGroup((tiny.resolved(epochs=9),), "fleet", seconds=11.0, memory=1, flops=10, compile_seconds=2.0)
    done = whole.resumed_from(9)
    assert (done.steps_left, done.seconds) == (0, 2.0)
    assert done.resumed_from(9) == done


@pytest.mark.usefixtures("concurrent")
def test_fleets_with_other_steps_data_or_keys_and_large_fleets_are_not_concurrent(monkeypatch):
    assert [len(group.fleets) for group in groups(runs_of_fleets(2) + runs_of_fleets(2, epochs=5))] == [2, 2]
    assert [len(group.fleets) for group in groups(runs_of_fleets(2) + runs_of_fleets(2, batch=8))] == [2, 2]
    assert [
        len(group.fleets) for group in groups(runs_of_fleets(2) + runs_of_fleets(2, data=f"{tiny.DATA},noise=0.3"))
    ] == [2, 2]
    assert [len(group.fleets) for group in groups(runs_of_fleets(2), keys=["x", "x", "y", "y"])] == [1, 1]
    assert [len(group.fleets) for group in groups(runs_of_fleets(2), driver="single")] == [1] * 4
    monkeypatch.setattr(planning, "LARGE_FLEET", 2 * count_step(tiny.resolved()).flops)
    assert [len(group.fleets) for group in groups(runs_of_fleets(3))] == [1, 1, 1]


def test_concurrent_fleets_need_memory_for_all_and_less_time_than_one_by_one(monkeypatch):
    separate = groups(runs_of_fleets(3))
    monkeypatch.setitem(planning.MAX_CONCURRENT, "cpu", 3)
    (together,) = groups(runs_of_fleets(3))
    assert together.memory == sum(group.memory for group in separate)
    assert together.flops == sum(group.flops for group in separate)
    assert together.compile_seconds == pytest.approx(sum(group.compile_seconds for group in separate)), (
        "they are compiled one by one"
    )
    steps = [group.seconds - group.compile_seconds for group in separate]
    assert max(steps) < together.seconds - together.compile_seconds < sum(steps)
    assert together.costs["fleets"] == [2, 2, 2]
    assert together.costs["operations"] == 2 * 6 * sum(group.flops for group in separate), "two epochs of six steps"
    most = max(group.memory for group in separate)
    assert [len(group.fleets) for group in groups(runs_of_fleets(3), memory=2 * most)] == [2, 1]


@pytest.mark.usefixtures("concurrent")
def test_concurrent_fleets_that_do_not_fit_are_split_between_fleets():
    (together,) = groups(runs_of_fleets(3))
    first, second = halves(together)
    assert [len(first.fleets), len(second.fleets)] == [2, 1]
    assert [*first.resolved_runs, *second.resolved_runs] == runs_of_fleets(3)
    assert [len(part.resolved_runs) for part in halves(second)] == [1, 1]

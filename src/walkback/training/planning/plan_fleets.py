"""Groups runs into fleets and predicts their time and memory.

Runs with the same fleet key share a fleet; if they do not fit into memory together, they are split into several fleets.
On a GPU small fleets are trained concurrently. What decides is counted: the operations and bytes of a step. Timing them
on the device only predicts seconds, so that the same runs form the same fleets whatever else the machine does.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

import torch

from walkback.training.planning.cost_model import ADAMW_PASSES, EAGER_LAUNCH, UNFUSED_KERNELS, CostModel, Estimate
from walkback.training.planning.fleet_plan import FleetGroup, suitable_threads
from walkback.training.planning.flop_count import StepCost, count_step
from walkback.training.resolved_run import ResolvedRun

T = TypeVar("T")
DriverName = Literal["single", "fleet"]

LARGE_MATMUL = 2e8
"""Mean FLOP count of a step's matmuls from which frozen baselines get fleets of their own: that saves the gradients of
their frozen blocks, which for smaller matmuls cost less than the extra kernel launches."""
STATIC_COPIES = 4
"""Leaf-sized tensors kept for each leaf: weight, gradient, two moments."""
MAX_CONCURRENT = {"cpu": 1, "cuda": 6}
"""The largest number of small fleets that are trained concurrently."""
LARGE_FLEET = 3e10
"""FLOP count of a fleet's step from which the fleet keeps a GPU busy by itself."""
NOMINAL_FLOPS, NOMINAL_BANDWIDTH = 3e10, 1e10
"""FLOPs and bytes per second of the nominal CPU core in whose seconds work is counted."""
CONTENTION = 0.45
"""Share of its own time by which a small fleet delays concurrent ones (on an H200 0.4 to 0.55 for ResMLPs, 0.15 for
tiny ones)."""


def plan_fleets(
    resolved_runs: Sequence[ResolvedRun],
    keys: Sequence[Hashable],
    driver: Literal["auto", "single", "fleet"],
    device: torch.device,
    memory: int,
    *,
    predict: bool = True,
) -> list[FleetGroup]:
    """Group runs into fleets that fit into `memory` bytes.

    Runs with different `keys` do not share a fleet even if their fleet keys are equal: a key is, for example, the epoch
    a run resumes from. Without `predict` nothing is timed and all seconds are 0: on a GPU, timing slows down other
    processes that train there.
    """
    cost_model = CostModel.of(device) if predict and resolved_runs else None
    costs: dict[Hashable, StepCost] = {}
    fleet_members: dict[tuple[Hashable, Hashable, bool], list[ResolvedRun]] = {}
    for resolved, key in zip(resolved_runs, keys, strict=True):
        fleet_key = resolved.fleet_key()
        if fleet_key not in costs:
            costs[fleet_key] = count_step(resolved)
        separate = resolved.shared_options.shell != "none" and costs[fleet_key].mean_matmul_flops >= LARGE_MATMUL
        fleet_members.setdefault((fleet_key, key, separate), []).append(resolved)
    concurrent: dict[Hashable, list[FleetGroup]] = {}
    for (fleet_key, key, separate), members in fleet_members.items():
        cost = count_step(members[0], frozen_apart=True) if separate else costs[fleet_key]
        single = driver == "single" or bool(members[0].net.alone)
        most = 1 if single else max(1, memory // _memory(cost, 1))
        for chunk in _even_chunks(members, most):
            group = _group(chunk, cost, cost_model, "single" if single else "fleet")
            first = chunk[0]
            is_large = single or group.flops >= LARGE_FLEET
            # Concurrent fleets take the same number of steps on the same data.
            concurrent_key = first.name if is_large else (key, first.source, first.config.epochs, first.steps_per_epoch)
            concurrent.setdefault(concurrent_key, []).append(group)
    most = MAX_CONCURRENT[device.type]
    return [group for fleets in concurrent.values() for group in _group_concurrent(fleets, most, memory)]


def settled_groups(
    planned: Sequence[tuple[DriverName, Sequence[Sequence[ResolvedRun]]]], device: torch.device, *, predict: bool = True
) -> list[FleetGroup]:
    """The groups of an earlier plan, each a driver and its fleets, with their costs."""
    cost_model = CostModel.of(device) if predict and planned else None
    costs: dict[Hashable, StepCost] = {}
    found = []
    for driver, fleets in planned:
        groups = []
        for members in fleets:
            is_frozen = all(resolved.shared_options.shell != "none" for resolved in members)
            key = (members[0].fleet_key(), is_frozen)
            if key not in costs:
                costs[key] = count_step(members[0])
                if is_frozen and costs[key].mean_matmul_flops >= LARGE_MATMUL:
                    costs[key] = count_step(members[0], frozen_apart=True)
            groups.append(_group(members, costs[key], cost_model, driver))
        found.append(replace(_concurrent_group(groups), is_settled=True))
    return found


def _group_concurrent(fleets: list[FleetGroup], most: int, memory: int) -> list[FleetGroup]:
    """Groups of fleets to be trained concurrently, at most `most` in a group and as many as fit into memory."""
    fitting = memory // max(group.memory for group in fleets)
    return [_concurrent_group(chunk) for chunk in _even_chunks(fleets, max(1, min(most, fitting)))]


def _concurrent_group(groups: Sequence[FleetGroup]) -> FleetGroup:
    """One group of these fleets, with its costs."""
    if len(groups) == 1:
        return groups[0]
    steps = [group.seconds - group.compile_seconds for group in groups]
    compile_seconds = sum(group.compile_seconds for group in groups)
    return FleetGroup(
        resolved_runs=tuple(resolved for group in groups for resolved in group.resolved_runs),
        driver="fleet",
        seconds=compile_seconds + (1 - CONTENTION) * max(steps) + CONTENTION * sum(steps),
        memory=sum(group.memory for group in groups),
        flops=sum(group.flops for group in groups),
        compile_seconds=compile_seconds,
        sizes=tuple(len(group.resolved_runs) for group in groups),
        work=sum(group.work for group in groups),
    )


def _group(
    members: Sequence[ResolvedRun], cost: StepCost, cost_model: CostModel | None, driver: DriverName
) -> FleetGroup:
    steps = members[0].config.epochs * members[0].steps_per_epoch
    flops = len(members) * cost.flops
    # Timed with as many threads as it will be trained with: on a busy machine several threads wait for each other.
    with suitable_threads(flops):
        estimate = cost_model.estimate(cost, len(members), steps) if cost_model else Estimate(0.0, 0.0)
    return FleetGroup(
        resolved_runs=tuple(members),
        driver=driver,
        seconds=estimate.compile_seconds + estimate.step_seconds,
        memory=_memory(cost, len(members)),
        flops=flops,
        compile_seconds=estimate.compile_seconds,
        work=_work(cost, len(members), steps),
    )


def _work(cost: StepCost, models: int, steps: int) -> float:
    """Seconds of a nominal CPU core for `steps` steps; the same parts as in `CostModel.estimate`, counted only."""
    moved = ADAMW_PASSES["cpu"] * cost.leaf_bytes + 2 * UNFUSED_KERNELS * cost.small_bytes
    of_a_model = cost.flops / NOMINAL_FLOPS + moved / NOMINAL_BANDWIDTH
    return steps * (models * of_a_model + UNFUSED_KERNELS * cost.small_operations * EAGER_LAUNCH)


def _memory(cost: StepCost, models: int) -> int:
    return models * (cost.bytes_made + STATIC_COPIES * cost.leaf_bytes)


def _even_chunks(members: list[T], most: int) -> list[list[T]]:
    """As few chunks as possible, whose sizes differ by at most one: a small last fleet costs as much as a large one."""
    chunks = -(-len(members) // most)
    sizes = [len(members) // chunks + (index < len(members) % chunks) for index in range(chunks)]
    starts = [sum(sizes[:index]) for index in range(chunks)]
    return [members[start : start + size] for start, size in zip(starts, sizes, strict=True)]

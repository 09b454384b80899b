"""Which runs are trained together, and what that will cost.

Runs of one bucket share a fleet; a bucket too large for the memory is cut into several fleets. On a GPU small fleets
are trained side by side. Time and memory are not guessed: a step's operations are counted, and what they take on the
device is measured.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal, TypeVar

import torch

from walkback.training.planning.cost_model import CostModel, Estimate
from walkback.training.planning.fleet_plan import FleetGroup
from walkback.training.planning.flop_count import StepCost, count_step
from walkback.training.resolved_run import ResolvedRun

T = TypeVar("T")

LARGE_PRODUCT = 2e8
"""Floating-point operations of a step's mean product from which shells are trained in fleets of their own: that spares
the gradients of their frozen blocks, which for smaller products cost less than another round of launches."""
STATIC_COPIES = 4
"""Leaf-sized tensors kept for each leaf: weight, gradient, two moments."""
ABREAST = {"cpu": 1, "cuda": 6}
"""Small fleets that are trained side by side."""
LARGE_FLEET = 3e10
"""Floating-point operations of a fleet's step from which it keeps a GPU busy by itself."""
CROWDING = 0.45
"""Share of its own time by which a small fleet delays those beside it (on an H200 0.4 to 0.55 for ResMLPs, 0.15 for
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
    """Group recipes into fleets that fit into `memory` bytes.

    `keys` tell apart what must not be mixed beyond the bucket, such as the epoch a run goes on from. Without `predict`
    nothing is timed and no fleet has seconds: on a GPU, timing takes some from whoever trains there.
    """
    speed = CostModel.of(device) if predict else None
    alone = driver == "single"
    counts: dict[Hashable, StepCost] = {}
    fleet_members: dict[tuple[Hashable, Hashable, bool], list[ResolvedRun]] = {}
    for resolved, key in zip(resolved_runs, keys, strict=True):
        fleet_key = resolved.fleet_key()
        if fleet_key not in counts:
            counts[fleet_key] = count_step(resolved)
        apart = resolved.shared_options.shell != "none" and counts[fleet_key].mean_product >= LARGE_PRODUCT
        fleet_members.setdefault((fleet_key, key, apart), []).append(resolved)
    lanes: dict[Hashable, list[FleetGroup]] = {}
    for (fleet_key, key, apart), members in fleet_members.items():
        count = count_step(members[0], frozen_apart=True) if apart else counts[fleet_key]
        most = 1 if alone else max(1, memory // _memory(count, 1))
        for chunk in _even_chunks(members, most):
            group = _group(chunk, count, speed, alone)
            first = chunk[0]
            is_large = alone or group.flops >= LARGE_FLEET
            # Those of one lane take the same steps on the same data.
            lane = chunk[0].name if is_large else (key, first.source, first.config.epochs, first.steps_per_epoch)
            lanes.setdefault(lane, []).append(group)
    return [group for lane in lanes.values() for group in _abreast(lane, ABREAST[device.type], memory)]


def _abreast(lane: list[FleetGroup], most: int, memory: int) -> list[FleetGroup]:
    """The fleets of a lane, as many side by side as are allowed and fit."""
    fitting = memory // max(group.memory for group in lane)
    return [_side_by_side(chunk) for chunk in _even_chunks(lane, max(1, min(most, fitting)))]


def _side_by_side(groups: Sequence[FleetGroup]) -> FleetGroup:
    if len(groups) == 1:
        return groups[0]
    steps = [group.seconds - group.ahead for group in groups]
    ahead = sum(group.ahead for group in groups)
    return FleetGroup(
        resolved_runs=tuple(resolved for group in groups for resolved in group.resolved_runs),
        driver="fleet",
        seconds=ahead + (1 - CROWDING) * max(steps) + CROWDING * sum(steps),
        memory=sum(group.memory for group in groups),
        flops=sum(group.flops for group in groups),
        ahead=ahead,
        sizes=tuple(len(group.resolved_runs) for group in groups),
    )


def _group(members: list[ResolvedRun], count: StepCost, speed: CostModel | None, alone: bool) -> FleetGroup:
    steps = members[0].config.epochs * members[0].steps_per_epoch
    found = speed.estimate(count, len(members), steps) if speed else Estimate(0.0, 0.0)
    kind: Literal["single", "fleet"] = "single" if alone else "fleet"
    memory, flops = _memory(count, len(members)), len(members) * count.flops
    return FleetGroup(tuple(members), kind, found.ahead + found.steps, memory, flops, found.ahead)


def _memory(count: StepCost, models: int) -> int:
    return models * (count.bytes_made + STATIC_COPIES * count.leaf_bytes)


def _even_chunks(members: list[T], most: int) -> list[list[T]]:
    """As few chunks as possible, of sizes that differ by one at most: a small last fleet costs like a large one."""
    chunks = -(-len(members) // most)
    sizes = [len(members) // chunks + (index < len(members) % chunks) for index in range(chunks)]
    starts = [sum(sizes[:index]) for index in range(chunks)]
    return [members[start : start + size] for start, size in zip(starts, sizes, strict=True)]

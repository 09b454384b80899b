"""Which runs are trained together, and what that will cost.

Runs of one bucket share a fleet; a bucket too large for the memory is cut into several fleets. Time and memory are not
guessed: a step's operations are counted, and what they take on the device is measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import torch

from walkback.training.count import Count, count_step
from walkback.training.recipe import Recipe
from walkback.training.speed import Estimate, Speed

SMALL_STEP = 2e8
"""Floating-point operations of a step under which one CPU thread is enough."""
LARGE_PRODUCT = 2e8
"""Floating-point operations of a step's mean product from which shells are trained in fleets of their own: that spares
the gradients of their frozen blocks, which for smaller products cost less than another round of launches."""
WORTH_CUTTING = 5.0
"""Seconds that the longest share must be over the fair one before fleets are cut for it."""
STATIC_COPIES = 4
"""Leaf-sized tensors kept for each leaf: weight, gradient, two moments."""


@dataclass(frozen=True)
class Group:
    """Runs that are trained together."""

    recipes: tuple[Recipe, ...]
    driver: Literal["single", "fleet"]
    seconds: float
    memory: int
    flops: int
    """Of one step of all its models."""
    ahead: float = 0.0
    """Of its seconds those for which it does not need the GPU yet: it is traced and compiled."""

    @property
    def label(self) -> str:
        methods = list(dict.fromkeys(recipe.method.partition(":")[0] for recipe in self.recipes))
        return f"{'+'.join(methods)} ×{len(self.recipes)}"


def plan(
    recipes: Sequence[Recipe],
    keys: Sequence[Hashable],
    driver: Literal["auto", "single", "fleet"],
    device: torch.device,
    memory: int,
    *,
    predict: bool = True,
) -> list[Group]:
    """Group recipes into fleets that fit into `memory` bytes.

    `keys` tell apart what must not be mixed beyond the bucket, such as the epoch a run goes on from. Without `predict`
    nothing is timed and no fleet has seconds: on a GPU, timing takes some from whoever trains there.
    """
    speed = Speed.of(device) if predict else None
    counts: dict[Hashable, Count] = {}
    buckets: dict[tuple[Hashable, Hashable, bool], list[Recipe]] = {}
    for recipe, key in zip(recipes, keys, strict=True):
        bucket = recipe.bucket()
        if bucket not in counts:
            counts[bucket] = count_step(recipe)
        apart = recipe.treatment.shell != "none" and counts[bucket].mean_product >= LARGE_PRODUCT
        buckets.setdefault((bucket, key, apart), []).append(recipe)
    groups = []
    for (bucket, _, apart), members in buckets.items():
        count = count_step(members[0], frozen_apart=True) if apart else counts[bucket]
        alone = driver == "single"
        most = 1 if alone else max(1, memory // _memory(count, 1))
        groups += [_group(chunk, count, speed, alone) for chunk in _even_chunks(members, most)]
    return groups


def _group(members: list[Recipe], count: Count, speed: Speed | None, alone: bool) -> Group:
    steps = members[0].config.epochs * members[0].steps_per_epoch
    found = speed.estimate(count, len(members), steps) if speed else Estimate(0.0, 0.0)
    kind: Literal["single", "fleet"] = "single" if alone else "fleet"
    memory, flops = _memory(count, len(members)), len(members) * count.flops
    return Group(tuple(members), kind, found.ahead + found.steps, memory, flops, found.ahead)


def wall_seconds(groups: Sequence[Group], processes: int, *, in_turns: bool) -> float:
    """How long fleets take in several processes: side by side, or in turns on one GPU while the next are compiled."""
    if processes == 1 or not groups:
        return _seconds(groups)
    if in_turns:
        first = min(group.ahead for group in groups[:processes])
        return max(first + sum(group.seconds - group.ahead for group in groups), _seconds(groups) / processes)
    return max(map(_seconds, shared_out(evened(groups, processes), processes)))


def halves(group: Group) -> tuple[Group, Group]:
    """A group that did not fit into the memory, as two; estimates are shared out by the number of models."""
    middle = (len(group.recipes) + 1) // 2
    return _part(group, group.recipes[:middle]), _part(group, group.recipes[middle:])


def shared_out(groups: Sequence[Group], workers: int) -> list[list[Group]]:
    """Each worker's fleets, about the same time for all: the longest go first, each to whoever has least to do."""
    shares: list[list[Group]] = [[] for _ in range(workers)]
    for group in sorted(groups, key=lambda group: -group.seconds):
        min(shares, key=_seconds).append(group)
    return [share for share in shares if share]


def evened(groups: Sequence[Group], workers: int, is_begun: Callable[[Recipe], bool] = lambda _: False) -> list[Group]:
    """The same models in fleets that can be shared out evenly, so that no core waits for the last one.

    Fleets are cut in two for it, and the longest come first; runs that are begun stay in the company they were begun
    in.
    """
    found, fair = list(groups), _seconds(groups) / workers
    while found:
        longest = max(shared_out(found, workers), key=_seconds)
        cut = [group for group in longest if len(group.recipes) > 1 and not any(map(is_begun, group.recipes))]
        if not cut or _seconds(longest) <= max(1.1 * fair, fair + WORTH_CUTTING):
            break
        found.remove(cut[0])
        found = sorted([*found, *halves(cut[0])], key=lambda group: -group.seconds)
    return found


def _seconds(groups: Sequence[Group]) -> float:
    return sum(group.seconds for group in groups)


def _part(group: Group, members: tuple[Recipe, ...]) -> Group:
    share = len(members) / len(group.recipes)
    memory, flops = round(share * group.memory), round(share * group.flops)
    seconds, ahead = share * group.seconds, share * group.ahead
    return replace(group, recipes=members, seconds=seconds, memory=memory, flops=flops, ahead=ahead)


def back_off_text(group: Group, parts: Sequence[Group]) -> str:
    """What whoever watches is told."""
    sizes = " + ".join(str(len(part.recipes)) for part in parts)
    return f"out of memory with {len(group.recipes)} models together; going on with {sizes}"


@contextmanager
def suitable_threads(group: Group) -> Iterator[None]:
    """One thread where a step is too small to share, unless the user has set their number.

    Threads that wait for each other's crumbs gain little on an idle machine and lose several-fold on a busy one.
    """
    before = torch.get_num_threads()
    if group.flops < SMALL_STEP and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _memory(count: Count, models: int) -> int:
    return models * (count.bytes_made + STATIC_COPIES * count.leaf_bytes)


def _even_chunks(members: list[Recipe], most: int) -> list[list[Recipe]]:
    """As few chunks as possible, of sizes that differ by one at most: a small last fleet costs like a large one."""
    chunks = -(-len(members) // most)
    sizes = [len(members) // chunks + (index < len(members) % chunks) for index in range(chunks)]
    starts = [sum(sizes[:index]) for index in range(chunks)]
    return [members[start : start + size] for start, size in zip(starts, sizes, strict=True)]

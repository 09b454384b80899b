"""Which runs are trained together, and what that will cost.

Runs of one bucket share a fleet; a bucket too large for the memory is cut into several fleets. On a GPU small fleets
are trained side by side. Time and memory are not guessed: a step's operations are counted, and what they take on the
device is measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Literal, TypeVar

import torch

from walkback.training.count import Count, count_step
from walkback.training.recipe import Recipe
from walkback.training.speed import Estimate, Speed

T = TypeVar("T")

SMALL_STEP = 2e8
"""Floating-point operations of a step under which one CPU thread is enough."""
LARGE_PRODUCT = 2e8
"""Floating-point operations of a step's mean product from which shells are trained in fleets of their own: that spares
the gradients of their frozen blocks, which for smaller products cost less than another round of launches."""
WORTH_CUTTING = 5.0
"""Seconds that the longest share must be over the fair one before fleets are cut for it."""
STATIC_COPIES = 4
"""Leaf-sized tensors kept for each leaf: weight, gradient, two moments."""
ABREAST = {"cpu": 1, "cuda": 6}
"""Small fleets that are trained side by side."""
LARGE_FLEET = 3e10
"""Floating-point operations of a fleet's step from which it keeps a GPU busy by itself."""
CROWDING = 0.45
"""Share of its own time by which a small fleet delays those beside it (on an H200 0.4 to 0.55 for ResMLPs, 0.15 for
tiny ones)."""


@dataclass(frozen=True)
class Group:
    """Runs that are trained together: a fleet, or several side by side."""

    recipes: tuple[Recipe, ...]
    driver: Literal["single", "fleet"]
    seconds: float
    memory: int
    flops: int
    """Of one step of all its models."""
    ahead: float = 0.0
    """Of its seconds those for which it does not need the GPU yet: it is traced and compiled."""
    sizes: tuple[int, ...] = ()
    """Of its fleets, where it has several."""

    @property
    def fleets(self) -> list[tuple[Recipe, ...]]:
        ends = [*accumulate(self.sizes or (len(self.recipes),))]
        return [self.recipes[start:end] for start, end in pairwise([0, *ends])]

    @property
    def costs(self) -> dict[str, object]:
        """As `--json` prints them."""
        sizes = [len(fleet) for fleet in self.fleets]
        return {"driver": self.driver, "fleets": sizes, "seconds": self.seconds, "memory": self.memory}

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
    alone = driver == "single"
    counts: dict[Hashable, Count] = {}
    buckets: dict[tuple[Hashable, Hashable, bool], list[Recipe]] = {}
    for recipe, key in zip(recipes, keys, strict=True):
        bucket = recipe.bucket()
        if bucket not in counts:
            counts[bucket] = count_step(recipe)
        apart = recipe.treatment.shell != "none" and counts[bucket].mean_product >= LARGE_PRODUCT
        buckets.setdefault((bucket, key, apart), []).append(recipe)
    lanes: dict[Hashable, list[Group]] = {}
    for (bucket, key, apart), members in buckets.items():
        count = count_step(members[0], frozen_apart=True) if apart else counts[bucket]
        most = 1 if alone else max(1, memory // _memory(count, 1))
        for chunk in _even_chunks(members, most):
            group = _group(chunk, count, speed, alone)
            first = chunk[0]
            is_large = alone or group.flops >= LARGE_FLEET
            # Those of one lane take the same steps on the same data.
            lane = chunk[0].name if is_large else (key, first.source, first.config.epochs, first.steps_per_epoch)
            lanes.setdefault(lane, []).append(group)
    return [group for lane in lanes.values() for group in _abreast(lane, ABREAST[device.type], memory)]


def _abreast(lane: list[Group], most: int, memory: int) -> list[Group]:
    """The fleets of a lane, as many side by side as are allowed and fit."""
    fitting = memory // max(group.memory for group in lane)
    return [_side_by_side(chunk) for chunk in _even_chunks(lane, max(1, min(most, fitting)))]


def _side_by_side(groups: Sequence[Group]) -> Group:
    if len(groups) == 1:
        return groups[0]
    steps = [group.seconds - group.ahead for group in groups]
    ahead = sum(group.ahead for group in groups)
    return Group(
        recipes=tuple(recipe for group in groups for recipe in group.recipes),
        driver="fleet",
        seconds=ahead + (1 - CROWDING) * max(steps) + CROWDING * sum(steps),
        memory=sum(group.memory for group in groups),
        flops=sum(group.flops for group in groups),
        ahead=ahead,
        sizes=tuple(len(group.recipes) for group in groups),
    )


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
        # Those that are ready first are given out first.
        first = min(group.ahead for group in groups)
        return max(first + sum(group.seconds - group.ahead for group in groups), _seconds(groups) / processes)
    return max(map(_seconds, shared_out(evened(groups, processes), processes)))


def halves(group: Group) -> tuple[Group, Group]:
    """A group that did not fit into the memory, as two; estimates are shared out by the number of models."""
    if len(group.sizes) > 1:
        middle = (len(group.sizes) + 1) // 2
        sizes = group.sizes[:middle], group.sizes[middle:]
        count = sum(sizes[0])
    else:
        sizes, count = ((), ()), (len(group.recipes) + 1) // 2
    return _part(group, group.recipes[:count], sizes[0]), _part(group, group.recipes[count:], sizes[1])


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


def _part(group: Group, members: tuple[Recipe, ...], sizes: tuple[int, ...]) -> Group:
    share = len(members) / len(group.recipes)
    memory, flops = round(share * group.memory), round(share * group.flops)
    seconds, ahead = share * group.seconds, share * group.ahead
    return replace(group, recipes=members, seconds=seconds, memory=memory, flops=flops, ahead=ahead, sizes=sizes)


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


def _even_chunks(members: list[T], most: int) -> list[list[T]]:
    """As few chunks as possible, of sizes that differ by one at most: a small last fleet costs like a large one."""
    chunks = -(-len(members) // most)
    sizes = [len(members) // chunks + (index < len(members) % chunks) for index in range(chunks)]
    starts = [sum(sizes[:index]) for index in range(chunks)]
    return [members[start : start + size] for start, size in zip(starts, sizes, strict=True)]

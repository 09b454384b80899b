"""Which runs are trained together, and what that will cost.

Runs of one bucket share a fleet; a bucket too large for the memory is cut into several fleets. Time and memory are
counted, not guessed: one step is run on torch's meta device, which does no arithmetic, and its operations are added up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from walkback.core.errors import InputError
from walkback.training.recipe import Recipe
from walkback.training.step import StepSpec, step

ADAMW_PASSES = 10
"""Times a leaf's worth of bytes moves per update: gradient, weight and two moments, read and written, and some."""
SMALL_STEP = 2e8
"""Floating-point operations of a step under which one CPU thread is enough."""
STATIC_COPIES = 4
"""Leaf-sized tensors kept for each leaf: weight, gradient, two moments."""


@dataclass(frozen=True)
class Count:
    """What one training step of one model does."""

    operations: int
    flops: int
    bytes_made: int
    """Bytes of all results: about the memory the step needs, and half of the memory traffic."""
    leaf_bytes: int


@dataclass(frozen=True)
class Rates:
    """What the device does in a second, measured."""

    flops: float
    bytes: float
    overhead: float
    """Seconds for each operation, however small."""


@dataclass(frozen=True)
class Group:
    """Runs that are trained together."""

    recipes: tuple[Recipe, ...]
    driver: Literal["single", "fleet"]
    seconds: float
    memory: int
    flops: int
    """Of one step of all its models."""

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
) -> list[Group]:
    """Group recipes into fleets that fit into `memory` bytes.

    `keys` tell apart what must not be mixed beyond the bucket, such as the epoch a run goes on from.
    """
    rates = measure_rates(device)
    buckets: dict[Hashable, list[Recipe]] = {}
    for recipe, key in zip(recipes, keys, strict=True):
        buckets.setdefault((recipe.bucket(), key), []).append(recipe)
    groups = []
    for members in buckets.values():
        count = count_step(members[0])
        alone = driver == "single"
        most = 1 if alone else max(1, memory // _memory(count, 1))
        groups += [_group(chunk, count, rates, alone) for chunk in _even_chunks(members, most)]
    return groups


def _group(members: list[Recipe], count: Count, rates: Rates, alone: bool) -> Group:
    config = members[0].config
    steps = config.epochs * (members[0].source.train_size // config.batch)
    arithmetic = count.flops / rates.flops
    traffic = (2 * count.bytes_made + ADAMW_PASSES * count.leaf_bytes) / rates.bytes
    seconds = steps * (count.operations * rates.overhead + len(members) * (arithmetic + traffic))
    kind: Literal["single", "fleet"] = "single" if alone else "fleet"
    return Group(tuple(members), kind, seconds, _memory(count, len(members)), len(members) * count.flops)


def halves(group: Group) -> tuple[Group, Group]:
    """A group that did not fit into the memory, as two; estimates are shared out by the number of models."""
    middle = (len(group.recipes) + 1) // 2
    return _part(group, group.recipes[:middle]), _part(group, group.recipes[middle:])


def _part(group: Group, members: tuple[Recipe, ...]) -> Group:
    share = len(members) / len(group.recipes)
    memory, flops = round(share * group.memory), round(share * group.flops)
    return replace(group, recipes=members, seconds=share * group.seconds, memory=memory, flops=flops)


def back_off_text(group: Group, parts: Sequence[Group]) -> str:
    """What whoever watches is told."""
    sizes = " + ".join(str(len(part.recipes)) for part in parts)
    return f"out of memory with {len(group.recipes)} models together; going on with {sizes}"


_NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "alloc_failed",  # cuBLAS
    "could not create a primitive",  # oneDNN
    "could not create a memory",
)
"""How torch, its libraries and the system say it, where they have no exception of its own for it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error, or one that it came from, says that the memory is used up."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(seen, RuntimeError) and any(words in str(seen).lower() for words in _NO_MEMORY):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


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


def count_step(recipe: Recipe) -> Count:
    """Count one step of one model."""
    try:
        shapes = recipe.params()
        state, noise = _meta(recipe.state()), _meta(recipe.noise(0, 0))
    except (RuntimeError, MemoryError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"The model '{recipe.name}' cannot be made: {reason}. Use smaller sizes.") from error
    params = _meta(shapes)
    knobs = {name: torch.empty((), dtype=recipe.dtype, device="meta") for name in recipe.knobs()}
    x = torch.empty((recipe.config.batch, *recipe.net.input_shape), dtype=recipe.dtype, device="meta")
    y = torch.empty(recipe.config.batch, dtype=torch.int64, device="meta")
    counter = _Counter()
    with counter:
        step(StepSpec.of(recipe), params, state, knobs, x, y, noise)
    leaf_bytes = sum(leaf.nbytes for leaf in shapes.values())
    return Count(counter.operations, counter.flops, counter.bytes_made, leaf_bytes)


def _meta(leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: leaf.to("meta") for name, leaf in leaves.items()}


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the operations that run inside it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations = self.flops = self.bytes_made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        if func.overloadpacket in flop_registry:
            self.flops += flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=result)
        if not func.is_view:
            self.bytes_made += sum(leaf.nbytes for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        return result


def measure_rates(device: torch.device) -> Rates:
    """Time a product and a copy of middling size, a few hundredths of a second each."""
    size = 4096 if device.type == "cuda" else 384
    a = torch.randn(size, size, device=device)
    b = torch.empty_like(a)
    product = _seconds(lambda: torch.matmul(a, a, out=b), device)
    moved, copy = _copy(1 << (29 if device.type == "cuda" else 26), device)
    # A captured step launches an operation in about 2 us; an eager one under vmap costs the host about 25 us.
    overhead = 2e-6 if device.type == "cuda" else 25e-6
    return Rates(flops=2 * size**3 / product, bytes=2 * moved / copy, overhead=overhead)


def _copy(size: int, device: torch.device) -> tuple[int, float]:
    """Time the copy of `size` bytes, or of a part of them where there is little memory; the bytes and the seconds."""
    try:
        source, target = torch.empty(2, size, dtype=torch.uint8, device=device)
    except RuntimeError as error:
        if not is_out_of_memory(error) or size < 1 << 16:
            raise
        return _copy(size // 4, device)
    return size, _seconds(lambda: target.copy_(source), device)


def _seconds(work: Any, device: torch.device, repeats: int = 10) -> float:
    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(2):
        work()
    wait()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    wait()
    return (time.perf_counter() - start) / repeats

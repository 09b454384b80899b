"""The cost model: predicts training time from measured matmul times and memory bandwidth.

Matmuls and convolutions are timed one by one, at the size they have for all models of a fleet together. The small
operations between them move bytes and launch kernels; both are counted and multiplied by the measured time of a copy
and by the time of a launch. The constants below were fitted to steps timed on an H200 and on two CPU cores.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from walkback.training.driver import set_exact_arithmetic
from walkback.training.gpu.cuda_graph import capture, synchronize
from walkback.training.gpu.graph_program import (
    BANDWIDTH,
    CONVOLUTION_FLOPS_PER_SECOND,
    LAUNCH_SECONDS,
    SAVED_SHARE,
    compiling_seconds,
    worth_compiling,
)
from walkback.training.gpu.split_matmul import matmul_in_parts, split_count, split_count_for
from walkback.training.out_of_memory import is_out_of_memory
from walkback.training.planning.flop_count import MatmulShape, StepCost, TensorLayout

ADAMW_PASSES = {"cpu": 8, "cuda": 6}
"""Copies of a leaf's bytes per update, at the bandwidth of a copy: gradient, weight and two moments are read, and
three of them written; on a GPU reading is faster than copying."""
UNFUSED_KERNELS, FUSED_KERNELS = 2.4, 0.8
"""Kernels per small operation of one model's step: when traced (vmap turns some into several) and when compiled."""
FUSED_TRAFFIC = 0.6
"""Share of the small operations' bytes that is still moved after compilation."""
EVALUATION_SHARE = {"cpu": 0.07, "cuda": 0.15}
"""Time of evaluation and detectors after every epoch, as a share of the epoch's training time."""
START_SECONDS = (0.3, 5e-3)
"""Seconds to build, trace and capture a fleet: fixed, and for each operation of one model's step."""
EAGER_LAUNCH = 6e-6
"""Seconds for each operation of a traced step on the CPU."""
TIMING_SECONDS = 5e-4
"""On a GPU, a matmul is repeated for about this long per timing."""

AGREEING, SPREAD = 4, 1.05
"""A matmul is timed until this many timings are within this factor of the shortest: on a machine where others compute,
most timings are too long, and by different factors."""
MOST_TIMINGS, MOST_SECONDS = 30, 0.3
"""It is timed no more often, and no longer once there are enough timings."""


@dataclass(frozen=True)
class Estimate:
    """Seconds that a fleet's training takes."""

    compile_seconds: float
    """Seconds to build, trace, capture and compile it; they overlap with another fleet's training on the GPU."""
    step_seconds: float
    """Seconds of all its steps, evaluation included."""


@dataclass(frozen=True)
class CostModel:
    """How fast a device is."""

    device: torch.device
    bandwidth: float
    """Bytes per second of a copy; each byte counts twice, as read and as written."""
    time_matmul: Callable[[MatmulShape, int, torch.device], float]
    """Seconds of a matmul or convolution for a number of models, on the device."""

    @staticmethod
    def of(device: torch.device) -> CostModel:
        set_exact_arithmetic(device)  # Matmuls are timed with the settings they will run with.
        return CostModel(device, _bandwidth(device), _matmul_seconds)

    def estimate(self, cost: StepCost, models: int, steps: int) -> Estimate:
        """The time of `steps` steps of `models` models, including evaluation after every epoch."""
        matmuls = self._total_seconds(cost.matmuls, models)
        update = ADAMW_PASSES[self.device.type] * models * cost.leaf_bytes / self.bandwidth
        traffic = 2 * models * cost.small_bytes / self.bandwidth
        matmul_count = sum(times for _, times in cost.matmuls)
        start = START_SECONDS[0] + START_SECONDS[1] * (cost.small_operations + matmul_count)
        with_evaluation = (1 + EVALUATION_SHARE[self.device.type]) * steps
        if self.device.type == "cpu":
            eager = matmuls + update + UNFUSED_KERNELS * (traffic + cost.small_operations * EAGER_LAUNCH)
            return Estimate(start, with_evaluation * eager)
        plain = matmuls + update + UNFUSED_KERNELS * (traffic + cost.small_operations * LAUNCH_SECONDS)
        convolved = [(matmul, times) for matmul, times in cost.matmuls if _as_winograd(matmul)]
        tiled = [(tiles, times) for matmul, times in convolved for tiles in _winograd_matmuls(matmul, models)]
        moved = sum(times * models * _winograd_bytes(matmul) / BANDWIDTH for matmul, times in convolved)
        winograd = matmuls - self._total_seconds(convolved, models) + self._total_seconds(tiled, models) + moved
        fused = winograd + update + FUSED_TRAFFIC * traffic + FUSED_KERNELS * cost.small_operations * LAUNCH_SECONDS
        convolutions = sum(times for _, times in convolved)
        operations = round(UNFUSED_KERNELS * cost.small_operations) + matmul_count
        # Counted as `graph_program.compiling_pays` counts it, which decides when the fleet is trained.
        slow = sum(times * models * _convolution_flops(matmul) for matmul, times in convolved)
        small = cost.small_operations * LAUNCH_SECONDS + 2 * models * cost.small_bytes / BANDWIDTH
        saved = SAVED_SHARE * (UNFUSED_KERNELS * small + slow / CONVOLUTION_FLOPS_PER_SECOND)
        if not worth_compiling(steps * saved, operations, convolutions):
            return Estimate(start, with_evaluation * plain)
        return Estimate(start + compiling_seconds(operations, convolutions), with_evaluation * fused)

    def _total_seconds(self, matmuls: Iterable[tuple[MatmulShape, int]], models: int) -> float:
        return sum(times * self.time_matmul(matmul, models, self.device) for matmul, times in matmuls)


def _matmul_seconds(matmul: MatmulShape, models: int, device: torch.device) -> float:
    """Time a matmul as a fleet runs it; if memory does not suffice for all models, twice the time of half of them."""
    try:
        return _time_matmul(matmul, models, device, torch.get_num_threads())
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    # A matmul that does not fit for one model cannot be timed; training will report the lack of memory.
    return 2 * _matmul_seconds(matmul, models // 2, device) if models > 1 else 0.0


@cache
def _time_matmul(matmul: MatmulShape, models: int, device: torch.device, threads: int) -> float:
    """`threads` is the number of CPU threads that are in use: it only tells the cached times apart."""
    if matmul.kind == "matmul":
        return _seconds(_matmul_work(*(_stacked(each, models, matmul, device) for each in matmul.operands)), device)
    return _seconds(_convolution_work(matmul, models, device), device)


def _stacked(layout: TensorLayout, models: int, matmul: MatmulShape, device: torch.device) -> Tensor:
    """A random tensor of this layout for each model, as [models * batch, rows, columns]."""
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(layout.shape, layout.strides, strict=True))
    values = torch.randn(models, size, dtype=matmul.dtype, device=device)
    stacked = values.as_strided((models, *layout.shape), (size, *layout.strides))
    return stacked.reshape(-1, *layout.shape[-2:])


def _matmul_work(left: Tensor, right: Tensor) -> Callable[[], Tensor]:
    count = split_count(left, right) if left.device.type == "cuda" else 1
    return lambda: matmul_in_parts(left, right, count)


def _convolution_work(matmul: MatmulShape, models: int, device: torch.device) -> Callable[[], object]:
    """One convolution, or its backward pass, with the models as groups."""
    *maps, kernel = (each.shape for each in matmul.operands)
    tensors = [torch.randn(s[0], models * s[1], *s[2:], dtype=matmul.dtype, device=device) for s in maps]
    weight = torch.randn(models * kernel[0], *kernel[1:], dtype=matmul.dtype, device=device)
    how, groups = matmul.how[:-1], models * matmul.how[-1]
    if matmul.kind == "convolution":
        return lambda: torch.ops.aten.convolution(tensors[0], weight, None, *how, groups)
    wanted = [*matmul.wanted, False]
    backward = torch.ops.aten.convolution_backward
    return lambda: backward(*tensors, weight, None, *how, groups, wanted)


def _as_winograd(matmul: MatmulShape) -> bool:
    """Whether a compiled step computes this convolution or its backward pass by Winograd's 16 matmuls."""
    is_3x3 = matmul.kind != "matmul" and matmul.operands[-1].shape[2:] == (3, 3)
    return is_3x3 and matmul.how == ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)


def _convolution_flops(matmul: MatmulShape) -> int:
    """FLOP count of a convolution or its backward pass by the direct algorithm, for one model."""
    batch, _, *places = matmul.operands[0].shape
    passes = 1 if matmul.kind == "convolution" else sum(matmul.wanted)
    return passes * 2 * math.prod(matmul.operands[-1].shape) * batch * math.prod(places)


def _winograd_matmuls(matmul: MatmulShape, models: int) -> list[MatmulShape]:
    out, inner = matmul.operands[-1].shape[:2]
    length = _tiles(matmul)
    if matmul.kind == "convolution":
        shapes = [(16, out, inner, length)]
    else:
        # The terms are split as `winograd.batch_chunks` splits them for all models.
        count = math.gcd(matmul.operands[0].shape[0], split_count_for(16 * models, out, length, inner))
        shapes = [(16, inner, out, length)] * matmul.wanted[0]
        shapes += [(16 * count, out, length // count, inner)] * matmul.wanted[1]

    def dense(*shape: int) -> TensorLayout:
        return TensorLayout(shape, (shape[1] * shape[2], shape[2], 1))

    return [replace(matmul, kind="matmul", operands=(dense(b, m, k), dense(b, k, n))) for b, m, k, n in shapes]


def _winograd_bytes(matmul: MatmulShape) -> int:
    """Bytes that its transforms write and read: 16 values for each 2x2 tile of a map."""
    out, inner = matmul.operands[-1].shape[:2]
    maps = 1 if matmul.kind == "convolution" else sum(matmul.wanted)
    return maps * 2 * 16 * _tiles(matmul) * (out + inner) * matmul.dtype.itemsize


def _tiles(matmul: MatmulShape) -> int:
    batch, _, height, width = matmul.operands[0].shape
    return batch * -(-height // 2) * -(-width // 2)


def _bandwidth(device: torch.device) -> float:
    moved, copy = _copy(1 << (29 if device.type == "cuda" else 26), device)
    return 2 * moved / copy


def _copy(size: int, device: torch.device) -> tuple[int, float]:
    """Time a copy of `size` bytes, or of fewer if memory does not suffice; returns the bytes and the seconds."""
    try:
        source, target = torch.empty(2, size, dtype=torch.uint8, device=device)
    except RuntimeError as error:
        if not is_out_of_memory(error) or size < 1 << 16:
            raise
        return _copy(size // 4, device)
    return size, _seconds(lambda: target.copy_(source), device)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that `work` takes; on a GPU averaged over repetitions in a CUDA graph, since a launch from the host can
    take longer than the work."""
    if device.type != "cuda":
        return _shortest_time(work, device)
    work()  # One-time setup is not part of the time.
    times = math.ceil(TIMING_SECONDS / _shortest_time(work, device))
    graph, _ = capture(lambda: [work() for _ in range(times)][-1])
    return _shortest_time(graph.replay, device) / times


def _shortest_time(work: Callable[[], object], device: torch.device) -> float:
    """The shortest of several timings: other load on the machine can only add time."""
    found: list[float] = []
    while len(found) < AGREEING or (
        len(found) < MOST_TIMINGS
        and sum(found) < MOST_SECONDS
        and sum(seconds <= SPREAD * min(found) for seconds in found) < AGREEING
    ):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        found.append(time.perf_counter() - start)
    return min(found)

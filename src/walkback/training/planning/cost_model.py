"""How fast a device is: measured, for a prediction of what training will take.

Products are timed one by one, each as large as it is for all models of a fleet together. What is between them moves
bytes and starts kernels; both are counted, and priced by a measured copy and by what a start takes. The constants below
fit steps that were timed on an H200 and on two cores.
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
from walkback.training.gpu.graph_program import BANDWIDTH, LAUNCH, compiling_seconds, worth_compiling
from walkback.training.gpu.split_matmul import cuts, matmul_in_parts, parts
from walkback.training.out_of_memory import is_out_of_memory
from walkback.training.planning.flop_count import MatmulShape, StepCost, TensorLayout

ADAMW_PASSES = {"cpu": 8, "cuda": 6}
"""Times a leaf's worth of bytes moves per update, at the rate of a copy: gradient, weight and two moments are read, and
three of them written; a GPU's memory reads faster than it copies."""
UNFUSED, FUSED = 2.4, 0.8
"""Kernels for each small operation of one model's step: traced, where under vmap some become several; and compiled."""
STILL_MOVED = 0.6
"""Share of the small operations' bytes that compiled ones still move."""
LOOKING = {"cpu": 0.07, "cuda": 0.15}
"""Evaluation and detectors after every epoch, as a share of it."""
START_SECONDS = (0.3, 5e-3)
"""To build, trace and record a fleet: at the least, and for each operation of one model's step."""
EAGER_LAUNCH = 6e-6
"""Seconds for each operation of a traced step on the CPU."""
ROW_SECONDS = 5e-4
"""On a GPU, how long a row of the same product is timed."""


@dataclass(frozen=True)
class Estimate:
    """Seconds that a fleet's training takes."""

    ahead: float
    """To build, trace, record and compile it: while another fleet has the GPU, that costs nothing."""
    steps: float


@dataclass(frozen=True)
class CostModel:
    """What a device does in a second."""

    device: torch.device
    bandwidth: float
    """Bytes copied, read and written counted."""
    timed: Callable[[MatmulShape, int, torch.device], float]
    """Seconds of a product for so many models."""

    @staticmethod
    def of(device: torch.device) -> CostModel:
        set_exact_arithmetic(device)  # Products are timed as they will be done.
        return CostModel(device, _bandwidth(device), _product_seconds)

    def estimate(self, count: StepCost, models: int, steps: int) -> Estimate:
        """What `steps` steps of `models` models take, looks after every epoch included."""
        products = self._products(count.products, models)
        update = ADAMW_PASSES[self.device.type] * models * count.leaf_bytes / self.bandwidth
        traffic = 2 * models * count.small_bytes / self.bandwidth
        products_done = sum(times for _, times in count.products)
        begin = START_SECONDS[0] + START_SECONDS[1] * (count.small_operations + products_done)
        looked = (1 + LOOKING[self.device.type]) * steps
        if self.device.type == "cpu":
            eager = products + update + UNFUSED * (traffic + count.small_operations * EAGER_LAUNCH)
            return Estimate(begin, looked * eager)
        plain = products + update + UNFUSED * (traffic + count.small_operations * LAUNCH)
        convolved = [(product, times) for product, times in count.products if _as_winograd(product)]
        tiled = [(tiles, times) for product, times in convolved for tiles in _winograd_products(product, models)]
        moved = sum(times * models * _winograd_bytes(product) / BANDWIDTH for product, times in convolved)
        winograd = products - self._products(convolved, models) + self._products(tiled, models) + moved
        fused = winograd + update + STILL_MOVED * traffic + FUSED * count.small_operations * LAUNCH
        convolutions = sum(times for _, times in convolved)
        operations = round(UNFUSED * count.small_operations) + products_done
        if not worth_compiling(steps * (plain - fused), operations, convolutions):
            return Estimate(begin, looked * plain)
        return Estimate(begin + compiling_seconds(operations, convolutions), looked * fused)

    def _products(self, products: Iterable[tuple[MatmulShape, int]], models: int) -> float:
        return sum(times * self.timed(product, models, self.device) for product, times in products)


def _product_seconds(product: MatmulShape, models: int, device: torch.device) -> float:
    """Time a product as a fleet does it; where there is no memory for all models, for half of them twice."""
    try:
        return _timed_product(product, models, device)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    # One that does not fit alone cannot be timed; whoever trains it will be told.
    return 2 * _product_seconds(product, models // 2, device) if models > 1 else 0.0


@cache
def _timed_product(product: MatmulShape, models: int, device: torch.device) -> float:
    if product.kind == "matmul":
        return _seconds(_matmul(*(_stacked(each, models, product, device) for each in product.operands)), device)
    return _seconds(_convolution(product, models, device), device)


def _stacked(layout: TensorLayout, models: int, product: MatmulShape, device: torch.device) -> Tensor:
    """A random tensor of this layout for each model, with the models in front of its matrices."""
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(layout.shape, layout.strides, strict=True))
    values = torch.randn(models, size, dtype=product.dtype, device=device)
    stacked = values.as_strided((models, *layout.shape), (size, *layout.strides))
    return stacked.reshape(-1, *layout.shape[-2:])


def _matmul(left: Tensor, right: Tensor) -> Callable[[], Tensor]:
    count = cuts(left, right) if left.device.type == "cuda" else 1
    return lambda: matmul_in_parts(left, right, count)


def _convolution(product: MatmulShape, models: int, device: torch.device) -> Callable[[], object]:
    """All models as the groups of one convolution."""
    *maps, kernel = (each.shape for each in product.operands)
    tensors = [torch.randn(s[0], models * s[1], *s[2:], dtype=product.dtype, device=device) for s in maps]
    weight = torch.randn(models * kernel[0], *kernel[1:], dtype=product.dtype, device=device)
    stride, padding = [product.stride] * 2, [product.padding] * 2
    if product.kind == "convolution":
        return lambda: torch.convolution(tensors[0], weight, None, stride, padding, [1, 1], False, [0, 0], models)
    wants = [*product.wants, False]
    backward = torch.ops.aten.convolution_backward
    return lambda: backward(*tensors, weight, None, stride, padding, [1, 1], False, [0, 0], models, wants)


def _as_winograd(product: MatmulShape) -> bool:
    """Whether a compiled step does this product, a convolution or its pullback, as 16 products."""
    is_3x3 = product.kind != "matmul" and product.operands[-1].shape[-2:] == (3, 3)
    return is_3x3 and product.stride == product.padding == 1


def _winograd_products(product: MatmulShape, models: int) -> list[MatmulShape]:
    out, inner = product.operands[-1].shape[:2]
    length = _tiles(product)
    if product.kind == "convolution":
        shapes = [(16, out, inner, length)]
    else:
        # Its terms are cut up as `winograd.chunks` does it for all models.
        count = math.gcd(product.operands[0].shape[0], parts(16 * models, out, length, inner))
        shapes = [(16, inner, out, length)] * product.wants[0]
        shapes += [(16 * count, out, length // count, inner)] * product.wants[1]

    def dense(*shape: int) -> TensorLayout:
        return TensorLayout(shape, (shape[1] * shape[2], shape[2], 1))

    return [replace(product, kind="matmul", operands=(dense(b, m, k), dense(b, k, n))) for b, m, k, n in shapes]


def _winograd_bytes(product: MatmulShape) -> int:
    """Bytes that its transforms write and read: maps at 16 positions for each four of their pixels."""
    out, inner = product.operands[-1].shape[:2]
    maps = 1 if product.kind == "convolution" else sum(product.wants)
    return maps * 2 * 16 * _tiles(product) * (out + inner) * product.dtype.itemsize


def _tiles(product: MatmulShape) -> int:
    batch, _, height, width = product.operands[0].shape
    return batch * -(-height // 2) * -(-width // 2)


def _bandwidth(device: torch.device) -> float:
    moved, copy = _copy(1 << (29 if device.type == "cuda" else 26), device)
    return 2 * moved / copy


def _copy(size: int, device: torch.device) -> tuple[int, float]:
    """Time the copy of `size` bytes, or of a part of them where there is little memory; the bytes and the seconds."""
    try:
        source, target = torch.empty(2, size, dtype=torch.uint8, device=device)
    except RuntimeError as error:
        if not is_out_of_memory(error) or size < 1 << 16:
            raise
        return _copy(size // 4, device)
    return size, _seconds(lambda: target.copy_(source), device)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """How long some work takes; on a GPU in a row of the same, since starting one alone would take longer than it."""
    if device.type != "cuda":
        return _shortest(work, device)
    work()  # Whatever it needs to be set up is not part of it.
    times = math.ceil(ROW_SECONDS / _shortest(work, device))
    row, _ = capture(lambda: [work() for _ in range(times)][-1])
    return _shortest(row.replay, device) / times


def _shortest(work: Callable[[], object], device: torch.device) -> float:
    """The shortest of a few times: what else goes on in a machine only ever adds."""
    found: list[float] = []
    while len(found) < 2 or (len(found) < 6 and sum(found) < 2e-3):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        found.append(time.perf_counter() - start)
    return min(found)

"""What one training step of one model does, counted: run on torch's meta device, which does no arithmetic."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from walkback.core.errors import InputError
from walkback.nets.network import Leaves
from walkback.training.gpu.graph_program import trace_program
from walkback.training.resolved_run import ResolvedRun
from walkback.training.step import StepSpec, step

aten = torch.ops.aten


@dataclass(frozen=True)
class TensorLayout:
    """A tensor's shape and strides."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @staticmethod
    def of(tensor: Tensor) -> TensorLayout:
        return TensorLayout(tuple(tensor.shape), tensor.stride())


@dataclass(frozen=True)
class MatmulShape:
    """A matrix product or a convolution: the operations that are worth timing one by one."""

    kind: str
    """`matmul`, `convolution` or `convolution_backward`."""
    operands: tuple[TensorLayout, ...]
    stride: int = 1
    padding: int = 0
    dtype: torch.dtype = torch.float32
    wants: tuple[bool, ...] = ()
    """Of a convolution's pullback: whether the input's and the kernel's gradient are asked for."""


@dataclass(frozen=True)
class StepCost:
    """One step of one model."""

    flops: int
    bytes_made: int
    """Bytes of all results: at most the memory the step needs."""
    leaf_bytes: int
    products: tuple[tuple[MatmulShape, int], ...]
    """Each with the number of times it occurs."""
    small_operations: int
    """All others that are not mere views."""
    small_bytes: int
    """Bytes of their results."""

    @property
    def mean_product(self) -> float:
        """Floating-point operations of a product, on average."""
        return self.flops / max(1, sum(times for _, times in self.products))


def count_step(resolved: ResolvedRun, *, frozen_apart: bool = False) -> StepCost:
    """Count one step of one model; with `frozen_apart` without the gradients of what is frozen in it, as in a fleet in
    which it is frozen in all."""
    try:
        shapes = resolved.params()
        state, noise = _meta(resolved.state()), _meta(resolved.noise(0, 0))
    except (RuntimeError, MemoryError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"The model '{resolved.name}' cannot be made: {reason}. Use smaller sizes.") from error
    params = _meta(shapes)
    knobs = {name: torch.empty((), dtype=resolved.dtype, device="meta") for name in resolved.knobs()}
    x = torch.empty((resolved.config.batch, *resolved.net.input_shape), dtype=resolved.dtype, device="meta")
    y = torch.empty(resolved.config.batch, dtype=torch.int64, device="meta")
    spec = StepSpec.of(resolved)

    def work(*inputs: Any) -> tuple[Leaves, Leaves, Leaves]:
        output = step(spec, *inputs)
        trained = {name: leaf for name, leaf in output.gradients.items() if not resolved.is_frozen(name)}
        return trained, output.own_gradients, output.logs

    inputs = (params, state, knobs, x, y, noise)
    program = trace_program(work, inputs) if frozen_apart else work
    counter = _Counter()
    with counter:
        program(*inputs)
    return StepCost(
        flops=counter.flops,
        bytes_made=counter.product_bytes + counter.small_bytes,
        leaf_bytes=sum(leaf.nbytes for leaf in shapes.values()),
        products=tuple(counter.products.items()),
        small_operations=counter.small_operations,
        small_bytes=counter.small_bytes,
    )


def _meta(leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: leaf.to("meta") for name, leaf in leaves.items()}


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the operations that run inside it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = self.product_bytes = self.small_bytes = self.small_operations = 0
        self.products: Counter[MatmulShape] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = sum(leaf.nbytes for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        if func.overloadpacket in flop_registry:
            self.flops += flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=result)
            self.product_bytes += made
            self.products[_product(func, args)] += 1
        elif not func.is_view:
            self.small_operations += 1
            self.small_bytes += made
        return result


def _product(func: Any, args: Any) -> MatmulShape:
    if func is aten.convolution.default:
        x, weight, _, stride, padding = args[:5]
        return MatmulShape("convolution", (TensorLayout.of(x), TensorLayout.of(weight)), stride[0], padding[0], x.dtype)
    if func is aten.convolution_backward.default:
        credit, x, weight, _, stride, padding = args[:6]
        layouts = (TensorLayout.of(credit), TensorLayout.of(x), TensorLayout.of(weight))
        return MatmulShape("convolution_backward", layouts, stride[0], padding[0], x.dtype, tuple(args[-1][:2]))
    # `addmm` and `baddbmm` have what is added first.
    left, right = [each for each in args if isinstance(each, Tensor)][-2:]
    return MatmulShape("matmul", (TensorLayout.of(left), TensorLayout.of(right)), dtype=left.dtype)

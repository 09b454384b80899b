"""FLOP count and memory traffic of one training step of one model.

The step is run on torch's meta device, which does no arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from walkback.core.errors import InputError
from walkback.core.settings import MODULE
from walkback.nets.network import Leaves
from walkback.training.gpu.graph_program import trace_program
from walkback.training.resolved_run import ResolvedRun
from walkback.training.step import StepSpec, step

_aten = torch.ops.aten


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
    """A matmul or a convolution: the operations that the cost model times one by one."""

    kind: str
    """`matmul`, `convolution` or `convolution_backward`."""
    operands: tuple[TensorLayout, ...]
    how: tuple[Any, ...] = ()
    """For convolutions: stride, padding, dilation, transposed, output padding and groups."""
    dtype: torch.dtype = torch.float32
    wanted: tuple[bool, ...] = ()
    """For `convolution_backward`: whether the input's and the kernel's gradients are computed."""


@dataclass(frozen=True)
class StepCost:
    """The cost of one step of one model."""

    flops: int
    bytes_made: int
    """Bytes of all results: an upper bound of the memory the step needs."""
    leaf_bytes: int
    matmuls: tuple[tuple[MatmulShape, int], ...]
    """Matmuls and convolutions, each with the number of times it occurs."""
    small_operations: int
    """Number of all other operations, views not counted."""
    small_bytes: int
    """Bytes of the small operations' results."""

    @property
    def mean_matmul_flops(self) -> float:
        """Mean FLOP count of a matmul."""
        return self.flops / max(1, sum(times for _, times in self.matmuls))


def count_step(resolved: ResolvedRun, *, frozen_apart: bool = False) -> StepCost:
    """Count one step of one model; with `frozen_apart` without the gradients of its frozen leaves, as in a fleet whose
    models all have them frozen."""
    if resolved.net.alone:  # Where its code goes depends on its numbers, which the meta device does not have.
        return _count_on(resolved, "cpu", frozen_apart=False)
    try:
        return _count_on(resolved, "meta", frozen_apart=frozen_apart)
    except (RuntimeError, NotImplementedError):
        if MODULE not in resolved.config.arch.settings:
            raise
        return _count_on(resolved, "cpu", frozen_apart=False)  # A module may hold tensors that are no buffers.


def _count_on(resolved: ResolvedRun, device: str, *, frozen_apart: bool) -> StepCost:
    try:
        shapes = resolved.params()
        state, noise = _on(resolved.state(), device), _on(resolved.noise(0, 0), device)
    except (RuntimeError, MemoryError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"The model '{resolved.name}' cannot be made: {reason}. Use smaller sizes.") from error
    params = _on(shapes, device)
    knobs = {name: torch.zeros((), dtype=resolved.dtype, device=device) for name in resolved.knobs()}
    x = torch.zeros((resolved.config.batch, *resolved.net.input_shape), dtype=resolved.dtype, device=device)
    y = torch.zeros((resolved.config.batch, *resolved.net.label_shape), dtype=torch.int64, device=device)
    spec = StepSpec.of(resolved)

    def work(*inputs: Any) -> tuple[Leaves, Leaves, Leaves]:
        output = step(spec, *inputs)
        trained = {name: leaf for name, leaf in output.gradients.items() if not resolved.is_frozen(name)}
        return trained, output.own_gradients, output.logs

    inputs = (params, state, knobs, x, y, noise)
    program = trace_program(work, inputs) if frozen_apart else work
    counter = _OperationCounter()
    with counter:
        program(*inputs)
    return StepCost(
        flops=counter.flops,
        bytes_made=counter.matmul_bytes + counter.small_bytes,
        leaf_bytes=sum(leaf.nbytes for leaf in shapes.values()),
        matmuls=tuple(counter.matmuls.items()),
        small_operations=counter.small_operations,
        small_bytes=counter.small_bytes,
    )


def _on(leaves: Leaves, device: str) -> Leaves:
    return {name: leaf.to(device) for name, leaf in leaves.items()}


class _OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operations that run inside the context."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = self.matmul_bytes = self.small_bytes = self.small_operations = 0
        self.matmuls: Counter[MatmulShape] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = sum(leaf.nbytes for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        if func.overloadpacket in flop_registry:
            self.flops += flop_registry[func.overloadpacket](*args, **(kwargs or {}), out_val=result)
            self.matmul_bytes += made
            self.matmuls[_matmul_shape(func, args)] += 1
        elif not func.is_view:
            self.small_operations += 1
            self.small_bytes += made
        return result


def _matmul_shape(func: Any, args: Any) -> MatmulShape:
    if func is _aten.convolution.default:
        x, weight = args[:2]
        return MatmulShape("convolution", (TensorLayout.of(x), TensorLayout.of(weight)), _how(args[3:9]), x.dtype)
    if func is _aten.convolution_backward.default:
        credit, x, weight = args[:3]
        layouts = (TensorLayout.of(credit), TensorLayout.of(x), TensorLayout.of(weight))
        return MatmulShape("convolution_backward", layouts, _how(args[4:10]), x.dtype, tuple(args[-1][:2]))
    # The first tensor of `addmm` and `baddbmm` is the summand.
    left, right = [each for each in args if isinstance(each, Tensor)][-2:]
    return MatmulShape("matmul", (TensorLayout.of(left), TensorLayout.of(right)), dtype=left.dtype)


def _how(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """A convolution's arguments after the bias, as tuples."""
    return tuple(tuple(each) if isinstance(each, list | tuple) else each for each in arguments)

"""Traces a fleet's step into a flat program of tensor operations and optimises it for a GPU.

The program is traced once: without vmap's overhead in every step, without unused results, and without matmuls that are
needed for a LayerNorm's gradients only. On a GPU, matmuls with few results and many terms are split so that all
multiprocessors take part, and float32 matmuls use the tensor cores without losing accuracy. If the number of steps
makes up for the compile time, torch.compile fuses the small operations between the matmuls, including the transforms of
3x3 convolutions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import flop_registry

from walkback.training.gpu.norm_gradients import remove_norm_matmuls
from walkback.training.gpu.patch_convolution import use_patches
from walkback.training.gpu.split_matmul import split_matmuls
from walkback.training.gpu.tensorcore_matmul import use_tensorcore_matmul
from walkback.training.gpu.winograd import convolution_flops, eligible_convolutions, use_winograd

COMPILE_SECONDS = (2.0, 0.035, 4.0)
"""Compile time of torch.compile: fixed, for each operation, and for each convolution that is rewritten as Winograd's
(measured on an H200 with 16 cores)."""
COMPILE_WEIGHT = 0.5
"""Weight of a second of compile time: usually another process trains on the GPU meanwhile."""
SAVED_SHARE = 0.75
"""Share of their time that small operations save by fusion, and convolutions by Winograd's algorithm."""
LAUNCH_SECONDS = 2e-6
"""Seconds for each kernel of a captured step, however small."""
BANDWIDTH = 4e12
"""Bytes moved per second."""
CONVOLUTION_FLOPS_PER_SECOND = 8e12
"""Speed of cuDNN's convolutions. These constants only decide whether to compile. They are not measured at run time, so
that the decision is the same on every machine on which a run is resumed."""


def trace_program(function: Callable[..., Any], inputs: tuple[Any, ...]) -> GraphModule:
    """Trace the function into a flat list of tensor operations, without those whose results are not used."""
    # One fake-tensor mode for all results; otherwise torch makes one for each, which takes as long as the tracing.
    with tracing(TracingContext(FakeTensorMode())):
        program = make_fx(lambda *given: function(*given))(*inputs)
    program.graph.eliminate_dead_code()
    remove_norm_matmuls(program)
    program.recompile()
    return program


def optimise_graph(program: GraphModule, steps: int) -> Callable[..., Any]:
    """Optimise the program for a GPU that will run it `steps` times; it is rewritten in place, and may be compiled."""
    is_worth_compiling = compiling_pays(program, steps)
    if is_worth_compiling:
        # Winograd's transforms and patches are cheap only if they are fused.
        use_winograd(program)
        use_patches(program)
    split_matmuls(program)
    use_tensorcore_matmul(program)
    program.recompile()
    if not is_worth_compiling:
        return program
    # Deterministic: no kernel is chosen by timing, so a run that is resumed on another machine computes the same bits.
    options: dict[str, str | int | bool | Callable[..., Any]] = {"triton.cudagraphs": False, "deterministic": True}
    compiled: Callable[..., Any] = torch.compile(program, fullgraph=True, dynamic=False, options=options)
    return compiled


def compiling_pays(program: GraphModule, steps: int) -> bool:
    """Whether `steps` runs of the compiled program save more time than its compilation takes."""
    calls = [node for node in program.graph.nodes if isinstance(node.target, OpOverload) and not node.target.is_view]
    small = sum(LAUNCH_SECONDS + 2 * _result_bytes(node) / BANDWIDTH for node in calls if not _is_matmul(node))
    convolutions = eligible_convolutions(program)
    slow = sum(map(convolution_flops, convolutions)) / CONVOLUTION_FLOPS_PER_SECOND
    return worth_compiling(steps * SAVED_SHARE * (small + slow), len(calls), len(convolutions))


def worth_compiling(saved: float, operations: int, convolutions: int) -> bool:
    """Whether saving `saved` seconds is worth compiling a program of this many operations (views not counted)."""
    return saved > COMPILE_WEIGHT * compiling_seconds(operations, convolutions)


def compiling_seconds(operations: int, convolutions: int) -> float:
    """Predicted compile time of a program."""
    fixed, per_operation, per_convolution = COMPILE_SECONDS
    return fixed + per_operation * operations + per_convolution * convolutions


def _is_matmul(node: torch.fx.Node) -> bool:
    return node.target.overloadpacket in flop_registry  # type: ignore[union-attr]


def _result_bytes(node: torch.fx.Node) -> int:
    value = node.meta.get("val")
    return value.nbytes if isinstance(value, torch.Tensor) else 0

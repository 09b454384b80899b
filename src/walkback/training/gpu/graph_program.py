"""A fleet's step as a flat program of tensor operations, and what makes it quick on a GPU.

The program is traced once: without vmap's own cost in every step, without what nothing needs, and without products that
serve a LayerNorm's gradients alone. On a GPU products with few results and many terms are cut up so that all of the
chip works on them, and float32's go to its tensor cores without losing accuracy. Where the steps to come pay for it,
torch's compiler fuses the small operations between the products, those of 3x3 convolutions included.
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
from walkback.training.gpu.winograd import eligible, operations, use_winograd

COMPILING = (2.0, 0.035, 4.0)
"""Seconds that torch's compiler takes: at the least, for each operation, and for each convolution that becomes
Winograd's (measured on an H200 with 16 cores)."""
HIDDEN = 0.5
"""What a second of compiling counts: as a rule another process's fleet has the GPU meanwhile."""
SAVED = 0.75
"""Share of the time that is gone, of small operations when they are fused, and of convolutions that become
Winograd's."""
LAUNCH = 2e-6
"""Seconds for each kernel of a captured step, however small."""
BANDWIDTH = 4e12
"""Bytes moved in a second."""
CONVOLVING = 8e12
"""Floating-point operations in a second of a library's convolutions. All of these only decide whether to compile: the
same way wherever a run is continued."""


def trace_program(function: Callable[..., Any], inputs: tuple[Any, ...]) -> GraphModule:
    """The same function as a list of tensor operations, without those whose results are not used."""
    # With one mode for the shapes of all results; else torch makes one for each, which takes as long as the tracing.
    with tracing(TracingContext(FakeTensorMode())):
        program = make_fx(lambda *given: function(*given))(*inputs)
    program.graph.eliminate_dead_code()
    remove_norm_matmuls(program)
    program.recompile()
    return program


def optimise_graph(program: GraphModule, steps: int) -> Callable[..., Any]:
    """The program for a GPU that will run it `steps` times."""
    is_worth_compiling = compiling_pays(program, steps)
    if is_worth_compiling:
        # Transforms and patches are cheap only where they are fused.
        use_winograd(program)
        use_patches(program)
    split_matmuls(program)
    use_tensorcore_matmul(program)
    program.recompile()
    if not is_worth_compiling:
        return program
    # Deterministic: nothing is chosen by timing it, so a run that is continued elsewhere computes the same bits.
    options: dict[str, str | int | bool | Callable[..., Any]] = {"triton.cudagraphs": False, "deterministic": True}
    compiled: Callable[..., Any] = torch.compile(program, fullgraph=True, dynamic=False, options=options)
    return compiled


def compiling_pays(program: GraphModule, steps: int) -> bool:
    """Whether `steps` runs of a program save more than compiling it costs."""
    calls = [node for node in program.graph.nodes if isinstance(node.target, OpOverload) and not node.target.is_view]
    small = sum(LAUNCH + 2 * _result_bytes(node) / BANDWIDTH for node in calls if not _is_product(node))
    convolutions = eligible(program)
    slow = sum(map(operations, convolutions)) / CONVOLVING
    return worth_compiling(steps * SAVED * (small + slow), len(calls), len(convolutions))


def worth_compiling(saved: float, operations: int, convolutions: int) -> bool:
    """Whether the seconds `saved` are worth it for a program of so many operations, views not counted."""
    return saved > HIDDEN * compiling_seconds(operations, convolutions)


def compiling_seconds(operations: int, convolutions: int) -> float:
    least, each, more = COMPILING
    return least + each * operations + more * convolutions


def _is_product(node: torch.fx.Node) -> bool:
    return node.target.overloadpacket in flop_registry  # type: ignore[union-attr]


def _result_bytes(node: torch.fx.Node) -> int:
    value = node.meta.get("val")
    return value.nbytes if isinstance(value, torch.Tensor) else 0

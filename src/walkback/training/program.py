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
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import flop_registry

from walkback.training.fine_products import use_fine_products
from walkback.training.norm_gradients import spare_norm_products
from walkback.training.split_products import split_products
from walkback.training.winograd import use_winograd

COMPILE_SECONDS = (4.0, 0.016)
"""What torch's compiler takes: at the least, and for each operation (measured on an H200 with 16 cores)."""
SAVED = 0.75
"""Share of the small operations' time that is gone when they are fused."""
LAUNCH = 2e-6
"""Seconds for each kernel of a captured step, however small."""
BANDWIDTH = 4e12
"""Bytes moved in a second. All of these only decide whether to compile: the same way wherever a run is continued."""


def flat_program(function: Callable[..., Any], inputs: tuple[Any, ...]) -> GraphModule:
    """The same function as a list of tensor operations, without those whose results are not used."""
    program = make_fx(lambda *given: function(*given))(*inputs)
    program.graph.eliminate_dead_code()
    spare_norm_products(program)
    program.recompile()
    return program


def quicken(program: GraphModule, steps: int) -> Callable[..., Any]:
    """The program for a GPU that will run it `steps` times."""
    is_worth_compiling = pays(program, steps)
    if is_worth_compiling:
        use_winograd(program)  # Its transforms are cheap only where they are fused.
    split_products(program)
    use_fine_products(program)
    program.recompile()
    if not is_worth_compiling:
        return program
    # Deterministic: nothing is chosen by timing it, so a run that is continued elsewhere computes the same bits.
    options: dict[str, str | int | bool | Callable[..., Any]] = {"triton.cudagraphs": False, "deterministic": True}
    compiled: Callable[..., Any] = torch.compile(program, fullgraph=True, dynamic=False, options=options)
    return compiled


def pays(program: GraphModule, steps: int) -> bool:
    """Whether `steps` runs of a program save clearly more than compiling it costs."""
    operations = [node for node in program.graph.nodes if _is_small(node)]
    seconds = sum(LAUNCH + 2 * _result_bytes(node) / BANDWIDTH for node in operations)
    least, each = COMPILE_SECONDS
    return steps * SAVED * seconds > 1.5 * (least + each * len(program.graph.nodes))


def _is_small(node: torch.fx.Node) -> bool:
    """An operation that can be fused: not a product, and not a mere view."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return node.target.overloadpacket not in flop_registry and not node.target.is_view


def _result_bytes(node: torch.fx.Node) -> int:
    value = node.meta.get("val")
    return value.nbytes if isinstance(value, torch.Tensor) else 0

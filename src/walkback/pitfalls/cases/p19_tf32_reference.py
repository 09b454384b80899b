"""TF32 in the reference: ten-bit products make the gradient hundreds of times less exact than float32's.

Wrong: the relative error of the gradient at h_0 when matrix products are computed in TF32
Right: the same with TF32 off, as walkback sets it
Size: at least 100 x larger error
Linter: WB012
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from walkback.credit.rule import transport
from walkback.credit.trace import trace
from walkback.measure.vectors import as_rows, norms
from walkback.nets.network import Leaves, plain_linear
from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome
from walkback.training.driver import set_exact_arithmetic


def run() -> PitfallOutcome:
    trained = small_networks.trained("bp")
    if torch.cuda.is_available():
        device, note = torch.device("cuda"), "on this GPU, with its TF32 switch"
        set_exact_arithmetic(device)
        with _tf32(True):
            coarse = _gradient(trained.params, torch.float32, device)
    else:
        device, note = (
            small_networks.CPU,
            "TF32 emulated in the blocks: factors rounded to 10 bits of mantissa, sums in float32",
        )
        coarse = _gradient(trained.params, torch.float32, device, rounded_linear)
    with _tf32(False):
        fine = _gradient(trained.params, torch.float32, device)
    true = _gradient(trained.params, torch.float64, small_networks.CPU)
    wrong, right = (_relative_error(each, true) for each in (coarse, fine))
    return PitfallOutcome(wrong, right, wrong / right, "x", 100.0, note)


def to_tf32(x: Tensor) -> Tensor:
    """float32 rounded to the nearest number with 10 bits of mantissa (Veltkamp's splitting)."""
    far = x * (2**13 + 1)
    return far - (far - x)


class _RoundedLinear(torch.autograd.Function):
    """A Linear layer whose three matrix products round their factors to TF32."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.linear(to_tf32(x), to_tf32(weight), bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight = (to_tf32(saved) for saved in ctx.saved_tensors)
        coarse = to_tf32(grad)
        return coarse @ weight, coarse.mT @ x, grad.sum(0)


def rounded_linear(_name: str, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A Linear layer in emulated TF32, in the form that `trace` takes."""
    output: Tensor = _RoundedLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return output


def _gradient(params: Leaves, dtype: torch.dtype, device: torch.device, linear: Any = plain_linear) -> Tensor:
    """Backprop's gradient at h_0, one per sample."""
    net = small_networks.trained("bp").net
    x, y = small_networks.samples(dtype)
    on_device = {name: leaf.to(device, dtype) for name, leaf in params.items()}
    traced = trace(net, on_device, x.to(device), y.to(device), [linear] * net.depth, with_input=True)
    return transport(traced)[0].cpu()


def _relative_error(gradient: Tensor, true: Tensor) -> float:
    """The median over samples."""
    return (norms(as_rows(gradient) - as_rows(true)) / norms(as_rows(true))).median().item()


@contextmanager
def _tf32(on: bool) -> Iterator[None]:
    """Set the GPU's TF32 switch within the block."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = on
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before

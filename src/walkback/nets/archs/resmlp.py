"""Pre-LayerNorm residual MLP on flattened inputs.

Block: f(h) = W2 GELU(W1 LN(h)), W1 and W2 of size d x d with bias; W2 starts small
Head: LN (unless terminal_norm=false) and Linear
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Generator, Tensor

from walkback.core.settings import require_above, require_at_least
from walkback.nets import layers
from walkback.nets.network import Leaves, Linear, Network, named, plain_linear


@dataclass(frozen=True)
class ResMLP(Network):
    d: int = 256
    terminal_norm: bool = True
    w2_std: float | None = 0.01
    """W2 is initialised as N(0, w2_std²) with bias zero; with `none`, at PyTorch's default as the other Linears."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self.d, 1, "d of resmlp")
        if self.w2_std is not None:
            require_above(self.w2_std, 0, "w2_std of resmlp")

    @property
    def state_shape(self) -> tuple[int, ...]:
        return (self.d,)

    @property
    def block_linears(self) -> tuple[tuple[str, int, int], ...]:
        return (("w1", self.d, self.d), ("w2", self.d, self.d))

    def init(self, generator: Generator) -> Leaves:
        leaves = named(layers.linear(math.prod(self.input_shape), self.d, generator), "stem")
        for block in range(self.depth):
            leaves |= named(layers.norm(self.d), f"blocks.{block}.norm")
            leaves |= named(layers.linear(self.d, self.d, generator), f"blocks.{block}.w1")
            leaves |= named(self._w2(generator), f"blocks.{block}.w2")
        if self.terminal_norm:
            leaves |= named(layers.norm(self.d), "head.norm")
        return leaves | named(layers.linear(self.d, self.classes, generator), "head.out")

    def _w2(self, generator: Generator) -> Leaves:
        if self.w2_std is None:
            return layers.linear(self.d, self.d, generator)
        return layers.small_linear(self.d, self.d, generator, self.w2_std)

    def stem(self, leaves: Leaves, x: Tensor) -> Tensor:
        return F.linear(x.flatten(1), leaves["weight"], leaves["bias"])

    def branch(self, leaves: Leaves, h: Tensor, linear: Linear = plain_linear) -> Tensor:
        z = F.layer_norm(h, (self.d,), leaves["norm.weight"], leaves["norm.bias"])
        z = F.gelu(linear("w1", z, leaves["w1.weight"], leaves["w1.bias"]))
        return linear("w2", z, leaves["w2.weight"], leaves["w2.bias"])

    def head(self, leaves: Leaves, h: Tensor) -> Tensor:
        if self.terminal_norm:
            h = F.layer_norm(h, (self.d,), leaves["norm.weight"], leaves["norm.bias"])
        return F.linear(h, leaves["out.weight"], leaves["out.bias"])


ARCH = ResMLP

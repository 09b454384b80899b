"""A minimal residual network: tanh blocks without any norm.

Block: f(h) = tanh(W h + b)
Head: Linear
"""

import math
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Generator, Tensor

from walkback.nets import layers
from walkback.nets.network import Leaves, Linear, Network, named, plain_linear


@dataclass(frozen=True)
class TanhMLP(Network):
    d: int = 64

    @property
    def state_shape(self) -> tuple[int, ...]:
        return (self.d,)

    @property
    def block_linears(self) -> tuple[tuple[str, int, int], ...]:
        return (("w", self.d, self.d),)

    def init(self, generator: Generator) -> Leaves:
        leaves = named(layers.linear(math.prod(self.input_shape), self.d, generator), "stem")
        for block in range(self.depth):
            leaves |= named(layers.linear(self.d, self.d, generator), f"blocks.{block}.w")
        return leaves | named(layers.linear(self.d, self.classes, generator), "head")

    def stem(self, leaves: Leaves, x: Tensor) -> Tensor:
        return F.linear(x.flatten(1), leaves["weight"], leaves["bias"])

    def branch(self, leaves: Leaves, h: Tensor, linear: Linear = plain_linear) -> Tensor:
        return linear("w", h, leaves["w.weight"], leaves["w.bias"]).tanh()

    def head(self, leaves: Leaves, h: Tensor) -> Tensor:
        return F.linear(h, leaves["weight"], leaves["bias"])


ARCH = TanhMLP

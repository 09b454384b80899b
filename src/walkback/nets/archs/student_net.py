"""Residual MLP without norms, the student of the `teacher` task.

Block: f(h) = W2 GELU(W1 h), W1 and W2 of size d x d with bias; W2 starts small
Head: Linear
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
class StudentNet(Network):
    """Initialised as `resmlp`: W2 from N(0, w2_std^2) with bias zero, the other Linears at PyTorch's default."""

    d: int = 128
    w2_std: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self.d, 1, "d of student_net")
        require_above(self.w2_std, 0, "w2_std of student_net")

    @property
    def state_shape(self) -> tuple[int, ...]:
        return (self.d,)

    @property
    def block_linears(self) -> tuple[tuple[str, int, int], ...]:
        return (("w1", self.d, self.d), ("w2", self.d, self.d))

    def init(self, generator: Generator) -> Leaves:
        leaves = named(layers.linear(math.prod(self.input_shape), self.d, generator), "stem")
        for block in range(self.depth):
            leaves |= named(layers.linear(self.d, self.d, generator), f"blocks.{block}.w1")
            leaves |= named(layers.small_linear(self.d, self.d, generator, self.w2_std), f"blocks.{block}.w2")
        return leaves | named(layers.linear(self.d, self.classes, generator), "head")

    def stem(self, leaves: Leaves, x: Tensor) -> Tensor:
        return F.linear(x.flatten(1), leaves["weight"], leaves["bias"])

    def branch(self, leaves: Leaves, h: Tensor, linear: Linear = plain_linear) -> Tensor:
        z = F.gelu(linear("w1", h, leaves["w1.weight"], leaves["w1.bias"]))
        return linear("w2", z, leaves["w2.weight"], leaves["w2.bias"])

    def head(self, leaves: Leaves, h: Tensor) -> Tensor:
        return F.linear(h, leaves["weight"], leaves["bias"])


ARCH = StudentNet

"""What a network is: `h_0 = stem(x)`, `h_{l+1} = h_l + f_l(h_l)`, `logits = head(h_L)`.

A network is a frozen dataclass of sizes; its parameters are a flat dict of named tensors ("leaves": `stem.weight`,
`blocks.0.w1.weight`, `head.bias`, ...) that is passed in. So every function here is pure, is written for one model, and
can be vmapped over many.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Generator, Tensor

from walkback.core.settings import at_least

Leaves = dict[str, Tensor]
Linear = Callable[[str, Tensor, Tensor, Tensor], Tensor]
"""How a Linear inside a block is applied: (its name in the block, input, weight, bias) -> output.

A network's blocks call it instead of `F.linear`, so that a rule with per-Linear feedback can send other gradients back
without the network knowing of any rule."""


def plain_linear(_name: str, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x, weight, bias)


@dataclass(frozen=True)
class Network(ABC):
    """Sizes and pure functions of one architecture on one task."""

    input_shape: tuple[int, ...]
    classes: int
    depth: int = 4
    """Number of residual blocks L; there are L + 1 hidden states."""

    def __post_init__(self) -> None:
        at_least(self.depth, 1, "depth")

    @property
    @abstractmethod
    def state_shape(self) -> tuple[int, ...]:
        """Shape of one sample's hidden state, the same at every layer."""

    @abstractmethod
    def init(self, generator: Generator) -> Leaves:
        """Fresh float32 parameters, drawn on the CPU in a fixed order."""

    @abstractmethod
    def stem(self, leaves: Leaves, x: Tensor) -> Tensor:
        """h_0 `[n, *state_shape]` from inputs `[n, *input_shape]`."""

    @abstractmethod
    def branch(self, leaves: Leaves, h: Tensor, linear: Linear = plain_linear) -> Tensor:
        """The residual branch f_l(h_l), shaped like h."""

    @abstractmethod
    def head(self, leaves: Leaves, h: Tensor) -> Tensor:
        """logits `[n, classes]`; includes the terminal norm where there is one."""

    def forward_from(self, layer: int, params: Leaves, h: Tensor) -> Tensor:
        """logits of the rest of the network, from hidden state h_layer on."""
        for block in range(layer, self.depth):
            h = h + self.branch(part(params, f"blocks.{block}"), h)
        return self.head(part(params, "head"), h)

    def forward(self, params: Leaves, x: Tensor) -> Tensor:
        """logits `[n, classes]` of inputs `[n, *input_shape]`."""
        return self.forward_from(0, params, self.stem(part(params, "stem"), x))


def part(leaves: Leaves, prefix: str) -> Leaves:
    """The leaves below `prefix.`, named without it."""
    start = len(prefix) + 1
    return {name[start:]: leaf for name, leaf in leaves.items() if name.startswith(prefix + ".")}


def named(leaves: Leaves, prefix: str) -> Leaves:
    """The inverse of `part`: the same leaves, named below `prefix.`."""
    return {f"{prefix}.{name}": leaf for name, leaf in leaves.items()}

"""The network interface: `h_0 = stem(x)`, `h_{l+1} = h_l + f_l(h_l)`, `logits = head(h_L)`.

A network is a frozen dataclass of sizes. Its parameters are passed in as a flat dict of named tensors ("leaves":
`stem.weight`, `blocks.0.w1.weight`, `head.bias`, ...), so all functions are pure, are written for one model, and can be
vmapped over many.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Generator, Tensor

from walkback.core.settings import require_at_least

Leaves = dict[str, Tensor]
StateKind = Literal["vector", "tokens", "maps"]
"""Kinds of hidden state by shape: (d,), (tokens, d) with the cls token first, or (channels, height, width)."""
_KINDS: dict[int, StateKind] = {1: "vector", 2: "tokens", 3: "maps"}
Linear = Callable[[str, Tensor, Tensor, Tensor], Tensor]
"""A function that applies a Linear inside a block: (its name in the block, input, weight, bias) -> output.

Blocks call it instead of `F.linear`, so that a rule with per-Linear feedback can replace the backward pass of a Linear
without any change to the network."""


def plain_linear(_name: str, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The ordinary Linear."""
    return F.linear(x, weight, bias)


@dataclass(frozen=True)
class Network(ABC):
    """Sizes and pure functions of one architecture on one task."""

    input_shape: tuple[int, ...]
    classes: int
    depth: int = 4
    """Number of residual blocks L; there are L + 1 hidden states."""

    def __post_init__(self) -> None:
        require_at_least(self.depth, 1, "depth")

    @property
    @abstractmethod
    def state_shape(self) -> tuple[int, ...]:
        """Shape of one sample's hidden state, the same at every layer."""

    @property
    def kind(self) -> StateKind:
        return _KINDS[len(self.state_shape)]

    @property
    def features(self) -> int:
        """Length of the feature vector at each token or position: d, or the number of channels."""
        return self.state_shape[0] if self.kind == "maps" else self.state_shape[-1]

    @property
    def block_linears(self) -> tuple[tuple[str, int, int], ...]:
        """(name, fan_in, fan_out) of the Linears inside each block; the weight's leaf is `blocks.<l>.<name>.weight`.

        Empty if the blocks have no Linears (convolutions, for example): per-Linear rules are then not defined.
        """
        return ()

    @property
    def per_token(self) -> bool:
        """Whether each token of a sample has logits and a label of its own; then the logits are
        `[n, tokens, classes]`, the labels `[n, tokens]`, and a sample's loss is the mean over its tokens."""
        return False

    @property
    def label_shape(self) -> tuple[int, ...]:
        """Shape of one sample's labels."""
        return self.state_shape[:1] if self.per_token else ()

    @property
    def patch_leaves(self) -> tuple[str, ...]:
        """Prefixes of the leaves behind the tokens other than cls, which credit at the cls token alone does not
        train."""
        return ()

    @property
    def buffers(self) -> tuple[str, ...]:
        """Leaves that are not trained: `statistics` computes them from data, and optimisers skip them."""
        return ()

    def in_training(self) -> Network:
        """The network as a training step runs it: differs from itself only if a norm uses batch statistics."""
        return self

    def statistics(self, params: Leaves, x: Tensor) -> Leaves:
        """The buffers computed from this batch alone."""
        return {}

    @abstractmethod
    def init(self, generator: Generator) -> Leaves:
        """Initial float32 parameters, drawn on the CPU in a fixed order."""

    @abstractmethod
    def stem(self, leaves: Leaves, x: Tensor) -> Tensor:
        """The hidden state h_0 `[n, *state_shape]` of inputs `[n, *input_shape]`."""

    @abstractmethod
    def branch(self, leaves: Leaves, h: Tensor, linear: Linear = plain_linear) -> Tensor:
        """The residual branch f_l(h_l), shaped like h."""

    @abstractmethod
    def head(self, leaves: Leaves, h: Tensor) -> Tensor:
        """The logits `[n, *label_shape, classes]` of h_L; includes the terminal norm if there is one."""

    def forward_from(self, layer: int, params: Leaves, h: Tensor) -> Tensor:
        """The logits that the rest of the network computes from hidden state h_layer."""
        for block in range(layer, self.depth):
            h = h + self.branch(part(params, f"blocks.{block}"), h)
        return self.head(part(params, "head"), h)

    def forward(self, params: Leaves, x: Tensor) -> Tensor:
        """The logits `[n, classes]` of inputs `[n, *input_shape]`."""
        return self.forward_from(0, params, self.stem(part(params, "stem"), x))


def part(leaves: Leaves, prefix: str) -> Leaves:
    """The leaves whose names start with `prefix.`, with the prefix removed from their names."""
    start = len(prefix) + 1
    return {name[start:]: leaf for name, leaf in leaves.items() if name.startswith(prefix + ".")}


def named(leaves: Leaves, prefix: str) -> Leaves:
    """The inverse of `part`: the same leaves with `prefix.` added to their names."""
    return {f"{prefix}.{name}": leaf for name, leaf in leaves.items()}

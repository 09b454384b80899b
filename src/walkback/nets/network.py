"""The network interface: `h_0 = stem(x)`, `h_{l+1} = h_l + f_l(h_l)`, `logits = head(h_L)`.

A network taken from an nn.Module (`module_network.py`) may have blocks of another form, h_{l+1} = F_l(h_l), and states
whose shape changes from block to block.

A network is a frozen dataclass of sizes. Its parameters are passed in as a flat dict of named tensors ("leaves":
`stem.weight`, `blocks.0.w1.weight`, `head.bias`, ...), so all functions are pure, are written for one model, and can be
vmapped over many.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from torch import Generator, Tensor

from walkback.core.settings import recorded_settings, require_at_least, require_at_most

Leaves = dict[str, Tensor]
StateKind = Literal["vector", "tokens", "maps"]
"""Kinds of hidden state by shape: (d,), (tokens, d) with the cls token first, or (channels, height, width)."""
_KINDS: dict[int, StateKind] = {1: "vector", 2: "tokens", 3: "maps"}


def kind_of(shape: tuple[int, ...]) -> StateKind:
    """The kind of a hidden state of this shape."""
    return _KINDS[len(shape)]


def features_of(shape: tuple[int, ...]) -> int:
    """Length of the feature vector at each token or position: d, or the number of channels."""
    return shape[0] if kind_of(shape) == "maps" else shape[-1]


def positions_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The extent of the tokens or positions: (), (tokens,) or (height, width)."""
    return shape[1:] if kind_of(shape) == "maps" else shape[:-1]


@dataclass(frozen=True)
class Convolution:
    """How a convolution is applied, as `F.conv2d` takes it."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int


Linear = Callable[..., Tensor]
"""A function that applies a Linear inside a block: (its name in the block, input, weight, bias) -> output. The bias of
a module's Linear may be None, and a module's convolution is applied by it, too, with a `Convolution` as last argument.

Blocks call it instead of `F.linear`, so that a rule with per-layer feedback can replace the backward pass of a Linear
without any change to the network."""


def plain_linear(
    _name: str, x: Tensor, weight: Tensor, bias: Tensor | None = None, how: Convolution | None = None
) -> Tensor:
    """The ordinary Linear or convolution."""
    if how is not None:
        return F.conv2d(x, weight, bias, how.stride, how.padding, how.dilation, how.groups)
    return F.linear(x, weight, bias)


@dataclass(frozen=True)
class BlockLayer:
    """A Linear or convolution inside a block, for rules with per-layer feedback."""

    key: str
    """"block.name"; the name is the one that blocks pass to `Linear`."""
    leaf: str
    """The name of its weight among the network's leaves."""
    shape: tuple[int, ...]
    """The weight's shape."""
    form: Literal["linear", "conv1d", "conv2d"] = "linear"
    """`linear`: a weight [fan_out, fan_in]; `conv1d`: one of [fan_in, fan_out], as in transformers' Conv1D; `conv2d`: a
    convolution's kernel [channels out, channels in / groups, height, width]."""
    groups: int = 1

    @property
    def fan_out(self) -> int:
        """How many outputs an input of this layer contributes to, borders and strides apart."""
        if self.form == "conv2d":
            return self.shape[0] // self.groups * self.shape[2] * self.shape[3]
        return self.shape[0] if self.form == "linear" else self.shape[1]

    @property
    def feedback_shape(self) -> tuple[int, ...]:
        """The shape of its feedback, that of the transposed weight; a convolution's kernel keeps its shape."""
        return self.shape if self.form == "conv2d" else self.shape[::-1]


def transpose(weight: Tensor) -> Tensor:
    """A layer's weight in the layout of its feedback: as feedback it makes the credit exact."""
    return weight if weight.ndim == 4 else weight.mT


@dataclass(frozen=True)
class Network(ABC):
    """Sizes and pure functions of one architecture on one task."""

    input_shape: tuple[int, ...]
    classes: int
    depth: int = 4
    """Number of residual blocks L; there are L + 1 hidden states."""

    def __post_init__(self) -> None:
        require_at_least(self.depth, 1, "depth")
        require_at_most(self.depth, 10_000, "depth")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that a run's configuration records."""
        given = ("input_shape", "classes")
        return {name: value for name, value in recorded_settings(self).items() if name not in given}

    @property
    def found(self) -> tuple[str, ...]:
        """What are the network's parts, in sentences."""
        return (f"{type(self).__name__}: stem, {self.depth} blocks (residual branches), head",)

    @property
    @abstractmethod
    def state_shape(self) -> tuple[int, ...]:
        """Shape of one sample's hidden state, the same at every layer; of h_0 where it changes."""

    @property
    def state_shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of h_0..h_L."""
        return (self.state_shape,) * (self.depth + 1)

    @property
    def has_one_shape(self) -> bool:
        """Whether all hidden states have one shape."""
        return len(set(self.state_shapes)) == 1

    @property
    def kind(self) -> StateKind:
        """The kind of the hidden states, of h_0 where it changes."""
        return kind_of(self.state_shape)

    @property
    def features(self) -> int:
        """Length of the feature vector at each token or position: d, or the number of channels."""
        return features_of(self.state_shape)

    @property
    def adds_input(self) -> bool:
        """Whether `block` returns the residual branch, to which its input is added; otherwise it returns the next
        state."""
        return True

    @property
    def block_linears(self) -> tuple[tuple[str, int, int], ...]:
        """(name, fan_in, fan_out) of the Linears inside each block; the weight's leaf is `blocks.<l>.<name>.weight`.

        Empty if the blocks have no Linears (convolutions, for example): per-layer rules are then not defined.
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
    def layers(self) -> tuple[BlockLayer, ...]:
        """All Linears and convolutions inside the blocks, bottom up."""
        return tuple(
            BlockLayer(f"{block}.{name}", f"blocks.{block}.{name}.weight", (fan_out, fan_in))
            for block in range(self.depth)
            for name, fan_in, fan_out in self.block_linears
        )

    @property
    def layers_problem(self) -> str | None:
        """Why rules with per-layer feedback are not defined on this network; None if they are."""
        return None if self.block_linears else "its feedback goes through Linears, and the blocks have none"

    @property
    def head_reads_cls(self) -> bool:
        """Whether the head reads the cls token alone."""
        return self.kind == "tokens" and bool(self.patch_leaves)

    @property
    def alone(self) -> str:
        """Why its models cannot be trained together as a fleet; empty if they can."""
        return ""

    @property
    def patch_leaves(self) -> tuple[str, ...]:
        """Prefixes of the leaves behind the tokens other than cls, which credit at the cls token alone does not
        train."""
        return ()

    @property
    def buffers(self) -> tuple[str, ...]:
        """Leaves that are not trained, such as running statistics: optimisers skip them."""
        return ()

    @property
    def is_calibrated(self) -> bool:
        """Whether `statistics` computes the buffers from training data, after training."""
        return bool(self.buffers)

    def draw(self, batch: int, generator: Generator) -> Leaves:
        """The network's own noise of one step (dropout masks), on the CPU; empty if it needs none.

        Per-sample noise is named `each.*` and has the batch as its first axis.
        """
        return {}

    def in_training(self) -> Network:
        """The network as a training step runs it: differs from itself only if a norm uses batch statistics, or with
        dropout."""
        return self

    def with_noise(self, noise: Leaves) -> Network:
        """The network in one training step, with what `draw` gave for it."""
        return self

    def take_moments(self) -> Leaves:
        """Means and variances of the batch in the norms that have run since the last call, by the buffer's name.

        The step moves the buffers towards them (`moved_buffers`). Empty for a network that is calibrated.
        """
        return {}

    def moved_buffers(self, params: Leaves, moments: Leaves) -> Leaves:
        """The buffers after a training step that saw these moments."""
        return {}

    def statistics(self, params: Leaves, x: Tensor) -> Leaves:
        """The buffers computed from this batch alone."""
        return {}

    @abstractmethod
    def init(self, generator: Generator) -> Leaves:
        """Initial float32 parameters, drawn on the CPU in a fixed order."""

    @abstractmethod
    def stem(self, leaves: Leaves, x: Tensor) -> Tensor:
        """The hidden state h_0 `[n, *state_shape]` of inputs `[n, *input_shape]`."""

    def branch(self, leaves: Leaves, h: Tensor, linear: Linear = plain_linear) -> Tensor:
        """The residual branch f_l(h_l), shaped like h; a network whose blocks differ defines `block` instead."""
        raise NotImplementedError

    def block(self, index: int, leaves: Leaves, h: Tensor, linear: Linear = plain_linear) -> Tensor:
        """What block `index` returns: its residual branch, or the next state (see `adds_input`)."""
        return self.branch(leaves, h, linear)

    def residual(self, index: int, leaves: Leaves, h: Tensor) -> Tensor:
        """The residual branch of block `index`: what it changes its input by, where the state keeps its shape."""
        return self.residual_of(h, self.block(index, leaves, h))

    def residual_of(self, h: Tensor, output: Tensor) -> Tensor:
        """The residual branch, from a block's input and output; all of the output where the state changes shape."""
        return output if self.adds_input or output.shape != h.shape else output - h

    def next_state(self, index: int, leaves: Leaves, h: Tensor) -> Tensor:
        """h_{l+1} from h_l, l being `index`."""
        output = self.block(index, leaves, h)
        return h + output if self.adds_input else output

    @abstractmethod
    def head(self, leaves: Leaves, h: Tensor) -> Tensor:
        """The logits `[n, *label_shape, classes]` of h_L; includes the terminal norm if there is one."""

    def forward_from(self, layer: int, params: Leaves, h: Tensor) -> Tensor:
        """The logits that the rest of the network computes from hidden state h_layer."""
        for block in range(layer, self.depth):
            h = self.next_state(block, part(params, f"blocks.{block}"), h)
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

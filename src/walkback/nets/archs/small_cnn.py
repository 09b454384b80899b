"""Small residual convolutional network with BatchNorm; states are maps of constant shape.

Block: f(h) = conv(ReLU(BN(conv(ReLU(BN(h)))))), 3x3 convolutions without bias
Head: global average pool and Linear; no terminal norm
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch.nn.functional as F
from torch import Generator, Tensor

from walkback.core.errors import InputError
from walkback.core.settings import require_at_least, require_memory
from walkback.nets import layers
from walkback.nets.network import Leaves, Linear, Network, named, part, plain_linear

_EPS = 1e-5
"""Added to the variance, as PyTorch's BatchNorm does."""
_NORMS = ("bn1", "bn2")


@dataclass(frozen=True)
class SmallCNN(Network):
    """Stem: a 3x3 convolution of stride 2 with bias, to `width` channels. All layers start at PyTorch's default.

    In training the norms use batch statistics. Otherwise they use the leaves `mean` and `var`, which the drivers
    compute from training data and no optimiser updates.
    """

    width: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        require_at_least(self.width, 1, "width of small_cnn")
        require_memory(2 * 9 * self.depth * self.width**2, "small_cnn")
        if len(self.input_shape) != 3:
            raise InputError(
                f"small_cnn convolves images, and the data has samples of shape {self.input_shape}. "
                "Use images (channels, height, width), such as --data cifar10, or another architecture."
            )

    @property
    def state_shape(self) -> tuple[int, ...]:
        _, height, width = self.input_shape
        return (self.width, (height + 1) // 2, (width + 1) // 2)

    @property
    def buffers(self) -> tuple[str, ...]:
        norms = [f"blocks.{block}.{norm}" for block in range(self.depth) for norm in _NORMS]
        return tuple(f"{norm}.{name}" for norm in norms for name in ("mean", "var"))

    def in_training(self) -> SmallCNN:
        return _SmallCNNInTraining(**{f.name: getattr(self, f.name) for f in fields(self)})

    def init(self, generator: Generator) -> Leaves:
        leaves = named(layers.conv(self.input_shape[0], self.width, 3, generator), "stem")
        for block in range(self.depth):
            for index, norm in enumerate(_NORMS, start=1):
                leaves |= named(layers.norm(self.width) | layers.batch_statistics(self.width), f"blocks.{block}.{norm}")
                weight = layers.conv(self.width, self.width, 3, generator, bias=False)
                leaves |= named(weight, f"blocks.{block}.conv{index}")
        return leaves | named(layers.linear(self.width, self.classes, generator), "head")

    def stem(self, leaves: Leaves, x: Tensor) -> Tensor:
        return F.conv2d(x, leaves["weight"], leaves["bias"], stride=2, padding=1)

    def branch(self, leaves: Leaves, h: Tensor, linear: Linear = plain_linear) -> Tensor:
        z = self._relu_conv(leaves, "1", self._norm(part(leaves, "bn1"), h))
        return self._relu_conv(leaves, "2", self._norm(part(leaves, "bn2"), z))

    def _relu_conv(self, leaves: Leaves, which: str, z: Tensor) -> Tensor:
        return F.conv2d(F.relu(z), leaves[f"conv{which}.weight"], padding=1)

    def _norm(self, leaves: Leaves, z: Tensor) -> Tensor:
        return _normalise(leaves, z - _per_channel(leaves["mean"]), leaves["var"])

    def head(self, leaves: Leaves, h: Tensor) -> Tensor:
        return F.linear(h.mean((-2, -1)), leaves["weight"], leaves["bias"])

    def statistics(self, params: Leaves, x: Tensor) -> Leaves:
        found: Leaves = {}
        h = self.stem(part(params, "stem"), x)
        for block in range(self.depth):
            leaves, z = part(params, f"blocks.{block}"), h
            for index, norm in enumerate(_NORMS, start=1):
                found |= named(_moments(z), f"blocks.{block}.{norm}")
                z = self._relu_conv(leaves, str(index), _batch_norm(part(leaves, norm), z))
            h = h + z
        return found


class _SmallCNNInTraining(SmallCNN):
    """The same network with batch statistics in its norms: a sample's output depends on the rest of its batch."""

    def _norm(self, leaves: Leaves, z: Tensor) -> Tensor:
        return _batch_norm(leaves, z)


def _per_channel(values: Tensor) -> Tensor:
    """Reshape per-channel values [c] to broadcast with maps [n, c, h, w]."""
    return values[:, None, None]


def _batch_norm(leaves: Leaves, z: Tensor) -> Tensor:
    """Normalise by the mean and variance of this batch."""
    centred = z - z.mean((0, 2, 3), keepdim=True)
    return _normalise(leaves, centred, centred.square().mean((0, 2, 3)))


def _normalise(leaves: Leaves, centred: Tensor, var: Tensor) -> Tensor:
    return centred * _per_channel((var + _EPS).rsqrt() * leaves["weight"]) + _per_channel(leaves["bias"])


def _moments(z: Tensor) -> Leaves:
    """Mean and unbiased variance of each channel, as in the running statistics of PyTorch's BatchNorm."""
    mean = z.mean((0, 2, 3))
    count = z[:, 0].numel()
    return {"mean": mean, "var": (z - _per_channel(mean)).square().sum((0, 2, 3)) / max(count - 1, 1)}


ARCH = SmallCNN

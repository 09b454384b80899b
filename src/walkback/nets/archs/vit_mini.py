"""Small pre-LayerNorm vision transformer on square patches, with a cls token.

Block: f(h) = u + mlp(LN(h + u)), u = attention(LN(h)); mlp = W2 GELU(W1 .)
Head: LN and Linear on the cls token
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from walkback.core.errors import InputError
from walkback.core.settings import require_at_least
from walkback.nets import layers
from walkback.nets.network import Leaves, Linear, Network, named, plain_linear

POSITION_STD = 0.02
"""Standard deviation of the initial cls token and positions."""


@dataclass(frozen=True)
class ViTMini(Network):
    """Linears are initialised at PyTorch's default, cls token and positions from N(0, 0.02^2).

    The patches have learned positions `stem.pos`. The cls token has no separate position: it is the same vector for
    every sample, so its position is part of `stem.cls`. A rule whose credit reaches cls only trains neither
    `stem.patch` nor `stem.pos`.
    """

    d: int = 128
    heads: int = 4
    mlp_ratio: int = 4
    patch: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("d", "heads", "mlp_ratio", "patch"):
            require_at_least(getattr(self, name), 1, f"{name} of vit_mini")
        if self.d % self.heads:
            raise InputError(f"d of vit_mini is {self.d}; expected a multiple of heads ({self.heads}).")
        if len(self.input_shape) != 3:
            raise InputError(
                f"vit_mini cuts images into patches, and the data has samples of shape {self.input_shape}. "
                "Use images (channels, height, width), such as --data cifar10, or another architecture."
            )
        height, width = self.input_shape[1:]
        if height % self.patch or width % self.patch:
            raise InputError(
                f"patch of vit_mini is {self.patch}; expected a divisor of the image's height and width "
                f"({height} and {width})."
            )

    @property
    def state_shape(self) -> tuple[int, ...]:
        return (self._patches + 1, self.d)

    @property
    def _patches(self) -> int:
        height, width = self.input_shape[1:]
        return (height // self.patch) * (width // self.patch)

    @property
    def block_linears(self) -> tuple[tuple[str, int, int], ...]:
        return layers.transformer_linears(self.d, self.mlp_ratio)

    @property
    def patch_leaves(self) -> tuple[str, ...]:
        return ("stem.patch", "stem.pos")

    def init(self, generator: Generator) -> Leaves:
        pixels = self.input_shape[0] * self.patch**2
        leaves = named(layers.linear(pixels, self.d, generator), "stem.patch")
        leaves["stem.cls"] = torch.randn(self.d, generator=generator) * POSITION_STD
        leaves["stem.pos"] = torch.randn(self._patches, self.d, generator=generator) * POSITION_STD
        return leaves | layers.transformer_leaves(self.depth, self.d, self.block_linears, self.classes, generator)

    def stem(self, leaves: Leaves, x: Tensor) -> Tensor:
        channels, height, width = self.input_shape
        p = self.patch
        # [n, c, rows, p, columns, p] -> [n, rows * columns, c * p * p]: a convolution of stride p as one product.
        cut = x.reshape(-1, channels, height // p, p, width // p, p).permute(0, 2, 4, 1, 3, 5)
        pixels = cut.reshape(-1, self._patches, channels * p * p)
        patches = F.linear(pixels, leaves["patch.weight"], leaves["patch.bias"]) + leaves["pos"]
        return torch.cat([leaves["cls"].expand(len(x), 1, self.d), patches], dim=1)

    def branch(self, leaves: Leaves, h: Tensor, linear: Linear = plain_linear) -> Tensor:
        return layers.transformer_branch(leaves, h, linear, self.heads)

    def head(self, leaves: Leaves, h: Tensor) -> Tensor:
        z = F.layer_norm(h[:, 0], (self.d,), leaves["norm.weight"], leaves["norm.bias"])
        return F.linear(z, leaves["out.weight"], leaves["out.bias"])


ARCH = ViTMini

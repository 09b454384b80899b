"""Small pre-LayerNorm language model on tokens: each token predicts the next one.

Block: f(h) = u + mlp(LN(h + u)), u = causal attention(LN(h)); mlp = W2 GELU(W1 .)
Head: LN and Linear on every token
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from walkback.core.errors import InputError
from walkback.core.settings import require_at_least
from walkback.nets import layers
from walkback.nets.network import Leaves, Linear, Network, plain_linear

EMBEDDING_STD = 0.02
"""Standard deviation of the initial token embeddings and positions."""


@dataclass(frozen=True)
class GptMini(Network):
    """Linears are initialised at PyTorch's default, embeddings and positions from N(0, 0.02^2).

    Inputs are token numbers [n, tokens], as floats; the vocabulary is that of the classes. Embedding and head have
    weights of their own.
    """

    d: int = 64
    heads: int = 4
    mlp_ratio: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("d", "heads", "mlp_ratio"):
            require_at_least(getattr(self, name), 1, f"{name} of gpt_mini")
        if self.d % self.heads:
            raise InputError(f"d of gpt_mini is {self.d}; expected a multiple of heads ({self.heads}).")
        if len(self.input_shape) != 1:
            raise InputError(
                f"gpt_mini reads windows of tokens, and the data has samples of shape {self.input_shape}. "
                "Use token data, such as --data markov, or another architecture."
            )

    @property
    def state_shape(self) -> tuple[int, ...]:
        return (self.input_shape[0], self.d)

    @property
    def per_token(self) -> bool:
        return True

    @property
    def block_linears(self) -> tuple[tuple[str, int, int], ...]:
        return layers.transformer_linears(self.d, self.mlp_ratio)

    def init(self, generator: Generator) -> Leaves:
        leaves = {
            "stem.token": torch.randn(self.classes, self.d, generator=generator) * EMBEDDING_STD,
            "stem.pos": torch.randn(self.input_shape[0], self.d, generator=generator) * EMBEDDING_STD,
        }
        return leaves | layers.transformer_leaves(self.depth, self.d, self.block_linears, self.classes, generator)

    def stem(self, leaves: Leaves, x: Tensor) -> Tensor:
        # A product with one-hot rows: its gradient is summed in a fixed order on every device.
        chosen = (x[..., None] == torch.arange(self.classes, device=x.device)).to(leaves["token"].dtype)
        return chosen @ leaves["token"] + leaves["pos"]

    def branch(self, leaves: Leaves, h: Tensor, linear: Linear = plain_linear) -> Tensor:
        return layers.transformer_branch(leaves, h, linear, self.heads, causal=True)

    def head(self, leaves: Leaves, h: Tensor) -> Tensor:
        z = F.layer_norm(h, (self.d,), leaves["norm.weight"], leaves["norm.bias"])
        return F.linear(z, leaves["out.weight"], leaves["out.bias"])


ARCH = GptMini

"""Direct feedback alignment: the output error projected to every layer by fixed random matrices.

Citation: Nøkland, 2016
Feedback: block-level: a_l = B_l^T e, B_l of size classes x d from N(0, 1)
Tokens: credit_tokens=broadcast puts B_l^T e at every token divided by their number, cls at the cls token alone
Maps: B_l is of size classes x (channels * height * width)
State: B_0..B_L
Exact: no layer
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator

from walkback.credit.feedback import (
    CreditTokens,
    direct_shape,
    gaussian,
    project,
    refuses_tokens,
    scaled,
    without_credit,
)
from walkback.credit.rule import CreditRule, Credits, Logs, dynamic
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Network


@dataclass(frozen=True)
class DirectFeedbackAlignment(CreditRule):
    scale: Literal["raw", "unit_error"] = dynamic("raw")
    """`raw` projects e; `unit_error` projects e/|e|, so a sample pushes equally hard however small its error."""

    credit_tokens: CreditTokens = "broadcast"

    def refuses(self, net: Network) -> str | None:
        return refuses_tokens(net, self.credit_tokens)

    def untrained(self, net: Network) -> tuple[str, ...]:
        return without_credit(net, self.credit_tokens)

    def init(self, net: Network, generator: Generator) -> Leaves:
        return {f"B.{layer}": gaussian(direct_shape(net), 1.0, generator) for layer in range(net.depth + 1)}

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        error = scaled(trace.error, torch.as_tensor(self.scale))
        layers = range(net.depth + 1)
        return tuple(project(net, error, state[f"B.{layer}"], self.credit_tokens) for layer in layers), {}


RULE = DirectFeedbackAlignment

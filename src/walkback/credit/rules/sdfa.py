"""Direct feedback alignment with the signs of the output error only.

Citation: Frenkel, Lefebvre and Bol, 2021 (as sDFA); after Nøkland, 2016
Feedback: block-level: a_l = B_l^T sign(e), B_l of size classes x d from N(0, 1)
Tokens: credit_tokens=broadcast puts B_l^T sign(e) at every token divided by their number, cls at the cls token alone
Maps: B_l is of size classes x (channels * height * width)
State: B_0..B_L
Exact: no layer
Cost: bp's forward pass and weight gradients without the input pullback; one projection of classes x d a layer

With softmax and cross-entropy e = p - y is negative at the label and positive elsewhere, so sign(e) = 1 - 2 onehot(y)
however well a sample is fitted (until e underflows to 0): the credit depends on the label alone and does not shrink.
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
class SignedDirectFeedback(CreditRule):
    scale: Literal["raw", "unit_error"] = dynamic("raw")
    """`raw` projects sign(e); `unit_error` projects sign(e) at length 1, that is, divided by sqrt(classes)."""

    credit_tokens: CreditTokens = "broadcast"

    def refuses(self, net: Network) -> str | None:
        return refuses_tokens(net, self.credit_tokens)

    def untrained(self, net: Network) -> tuple[str, ...]:
        return without_credit(net, self.credit_tokens)

    def init(self, net: Network, generator: Generator) -> Leaves:
        return {f"B.{layer}": gaussian(direct_shape(net), 1.0, generator) for layer in range(net.depth + 1)}

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        signs = scaled(trace.error.sign(), torch.as_tensor(self.scale))
        layers = range(net.depth + 1)
        return tuple(project(net, signs, state[f"B.{layer}"], self.credit_tokens) for layer in layers), {}


RULE = SignedDirectFeedback

"""Feedback alignment: credit sent down block by block through fixed random matrices.

Citation: Lillicrap, Cownden, Tweed and Akerman, 2016
Feedback: block-level, the skip is not used: a_l = B_l a_{l+1}, B_l of size d x d from N(0, 1/d)
State: B_0..B_{L-1}
Exact: top layer
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Generator

from walkback.credit.feedback import gaussian
from walkback.credit.rule import EXACT, UNRELATED, CreditRule, Credits, Label, Logs
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Network


@dataclass(frozen=True)
class FeedbackAlignment(CreditRule):
    def refuses(self, net: Network) -> str | None:
        return None if len(net.state_shape) == 1 else "its B_l is a d x d matrix, and the hidden states are not vectors"

    def init(self, net: Network, generator: Generator) -> Leaves:
        (d,) = net.state_shape
        return {f"B.{layer}": gaussian((d, d), d**-0.5, generator) for layer in range(net.depth)}

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (*(UNRELATED,) * depth, EXACT)

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        credits = [trace.top]
        for layer in reversed(range(net.depth)):
            credits.append(F.linear(credits[-1], state[f"B.{layer}"]))
        return tuple(reversed(credits)), {}


RULE = FeedbackAlignment

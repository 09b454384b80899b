"""Direct feedback alignment: the output error projected to every layer by fixed random matrices.

Citation: Nøkland, 2016
Feedback: block-level: a_l = B_l^T e, B_l of size classes x d from N(0, 1)
State: B_0..B_L
Exact: no layer
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator

from walkback.credit.feedback import gaussian, scaled
from walkback.credit.rule import CreditRule, Credits, Logs, dynamic
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Network


@dataclass(frozen=True)
class DirectFeedbackAlignment(CreditRule):
    scale: Literal["raw", "unit_error"] = dynamic("raw")
    """`raw` projects e; `unit_error` projects e/|e|, so a sample pushes equally hard however small its error."""

    def refuses(self, net: Network) -> str | None:
        return None if len(net.state_shape) == 1 else "its B_l maps to vectors, and the hidden states are not vectors"

    def init(self, net: Network, generator: Generator) -> Leaves:
        (d,) = net.state_shape
        return {f"B.{layer}": gaussian((net.classes, d), 1.0, generator) for layer in range(net.depth + 1)}

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        error = scaled(trace.error, torch.as_tensor(self.scale))
        return tuple(error @ state[f"B.{layer}"] for layer in range(net.depth + 1)), {}


RULE = DirectFeedbackAlignment

"""Direct feedback alignment with orthogonal feedback, which keeps the length of the error.

Citation: an example of walkback's documentation
Feedback: block-level: a_l = gain * Q_l^T e, the rows of Q_l orthonormal
State: Q_0..Q_L
Exact: no layer
Cost: less than backprop: no pullback through the blocks
"""

from dataclasses import dataclass

import torch
from torch import Generator

from walkback.credit.rule import CreditRule, Credits, Logs, dynamic
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Network


@dataclass(frozen=True)
class OrthogonalDFA(CreditRule):
    gain: float = dynamic(1.0)
    """Length of a credit for an error of length 1. `dynamic`: models with different gains share one fleet."""

    def refuses(self, net: Network) -> str | None:
        if net.kind != "vector":
            return "its Q_l maps to vectors, and the hidden states are not vectors"
        if net.features < net.classes:
            return f"{net.classes} orthonormal rows do not fit into {net.features} features"
        return None

    def init(self, net: Network, generator: Generator) -> Leaves:
        shape = (net.features, net.classes)
        drawn = (torch.randn(shape, generator=generator) for _ in range(net.depth + 1))
        return {f"Q.{layer}": torch.linalg.qr(matrix).Q.T.contiguous() for layer, matrix in enumerate(drawn)}

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        error = self.gain * trace.error
        return tuple(error @ state[f"Q.{layer}"] for layer in range(net.depth + 1)), {}


RULE = OrthogonalDFA

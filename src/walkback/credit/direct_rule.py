"""Shared base of the rules that project a signal [n, classes] directly to every layer: `dfa`, `sdfa`, `drtp`."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from torch import Generator, Tensor

from walkback.credit.feedback import (
    CreditTokens,
    RandomFeedback,
    direct_shape,
    project,
    refuses_tokens,
    without_credit,
)
from walkback.credit.rule import Credits, Logs
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Network, kind_of


@dataclass(frozen=True)
class DirectRule(RandomFeedback):
    """a_l = B_l^T signal, with fixed B_l drawn from N(0, 1)."""

    per_token = True

    credit_tokens: CreditTokens = "broadcast"

    @abstractmethod
    def signal(self, trace: Trace) -> Tensor:
        """The projected signal [n, classes], with the sign of the loss gradient in the logits."""

    def refuses(self, net: Network) -> str | None:
        return refuses_tokens(net, self.credit_tokens, usual="broadcast")

    def untrained(self, net: Network) -> tuple[str, ...]:
        return without_credit(net, self.credit_tokens)

    def rotation_space(self, net: Network) -> Literal["features", "all"]:
        return "all" if any(kind_of(shape) == "maps" for shape in net.state_shapes) else "features"

    def init(self, net: Network, generator: Generator) -> Leaves:
        shapes = [direct_shape(net.classes, shape) for shape in net.state_shapes]
        return {f"B.{layer}": self.matrix(shape, 1.0, generator) for layer, shape in enumerate(shapes)}

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        signal, tokens = self.signal(trace), self.credit_tokens
        layers = enumerate(net.state_shapes)
        return tuple(project(shape, signal, state[f"B.{layer}"], tokens) for layer, shape in layers), {}

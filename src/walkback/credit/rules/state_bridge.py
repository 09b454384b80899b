"""State Bridge: one small network G(h_l, t_l) learns to predict h_L; credit is the loss gradient through head and G.

Citation: a probe of the audited papers (anonymous, 2024-2026); they do not give G, this one is ours
Feedback: learned, block-level: a_l = gradient in h_l of loss(head(G(h_l, t_l)), y), t_l = l/L
State: the weights of G, learned by regression on h_L as a constant
Exact: no layer, the top one is fitted (form=residual: top layer)
Cost: bp's forward pass and weight gradients; the bridge and its gradient at every state; the bridge's training

G is an MLP on h_l / rms(h_l) and t_l that predicts h_L / rms(h_L). Its output is multiplied by the sample's own
rms(h_L), a constant; a head with a terminal norm does not depend on that size. With form=residual the MLP predicts the
remaining difference, G(h, t) = h + (1 - t) rms(h_L) MLP: then G(h, 1) = h, and the identity alone transports credit,
also with an untrained G.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor
from torch.func import vjp

from walkback.credit import bridge
from walkback.credit.rule import EXACT, UNRELATED, CreditRule, Credits, Label, Logs
from walkback.credit.trace import Trace, softmax_error
from walkback.nets.network import Leaves, Network, part

StateMap = Callable[[Tensor, Tensor], Tensor]
"""G: states [L + 1, n, d] and times [L + 1, 1, 1] -> predictions of h_L, shaped like the states."""


@dataclass(frozen=True)
class StateBridge(CreditRule):
    form: Literal["plain", "residual"] = "plain"
    """`plain` learns all of h_L; `residual` learns h_L - h_l and is exact at the top by construction."""
    width: int = 128
    """Width of G's two hidden layers."""
    bridge_lr: float = 1e-3

    def __post_init__(self) -> None:
        bridge.check_bridge(self.width, self.bridge_lr, "state_bridge")

    @property
    def own_lr(self) -> float:
        return self.bridge_lr

    def refuses(self, net: Network) -> str | None:
        return bridge.bridge_refusal(net)

    def init(self, net: Network, generator: Generator) -> Leaves:
        return bridge.init_mlp(net.features + 1, net.features, self.width, generator)

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (*(UNRELATED,) * depth, EXACT if self.form == "residual" else bridge.FITTED)

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        return credit_through_map(self.predictor(state, trace), net, params, trace), {}

    def own_loss(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Tensor, Logs]:
        """Squared error relative to h_L's own square, over samples and layers: predicting zero has error 1."""
        states = torch.stack(trace.states)
        top = trace.states[-1]
        predicted = self.predictor(state, trace)(states, bridge.layer_times(net, states))
        by_layer = ((predicted - top) / bridge.root_mean_square(top)).square().mean((1, 2))
        loss = by_layer.mean()
        return loss, {"prediction_error": loss.sqrt(), "prediction_error_h0": by_layer[0].sqrt()}

    def predictor(self, state: Leaves, trace: Trace) -> StateMap:
        """G with these weights, scaled by the sizes of h_L in this trace."""
        size = bridge.root_mean_square(trace.states[-1])

        def predict(h: Tensor, t: Tensor) -> Tensor:
            learned = size * bridge.mlp(state, bridge.normalised(h), t)
            return h + (1 - t) * learned if self.form == "residual" else learned

        return predict


def credit_through_map(predict: StateMap, net: Network, params: Leaves, trace: Trace) -> Credits:
    """The gradient in h_0..h_L of each sample's loss(head(predict(h, t)), y), for any predictor of h_L."""
    head, states = part(params, "head"), torch.stack(trace.states)
    t = bridge.layer_times(net, states)
    logits, back = vjp(lambda h: net.head(head, predict(h, t).flatten(0, 1)), states)[:2]
    # Pulls back the error: the gradient p - 1 of the loss itself loses precision on confident samples.
    (credits,) = back(softmax_error(logits, trace.target.repeat(len(states), 1)))
    return tuple(credits.unbind(0))


RULE = StateBridge

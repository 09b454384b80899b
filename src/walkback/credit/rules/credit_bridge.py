"""Credit Bridge: one small network V(h_l, t_l, y) learns the sample's final loss; credit is V's gradient in h_l.

Citation: a probe of the audited papers (anonymous, 2024-2026); they do not give V, this one is ours
Feedback: learned, block-level: a_l = gradient in h_l of V(h_l, t_l, y), t_l = l/L
State: the weights of V, learned by the three terms below
Exact: no layer, the top one is fitted
Cost: bp's forward pass and weight gradients; the bridge and its gradient at every state; its training (second order)

V is the softplus of an MLP on h_l / rms(h_l), t_l and the one-hot label (the papers' V shows no label). A cross-entropy
is itself the softplus of a margin, so V is positive, and its gradient vanishes with its value as the true one does. Its
loss has three terms: V(h_L, 1, y) against the true loss; the gradient there against the true gradient (without it V
fits values but gives uninformative gradients); and V(h_l, t_l, y) against V(h_{l+1}, t_{l+1}, y) as a constant.

On a network without a terminal norm the loss depends on the size of h_L, and a V without that input gives no credit
against growth: size=seen adds log rms(h_l) to its inputs. The fit then depends on the scale of the states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Generator, Tensor
from torch.func import grad

from walkback.core.settings import require_at_least
from walkback.credit import bridge
from walkback.credit.rule import UNRELATED, CreditRule, Credits, Label, Logs
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Network

ValueMap = Callable[[Tensor, Tensor], Tensor]
"""V with the labels of one batch: states [..., n, d] and times [..., 1, 1] -> values [..., n]."""


@dataclass(frozen=True)
class CreditBridge(CreditRule):
    size: Literal["hidden", "seen"] = "hidden"
    """`seen` adds log rms(h_l) to the inputs of V, for networks without a terminal norm."""
    width: int = 128
    """Width of V's two hidden layers."""
    bridge_lr: float = 1e-3
    value_weight: float = 1.0
    gradient_weight: float = 1.0
    consistency_weight: float = 1.0

    def __post_init__(self) -> None:
        bridge.check_bridge(self.width, self.bridge_lr, "credit_bridge")
        for name in ("value_weight", "gradient_weight", "consistency_weight"):
            require_at_least(getattr(self, name), 0, f"{name} of credit_bridge")

    @property
    def own_lr(self) -> float:
        return self.bridge_lr

    def refuses(self, net: Network) -> str | None:
        return bridge.bridge_refusal(net)

    def init(self, net: Network, generator: Generator) -> Leaves:
        inputs = net.features + 1 + net.classes + (self.size == "seen")
        return bridge.init_mlp(inputs, 1, self.width, generator)

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (*(UNRELATED,) * depth, bridge.FITTED)

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        return credit_through_value(self.value_function(state, trace), net, trace), {}

    def own_loss(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Tensor, Logs]:
        value = self.value_function(state, trace)
        states = torch.stack(trace.states)
        t = bridge.layer_times(net, states)
        values = value(states, t)
        above = values[1:].detach()
        # Smooth L1: on states that explode without a terminal norm, a loss of 1e7 must not dominate the gradients.
        value_loss = F.smooth_l1_loss(values[-1], trace.losses)
        consistency_loss = F.smooth_l1_loss(values[:-1], above)
        top = grad(lambda h: value(h, t[-1]).sum())(states[-1])
        gradient_loss = gradient_mismatch(top, trace.top)
        total = (
            self.value_weight * value_loss
            + self.gradient_weight * gradient_loss
            + self.consistency_weight * consistency_loss
        )
        return total, {
            "value_error": _rms(values[-1] - trace.losses),
            "gradient_error": gradient_loss.expm1().clamp_min(0).sqrt(),
            "consistency_error": _rms(values[:-1] - above),
        }

    def value_function(self, state: Leaves, trace: Trace) -> ValueMap:
        """V with these weights and the labels of this trace."""
        # Scaled to the states' rms of 1, so that the label has comparable influence.
        label = bridge.normalised(trace.target)

        def value(h: Tensor, t: Tensor) -> Tensor:
            size = (bridge.root_mean_square(h).log(),) if self.size == "seen" else ()
            return F.softplus(bridge.mlp(state, bridge.normalised(h), t, label, *size).squeeze(-1))

        return value


def credit_through_value(value: ValueMap, net: Network, trace: Trace) -> Credits:
    """The gradient in h_0..h_L of each sample's value, for any value function."""
    states = torch.stack(trace.states)
    t = bridge.layer_times(net, states)
    return tuple(grad(lambda h: value(h, t).sum())(states).unbind(0))


def gradient_mismatch(found: Tensor, truth: Tensor) -> Tensor:
    """The mean of log(1 + r^2), r = |found - truth| / |truth|, over the samples [n, d] whose truth is not zero.

    This is r^2 for small r but only logarithmic for large r: otherwise confident samples, whose gradients are tiny,
    would dominate. Both are divided by their largest entry before squaring, so gradients of 1e-30 do not underflow.
    """
    size = truth.abs().amax(-1, keepdim=True)
    common = torch.maximum(size, found.detach().abs().amax(-1, keepdim=True))
    error, norm = ((v / bridge.one_where_zero(common)).square().sum(-1) for v in (found - truth, truth))
    truth_norm = (truth / bridge.one_where_zero(size)).square().sum(-1)
    log_ratio = (bridge.one_where_zero(common).log() - bridge.one_where_zero(size).log()).squeeze(-1)
    logs = bridge.one_where_zero(error + norm).log() - bridge.one_where_zero(truth_norm).log() + 2 * log_ratio
    counted = size.squeeze(-1) > 0
    return torch.where(counted, logs, 0.0).sum() / counted.sum().clamp_min(1)


def _rms(errors: Tensor) -> Tensor:
    return errors.square().mean().sqrt()


RULE = CreditBridge

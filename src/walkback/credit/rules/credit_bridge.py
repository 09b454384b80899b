"""Credit Bridge: one small network V(h_l, t_l, y) learns the sample's final loss; credit is V's gradient in h_l.

Citation: a probe of the audited papers (anonymous, 2024-2026); they do not give V, this one is ours
Feedback: learned, block-level: a_l = gradient in h_l of V(h_l, t_l, y), t_l = l/L
State: the weights of V, learned by the three terms below
Exact: no layer, the top one is fitted
Cost: bp's forward pass and weight gradients; the bridge and its gradient at every state; its training, twice derived

V is the softplus of an MLP on h_l / rms(h_l), t_l and the label as one-hot input (the papers' V shows no label). A
cross-entropy is itself the softplus of a margin: so V is positive, and its gradient fades with it as the true one does.
It learns that V(h_L, 1, y) is the loss; that its gradient there is the loss's (without this V fits values and gives
uninformative gradients); and that V(h_l, t_l, y) is V(h_{l+1}, t_{l+1}, y), which is held.

On a network without a terminal norm the loss depends on the size of h_L, and a V that does not see it sends no credit
against growth: size=seen gives it log rms(h_l) as well. The fit then is no longer the same at every scale.
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
"""V on one batch's labels: states [..., n, d] and times [..., 1, 1] -> values [..., n]."""


@dataclass(frozen=True)
class CreditBridge(CreditRule):
    size: Literal["hidden", "seen"] = "hidden"
    """Whether V sees how large a state is; `seen` is for networks without a terminal norm."""
    width: int = 128
    """Of V's two hidden layers."""
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
        return bridge.refuses(net)

    def init(self, net: Network, generator: Generator) -> Leaves:
        inputs = net.features + 1 + net.classes + (self.size == "seen")
        return bridge.init(inputs, 1, self.width, generator)

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (*(UNRELATED,) * depth, bridge.FITTED)

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        return credit_through_value(self.valuer(state, trace), net, trace), {}

    def own_loss(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Tensor, Logs]:
        value = self.valuer(state, trace)
        states = torch.stack(trace.states)
        t = bridge.times(net, states)
        values = value(states, t)
        above = values[1:].detach()
        # A linear tail: where the stream explodes without a terminal norm, a loss of 1e7 must not drown the gradients.
        value_loss = F.smooth_l1_loss(values[-1], trace.losses)
        consistency_loss = F.smooth_l1_loss(values[:-1], above)
        top = grad(lambda h: value(h, t[-1]).sum())(states[-1])
        gradient_loss = mismatch(top, trace.top)
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

    def valuer(self, state: Leaves, trace: Trace) -> ValueMap:
        # The label's features get the states' size, rms 1, or they would be lost among them.
        label = bridge.normalised(trace.target)

        def value(h: Tensor, t: Tensor) -> Tensor:
            size = (bridge.root_mean_square(h).log(),) if self.size == "seen" else ()
            return F.softplus(bridge.mlp(state, bridge.normalised(h), t, label, *size).squeeze(-1))

        return value


def credit_through_value(value: ValueMap, net: Network, trace: Trace) -> Credits:
    """The gradient of each sample's value in h_0..h_L, whatever it is that values them."""
    states = torch.stack(trace.states)
    t = bridge.times(net, states)
    return tuple(grad(lambda h: value(h, t).sum())(states).unbind(0))


def mismatch(found: Tensor, truth: Tensor) -> Tensor:
    """The mean of log(1 + r^2), r = |found - truth| / |truth| for each sample [n, d] whose truth is not zero.

    The square of a small r; and only the logarithm of a large one, or the samples that are already confident, whose
    gradients are tiny, would be all that counts. Sizes are taken out before squaring, so gradients of 1e-30 count too.
    """
    size = truth.abs().amax(-1, keepdim=True)
    both = torch.maximum(size, found.detach().abs().amax(-1, keepdim=True))
    missed, own = ((v / bridge.or_one(both)).square().sum(-1) for v in (found - truth, truth))
    alone = (truth / bridge.or_one(size)).square().sum(-1)
    log_ratio = (bridge.or_one(both).log() - bridge.or_one(size).log()).squeeze(-1)
    logs = bridge.or_one(missed + own).log() - bridge.or_one(alone).log() + 2 * log_ratio
    counted = size.squeeze(-1) > 0
    return torch.where(counted, logs, 0.0).sum() / counted.sum().clamp_min(1)


def _rms(errors: Tensor) -> Tensor:
    return errors.square().mean().sqrt()


RULE = CreditBridge

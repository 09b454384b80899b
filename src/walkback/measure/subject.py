"""The interface between measuring and models: hidden states and gradients in one frozen pass.

A pass runs one group of samples. The reference gradient is that of each sample's own loss; for plain classification it
starts from an error computed without cancellation (`p_y - 1` loses its digits on confident samples).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from walkback.core.errors import InputError
from walkback.core.random_streams import generator
from walkback.credit.losses import sample_losses
from walkback.credit.rule import CreditRule
from walkback.credit.trace import Trace, one_hot, softmax_error, trace
from walkback.measure.inputs import cast
from walkback.nets.network import Leaves, Network, part


@dataclass(frozen=True)
class FrozenPass:
    """One group of samples through a frozen model; a credit function gets this and returns a_0..a_L."""

    x: Any
    y: Tensor | None
    states: tuple[Tensor, ...]
    """h_0..h_L, each [n, ...]."""
    reference: tuple[Tensor, ...]
    """Gradients of each sample's own loss with respect to h_0..h_L."""
    losses: Tensor
    logits: Tensor | None
    error: Tensor | None
    """softmax - target [n, classes]; None if the loss is not plain cross-entropy."""

    @property
    def top(self) -> Tensor:
        """The reference gradient at h_L."""
        return self.reference[-1]


CreditFunction = Callable[[FrozenPass], Sequence[Tensor]]


class Subject(ABC):
    """A model that is measured."""

    dtype: torch.dtype
    device: torch.device
    found: tuple[str, ...] = ()
    """What was used as the network's parts, in sentences."""
    skipped: tuple[str, ...] = ()
    """What was not measured or not used, and why."""

    @abstractmethod
    def run(self, x: Any, y: Tensor | None) -> FrozenPass:
        """One frozen pass over one group, everything detached."""

    @abstractmethod
    def double(self) -> Subject:
        """A copy of the model in float64."""

    def credit(self, frozen_pass: FrozenPass) -> Sequence[Tensor] | None:
        """The credits of the subject's own rule; None if it has none."""
        return None


def finish_pass(x: Any, y: Tensor, states: Sequence[Tensor], logits: Tensor) -> FrozenPass:
    """Complete a pass that ends in logits: losses, error, and reference gradients of the states."""
    if logits.ndim != 2 or logits.shape[0] != len(y):
        raise InputError(
            f"The model returns logits of shape {tuple(logits.shape)} for {len(y)} labels, not [samples, classes]. "
            "For another output or loss, give step_fn=(model, batch) -> per-sample loss."
        )
    low, high = torch.stack(y.aminmax()).tolist()
    if y.is_floating_point() or low < 0 or high >= logits.shape[1]:
        raise InputError(f"Labels must be whole numbers from 0 to {logits.shape[1] - 1}, as the model has that many.")
    target = one_hot(y, logits.shape[1]).to(logits.dtype)
    error = softmax_error(logits.detach(), target)
    reference = torch.autograd.grad(logits, list(states), grad_outputs=error)
    losses = F.cross_entropy(logits.detach(), y, reduction="none")
    values = tuple(state.detach() for state in states)
    return FrozenPass(x, y, values, tuple(reference), losses, logits.detach(), error)


def probe_noise(rule: CreditRule, net: Network, y: Tensor) -> Leaves:
    """The rule's noise for one group, seeded by its labels: the same in the replay, another for another group."""
    which = int.from_bytes(hashlib.sha256(y.cpu().numpy().tobytes()).digest()[:8], "big")
    return rule.draw(net, len(y), generator(0, "probe noise", which))


class NetworkSubject(Subject):
    """A walkback network with its parameters, and the rule it was trained with."""

    def __init__(self, net: Network, params: Leaves, rule: CreditRule | None = None, state: Leaves | None = None):
        first = next(iter(params.values()))
        self.dtype, self.device = first.dtype, first.device
        self._net, self._params, self._rule, self._state = net, params, rule, state or {}
        self._traced: tuple[FrozenPass, Trace] | None = None
        self.found = (f"{type(net).__name__}: stem, {net.depth} blocks (residual branches), head",)
        untrained = rule.untrained(net) if rule else ()
        if untrained:
            self.skipped += (f"stem not trained: the method gives {' and '.join(untrained)} no credit",)
        if rule and not rule.fresh_is_null:
            self.skipped += ("fresh feedback: drawn anew it still comes from the weights, so it is no null",)

    @property
    def net(self) -> Network:
        return self._net

    def run(self, x: Any, y: Tensor | None) -> FrozenPass:
        assert y is not None, "walkback networks are classifiers"
        x = cast(x, self.dtype, self.device)
        with torch.enable_grad():
            states = [self._net.stem(part(self._params, "stem"), x).detach().requires_grad_()]
            for block in range(self._net.depth):
                states.append(states[-1] + self._net.branch(part(self._params, f"blocks.{block}"), states[-1]))
            return finish_pass(x, y, states, self._net.head(part(self._params, "head"), states[-1]))

    def losses_from(self, layer: int, h: Tensor, y: Tensor) -> Tensor:
        """Each sample's loss when its h_layer is `h`, computed so that small changes of it are not lost in rounding."""
        logits = self._net.forward_from(layer, self._params, h)
        return sample_losses(logits, one_hot(y.to(h.device), self._net.classes).to(h.dtype))

    def credit(self, frozen_pass: FrozenPass) -> Sequence[Tensor] | None:
        return None if self._rule is None else self.credit_with(frozen_pass, self._state)

    def credit_with(self, frozen_pass: FrozenPass, state: Leaves) -> Sequence[Tensor]:
        """The rule's credits with this state, which may be freshly drawn for a null."""
        assert self._rule is not None
        assert frozen_pass.y is not None
        knobs = {
            name: torch.tensor(value, dtype=self.dtype, device=self.device)
            for name, value in self._rule.knobs().items()
        }
        rule = self._rule.bind(knobs)
        drawn = probe_noise(self._rule, self._net, frozen_pass.y)
        noise = {name: leaf.to(self.dtype).to(self.device) for name, leaf in drawn.items()}
        # Feedback inside the Linears changes the trace itself; with any other state the cached trace is reused.
        if self._traced is None or self._traced[0] is not frozen_pass or type(rule).linears is not CreditRule.linears:
            linears = rule.linears(self._net, state, noise)
            traced = trace(
                self._net, self._params, frozen_pass.x, frozen_pass.y, linears, with_input=rule.through_blocks
            )
            self._traced = frozen_pass, traced
        return rule.credit(self._net, self._params, state, self._traced[1], noise)[0]

    def fresh_state(self, draw: int) -> Leaves | None:
        """The rule's feedback drawn anew; None if it has none, or if that would be no null."""
        if self._rule is None or not self._rule.fresh_is_null:
            return None
        fresh = self._rule.init(self._net, generator(draw, "fresh feedback"))
        return {name: leaf.to(self.dtype).to(self.device) for name, leaf in fresh.items()} or None

    def double(self) -> NetworkSubject:
        params, state = ({n: leaf.double() for n, leaf in leaves.items()} for leaves in (self._params, self._state))
        return NetworkSubject(self._net, params, self._rule, state)

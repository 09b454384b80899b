"""The oracle controls of a rule: the exact gradient in place of its credit, everything else as the rule has it.

If the rule fails where its oracle does not, the credit is at fault; if both fail, it is what is done with the credit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Generator, Tensor

from walkback.credit.rule import EXACT, CreditRule, Credits, Label, Logs, transport
from walkback.credit.trace import Trace, trace
from walkback.nets.network import Leaves, Network


@dataclass(frozen=True)
class OracleRule(CreditRule):
    """Gives each state its exact gradient, as it is or with the size of the credit that `inner` would use there.

    It is trained with site=output, so that block l gets g_{l+1}, whatever the site of the rule it stands in for.
    """

    sites = ("output",)
    through_blocks = True
    per_token = True  # The rule it stands in for is asked whether it is defined.
    fresh_is_null = False

    inner: CreditRule
    """The rule it stands in for: its state is kept and learned, and its other settings apply."""
    kind: Literal["exact", "direction"]
    """`exact`: the gradient times the rule's error scale. `direction`: the gradient's direction, with the norm of the
    credit by which the rule would train the same block."""
    inner_site: Literal["output", "input"]
    """The site of the rule it stands in for: under `input` block l would be trained by a_l, not by a_{l+1}."""

    def init(self, net: Network, generator: Generator) -> Leaves:
        return self.inner.init(net, generator)

    def draw(self, net: Network, batch: int, generator: Generator) -> Leaves:
        return self.inner.draw(net, batch, generator)

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        exact = transport(trace)
        if self.kind == "exact":
            scale = self.inner.error_scale(trace)
            if scale is None:
                return exact, {}
            return tuple(g * _per_sample(scale, g) for g in exact), {}
        seen = self._inner_trace(net, params, state, trace, noise)
        own, logs = self.inner.credit(net, params, state, seen, noise)
        # The stem is trained by a_0 under either site.
        used = own if self.inner_site == "output" else (own[0], *own[:-1])
        return tuple(_with_norm_of(a, g) for a, g in zip(used, exact, strict=True)), logs

    def own_loss(
        self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves
    ) -> tuple[Tensor, Logs] | None:
        return self.inner.own_loss(net, params, state, self._inner_trace(net, params, state, trace, noise), noise)

    def _inner_trace(self, net: Network, params: Leaves, state: Leaves, seen: Trace, noise: Leaves) -> Trace:
        """The same pass with the Linears of the inner rule, where it has its own."""
        if type(self.inner).linears is CreditRule.linears:
            return seen
        linears = self.inner.linears(net, state, noise)
        return trace(net, params, seen.x, seen.y, linears, with_input=self.inner.through_blocks)

    def after_update(self, state: Leaves, before: Leaves, after: Leaves, decay: Tensor) -> Leaves:
        return self.inner.after_update(state, before, after, decay)

    def updates_state(self) -> bool:
        return self.inner.updates_state()

    def objection(self, logs: Mapping[str, float]) -> str | None:
        return self.inner.objection(logs) if self.kind == "direction" else None

    def refuses(self, net: Network) -> str | None:
        return self.inner.refuses(net)

    def untrained(self, net: Network) -> tuple[str, ...]:
        return self.inner.untrained(net)

    @property
    def own_lr(self) -> float:
        return self.inner.own_lr

    def rotation_space(self, net: Network) -> Literal["features", "all"]:
        return self.inner.rotation_space(net)

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (EXACT,) * (depth + 1)

    def knobs(self) -> dict[str, float]:
        return self.inner.knobs()

    def bind(self, knobs: Leaves) -> Self:
        return replace(self, inner=self.inner.bind(knobs))

    def static(self) -> Self:
        return replace(self, inner=self.inner.static())


def _with_norm_of(credit: Tensor, direction: Tensor) -> Tensor:
    """Each sample's `direction` with the norm of its `credit`; zero where either is zero."""
    size, unit_credit_length = _size_and_length(credit)
    largest, length = _size_and_length(direction)
    return direction / largest * (size * (unit_credit_length / torch.where(length > 0, length, 1.0)))


def _size_and_length(values: Tensor) -> tuple[Tensor, Tensor]:
    """Each sample's largest entry (1 if all are zero) and its norm divided by that; shaped to multiply the samples.

    Credits of exploded networks are so small that the sum of their squares underflows.
    """
    largest = values.flatten(1).abs().amax(-1)
    largest = _per_sample(torch.where(largest > 0, largest, 1.0), values)
    return largest, _per_sample(torch.linalg.vector_norm((values / largest).flatten(1), dim=-1), values)


def _per_sample(factors: Tensor, values: Tensor) -> Tensor:
    """Factors [n], shaped to multiply the samples of `values` [n, ...]."""
    return factors.reshape(-1, *(1,) * (values.ndim - 1))

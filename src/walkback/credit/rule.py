"""The credit rule interface: a frozen dataclass of settings that computes the credits a_0..a_L from one trace.

A credit a_l is shaped like h_l, has the *sign of the gradient* (the update descends it) and *per-sample scale* (the
gradient of the sample's own loss, not of a batch mean), so it does not depend on the rest of the batch.

A rule is written for ONE model and vmapped over a fleet. It therefore never branches on tensor values, calls no
`.item()` and draws no random numbers inside `credit`: noise is drawn by `draw`, outside the step, and passed in.
"""

from __future__ import annotations

import dataclasses
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from torch import Generator, Tensor

from walkback.core.settings import hints_of
from walkback.credit.trace import Trace
from walkback.nets.network import Leaves, Linear, Network, plain_linear

Credits = tuple[Tensor, ...]
Logs = dict[str, Tensor]
Label = Literal["exact", "asymptotic", "fitted", "signs", "none"]
"""How a layer's credit relates to the gradient by construction; a cosine of an exact layer is no evidence."""
EXACT: Label = "exact"
UNRELATED: Label = "none"
SIGN_FEEDBACK: Label = "signs"
"""The feedback has the signs of the current weights, so it is aligned with them whatever was learned."""

LEARNED = "learned."
"""Leaves of a rule's state with this prefix are trained by the rule's own loss."""
PER_SAMPLE = "each."
"""Leaves of a step's noise with this prefix have the samples as their first axis."""


def dynamic(default: Any) -> Any:
    """A dataclass field that may differ between the models of one fleet: inside a step it is a 0-d tensor.

    The values of a Literal field are passed as their index.
    """
    return dataclasses.field(default=default, metadata={"dynamic": True})


@dataclass(frozen=True)
class CreditRule(ABC):
    """Base of all rules. Subclasses are frozen dataclasses whose fields are the rule's settings."""

    sites: ClassVar[tuple[Literal["output", "input"], ...]] = ("output", "input")
    """The credit sites the rule is defined for, its default first."""
    through_blocks: ClassVar[bool] = False
    """Whether the rule pulls credit back through the blocks (and so needs their input pullbacks)."""
    per_token: ClassVar[bool] = False
    """Whether the rule is defined for networks that predict at every token."""
    fresh_is_null: ClassVar[bool] = True
    """Whether a freshly drawn state is independent of the weights, so that its credit serves as a chance level."""

    def init(self, net: Network, generator: Generator) -> Leaves:
        """The rule's initial state for one model (feedback, bridges), float32 on the CPU; empty if it has none."""
        return {}

    def draw(self, net: Network, batch: int, generator: Generator) -> Leaves:
        """One step's noise for one model, on the CPU; empty if the rule needs none.

        Per-sample noise is named `each.*` and has the batch as its first axis.
        """
        return {}

    def linears(self, net: Network, state: Leaves, noise: Leaves) -> list[Linear]:
        """The functions that apply each block's Linears; per-layer rules replace their backward pass here."""
        return [plain_linear] * net.depth

    @abstractmethod
    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        """The credits a_0..a_L, and scalars to log."""

    def own_loss(
        self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves
    ) -> tuple[Tensor, Logs] | None:
        """The loss that trains the state's learned leaves, and scalars to log; None if there are none."""
        return None

    def after_update(self, state: Leaves, before: Leaves, after: Leaves, decay: Tensor) -> Leaves:
        """The rule's state after the network's update.

        `before` and `after` are the network's parameters; `decay` is lr * weight decay, as applied to them.
        """
        return state

    def objection(self, logs: Mapping[str, float]) -> str | None:
        """The reason to stop training after an epoch with these logs; None to continue."""
        return None

    @property
    def normalises_error(self) -> bool:
        """Whether the rule sends back each sample's error scaled to length 1, so that `error_scale` is not 1."""
        return False

    def error_scale(self, trace: Trace) -> Tensor | None:
        """The factor [n] by which the rule scales each sample's error before it is sent back; None if it never does.

        An oracle control scales the exact gradient by it. For a rule with settings as tensors, like `credit`.
        """
        return None

    def refuses(self, net: Network) -> str | None:
        """Why the rule is not defined on this network, `per_token` apart; None if it is."""
        return None

    def untrained(self, net: Network) -> tuple[str, ...]:
        """Prefixes of the leaves that get no credit on this network; they are neither updated nor decayed."""
        return ()

    @property
    def own_lr(self) -> float:
        """Learning rate of the learned leaves (AdamW, no decay, the run's cosine schedule)."""
        return 1e-3

    def rotation_space(self, net: Network) -> Literal["features", "all"]:
        """What the feedback mixes, and so what a random rotation of the credit mixes: the features of each token or map
        position, or the whole state."""
        return "features"

    def labels(self, depth: int) -> tuple[Label, ...]:
        """For each state h_0..h_L, how its credit relates to the gradient by construction."""
        return (UNRELATED,) * (depth + 1)

    def knobs(self) -> dict[str, float]:
        """The dynamic fields as numbers."""
        hints = hints_of(type(self))
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.metadata.get("dynamic")}
        return {name: _number(value, hints[name]) for name, value in values.items()}

    def bind(self, knobs: Leaves) -> Self:
        """A copy of the rule with its dynamic fields replaced by tensors."""
        return dataclasses.replace(self, **knobs)

    def static(self) -> Self:
        """A copy of the rule with its dynamic fields at their defaults, shared by all models of one fleet."""
        defaults = {f.name: f.default for f in dataclasses.fields(self) if f.metadata.get("dynamic")}
        return dataclasses.replace(self, **defaults)

    def updates_state(self) -> bool:
        """Whether `after_update` is overridden, so that the weights before the update must be kept."""
        return type(self).after_update is not CreditRule.after_update


def refusal(rule: CreditRule, net: Network) -> str | None:
    """Why the rule is not defined on this network; None if it is."""
    if net.per_token and not rule.per_token:
        return "it predicts at every token, and the method has no rule for errors of tokens"
    return rule.refuses(net)


def _number(value: Any, hint: Any) -> float:
    if typing.get_origin(hint) is Literal:
        return float(typing.get_args(hint).index(value))
    return float(value)


def transport(trace: Trace) -> Credits:
    """Credit sent back through the blocks: a_L exact, a_l = a_{l+1} + (pullback of branch l)(a_{l+1}).

    For blocks that return the next state, the pullback is that of the whole block.
    """
    credits = [trace.top]
    for block in reversed(trace.blocks):
        pulled = block.input(credits[-1])
        credits.append(credits[-1] + pulled if trace.adds_input else pulled)
    return tuple(reversed(credits))

"""The interface between measuring and models: hidden states and gradients in one frozen pass.

A pass runs one group of samples. The reference gradient is that of each sample's own loss; for plain classification it
starts from an error computed without cancellation (`p_y - 1` loses its digits on confident samples).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from walkback.core.errors import InputError
from walkback.core.random_streams import generator
from walkback.credit import local
from walkback.credit.losses import sample_losses
from walkback.credit.rule import CreditRule, transport
from walkback.credit.trace import Trace, cross_entropy, one_hot, trace
from walkback.measure.block_maps import TracedBlocks
from walkback.measure.reference_check import LossesAt
from walkback.measure.updates import Updates
from walkback.measure.vectors import NullSpace
from walkback.nets.network import Leaves, Network, part, plain_linear
from walkback.nets.tensor_trees import cast, map_tensors


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
    """The gradient of each sample's loss in its logits, softmax - target for plain cross-entropy; None without logits.
    Losses of tokens are averaged over a sample, so their errors are divided by the number of tokens."""
    backward: tuple[Tensor, ...] | None = None
    """What the model's own backward pass returns at h_0..h_L; None if that is not known."""
    backward_problem: str = ""
    """Why the model's own backward pass returns nothing."""
    updates: Updates | None = None
    """Parameter gradients, where they were asked for and can be computed."""
    given_loss: bool = False
    """Whether the losses are those of `step_fn`: then the outputs need not be the logits of a classifier."""

    @property
    def is_classified(self) -> bool:
        """Whether each sample has one label and logits for its classes, so that it is right or wrong."""
        return not self.given_loss and self.logits is not None and self.y is not None and self.y.ndim == 1

    @property
    def top(self) -> Tensor:
        """The reference gradient at h_L."""
        return self.reference[-1]

    def for_function(self) -> FrozenPass:
        """The pass for a user's function, which may ask for gradients at the states: that does not stay."""
        x, y, states, reference, losses, logits, error = map_tensors(
            Tensor.detach, (self.x, self.y, self.states, self.reference, self.losses, self.logits, self.error)
        )
        return replace(self, x=x, y=y, states=states, reference=reference, losses=losses, logits=logits, error=error)


LesionedLogits = dict[str, Sequence[Tensor | None]]
"""By lesion: logits for each block, and for each state where the network is cut off; None where it is not possible."""
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
    def run(self, x: Any, y: Tensor | None, *, backward: bool = False, updates: bool = False) -> FrozenPass:
        """One frozen pass over one group, everything detached.

        With `backward` also what the model's own backward pass returns, and with `updates` the parameter gradients.
        """

    @property
    def rotation_space(self) -> NullSpace:
        """What a random rotation of the credit mixes, for the null."""
        return "features"

    @abstractmethod
    def double(self) -> Subject:
        """A copy of the model in float64."""

    @abstractmethod
    def losses_at(self, x: Any, y: Tensor | None) -> LossesAt:
        """A function that computes each sample's loss again with a tensor added to one hidden state."""

    def discontinuities(self, x: Any, y: Tensor | None) -> tuple[str | None, ...]:
        """For each hidden state, an operation without a useful derivative between it and the loss; empty if it is
        known that there are none."""
        return ()

    @abstractmethod
    def states(self, x: Any) -> Sequence[Tensor]:
        """h_0..h_L of some samples, without gradients."""

    @abstractmethod
    def with_parameters(self, parameters: Mapping[str, Tensor]) -> Subject:
        """The same network with these parameters in place of its own."""

    @abstractmethod
    def lesioned_logits(self, x: Any, initial: Mapping[str, Tensor] | None) -> LesionedLogits:
        """Logits with blocks skipped, reset to their `initial` parameters, or left out from a block on.

        Empty if the model has no logits.
        """

    def credit(self, frozen_pass: FrozenPass) -> Sequence[Tensor] | None:
        """The credits of the subject's own rule; None if it has none."""
        return None


def whole_labels(y: Tensor | None, logits: Tensor, *, per_token: bool = False) -> Tensor:
    """The labels as int64; refused if they are not class numbers of these logits. With `per_token` each token has a
    label and logits."""
    if y is None:
        raise InputError("Evaluation batches need labels: (x, y) pairs. Without labels, give step_fn.")
    if y.ndim != 1 + per_token:
        raise InputError(f"Labels have shape {tuple(y.shape)}; expected one whole number for each sample.")
    if logits.shape[:-1] != y.shape:
        raise InputError(
            f"The model returns logits of shape {tuple(logits.shape)} for {len(y)} labels, not [samples, classes]. "
            "For another output or loss, give step_fn=(model, batch) -> per-sample loss."
        )
    whole = y.is_floating_point() or y.is_complex()
    labels = y if whole else y.long()
    if whole or int(labels.min()) < 0 or int(labels.max()) >= logits.shape[-1]:
        raise InputError(f"Labels must be whole numbers from 0 to {logits.shape[-1] - 1}, as the model has that many.")
    return labels


def probe_noise(rule: CreditRule, net: Network, y: Tensor) -> Leaves:
    """The rule's and the network's noise for one group, seeded by its labels: the same in the replay, another for
    another group."""
    which = int.from_bytes(hashlib.sha256(y.cpu().numpy().tobytes()).digest()[:8], "big")
    return rule.draw(net, len(y), generator(0, "probe noise", which)) | net.draw(
        len(y), generator(0, "probe dropout", which)
    )


@dataclass(frozen=True)
class LocalLoss:
    """How a credit trains the blocks."""

    site: Literal["output", "input"]
    penalty: float = 0.0
    penalty_reduction: Literal["sum", "mean"] = "sum"


class NetworkSubject(Subject):
    """A walkback network with its parameters, and the rule it was trained with."""

    def __init__(
        self,
        net: Network,
        params: Leaves,
        rule: CreditRule | None = None,
        state: Leaves | None = None,
        local_loss: LocalLoss | None = None,
    ):
        """`local_loss` says how the credit trains the blocks; without it no parameter gradients are measured."""
        first = next(iter(params.values()))
        self._local_loss = local_loss
        self.dtype, self.device = first.dtype, first.device
        self._net, self._params, self._rule, self._state = net, params, rule, state or {}
        self._traced: tuple[FrozenPass, Trace] | None = None
        self.found = net.found
        untrained = rule.untrained(net) if rule else ()
        if untrained:
            self.skipped += (f"stem not trained: the method gives {' and '.join(untrained)} no credit",)
        if rule and not rule.fresh_is_null:
            self.skipped += ("fresh feedback: drawn anew it still comes from the weights, so it is no null",)

    @property
    def has_rule(self) -> bool:
        return self._rule is not None

    @property
    def net(self) -> Network:
        return self._net

    def run(self, x: Any, y: Tensor | None, *, backward: bool = False, updates: bool = False) -> FrozenPass:
        assert y is not None, "walkback networks are classifiers"
        x = cast(x, self.dtype, self.device)
        with torch.enable_grad():
            states = [self._net.stem(part(self._params, "stem"), x).detach().requires_grad_()]
            for block in range(self._net.depth):
                states.append(self._net.next_state(block, part(self._params, f"blocks.{block}"), states[-1]))
            logits = self._net.head(part(self._params, "head"), states[-1])
        labels = whole_labels(y, logits, per_token=self._net.per_token)
        losses, error = cross_entropy(logits.detach(), labels)
        reference = torch.autograd.grad(logits, states, grad_outputs=error)
        values = tuple(state.detach() for state in states)
        found = self._updates(x, labels) if updates else None
        return FrozenPass(x, labels, values, reference, losses, logits.detach(), error, updates=found)

    def losses_at(self, x: Any, y: Tensor | None) -> LossesAt:
        assert y is not None
        states = self.states(x)

        def found(layer: int, addend: Tensor) -> Tensor:
            with torch.no_grad():
                return self.losses_from(layer, states[layer] + addend, y)

        return found

    def states(self, x: Any) -> list[Tensor]:
        with torch.no_grad():
            states = [self._net.stem(part(self._params, "stem"), cast(x, self.dtype, self.device))]
            for block in range(self._net.depth):
                states.append(self._net.next_state(block, part(self._params, f"blocks.{block}"), states[-1]))
        return states

    def with_parameters(self, parameters: Mapping[str, Tensor]) -> NetworkSubject:
        params = {name: parameters[name].to(leaf) for name, leaf in self._params.items()}
        return NetworkSubject(self._net, params, self._rule, self._state, self._local_loss)

    def lesioned_logits(self, x: Any, initial: Mapping[str, Tensor] | None) -> LesionedLogits:
        net, states, blocks = self._net, self.states(x), range(self._net.depth)

        def rest(layer: int, h: Tensor) -> Tensor | None:
            """The logits from h_layer on; None if `h` has another shape."""
            fits = h.shape[1:] == states[layer].shape[1:]
            return net.forward_from(layer, self._params, h) if fits else None

        found: LesionedLogits = {
            "lesion_skip": [rest(block + 1, states[block]) for block in blocks],
            "lesion_cut": [rest(net.depth, h) for h in states],
        }
        if initial is not None:
            # Buffers stay as they are: the running statistics of the untrained network are not known.
            first = {
                n: initial[n].to(leaf) if n in initial and (net.is_calibrated or n not in net.buffers) else leaf
                for n, leaf in self._params.items()
            }
            after = (net.next_state(block, part(first, f"blocks.{block}"), states[block]) for block in blocks)
            found["lesion_reset"] = [rest(block + 1, h) for block, h in enumerate(after)]
        return found

    def losses_from(self, layer: int, h: Tensor, y: Tensor) -> Tensor:
        """Each sample's loss when its h_layer is `h`, computed so that small changes of it are not lost in rounding."""
        logits = self._net.forward_from(layer, self._params, h)
        return sample_losses(logits, one_hot(y.to(h.device), self._net.classes).to(h.dtype))

    def credit(self, frozen_pass: FrozenPass) -> Sequence[Tensor] | None:
        return None if self._rule is None else self.credit_with(frozen_pass, self._state)

    def credit_with(self, frozen_pass: FrozenPass, state: Leaves) -> Sequence[Tensor]:
        """The rule's credits with this state, which may be freshly drawn for a null."""
        assert frozen_pass.y is not None
        rule, noise = self._bound(frozen_pass.y)
        # Feedback inside the Linears changes the trace itself; with any other state the cached trace is reused.
        if self._traced is None or self._traced[0] is not frozen_pass or type(rule).linears is not CreditRule.linears:
            linears = rule.linears(self._net, state, noise)
            traced = trace(
                self._net, self._params, frozen_pass.x, frozen_pass.y, linears, with_input=rule.through_blocks
            )
            self._traced = frozen_pass, traced
        return rule.credit(self._net, self._params, state, self._traced[1], noise)[0]

    def _bound(self, y: Tensor) -> tuple[CreditRule, Leaves]:
        """The rule with its settings as tensors, and its noise for these samples."""
        assert self._rule is not None
        numbers = {name: self._tensor(value) for name, value in self._rule.knobs().items()}
        drawn = probe_noise(self._rule, self._net, y)
        noise = {name: leaf.to(self.dtype).to(self.device) for name, leaf in drawn.items()}
        return self._rule.bind(numbers), noise

    def _tensor(self, value: float) -> Tensor:
        return torch.tensor(value, dtype=self.dtype, device=self.device)

    def _updates(self, x: Tensor, y: Tensor) -> Updates | None:
        """What a training step on these samples hands to the optimiser, and the gradient of their mean loss."""
        if self._rule is None or self._local_loss is None:
            return None
        rule, noise = self._bound(y)
        net, how = self._net.in_training().with_noise(noise), self._local_loss
        linears = rule.linears(net, self._state, noise)
        seen = trace(net, self._params, x, y, linears, with_input=True)
        plain = seen
        if type(rule).linears is not CreditRule.linears:  # Its Linears have another backward pass.
            plain = trace(net, self._params, x, y, [plain_linear] * net.depth, with_input=True)
        credits, _ = rule.credit(net, self._params, self._state, seen, noise)

        def gradients(penalty: Tensor | None) -> Leaves:
            found = local.gradients(seen, credits, how.site, penalty, how.penalty_reduction)
            untrained = rule.untrained(net)
            return {n: torch.zeros_like(leaf) if n.startswith(untrained) else leaf for n, leaf in found.items()}

        true = local.gradients(plain, transport(plain), "output", None, how.penalty_reduction)
        names = [(name, name.split(".")) for name in sorted(true)]
        parts = {name: int(path[1]) if path[0] == "blocks" else path[0] for name, path in names}
        return Updates(
            made=gradients(None),
            true=true,
            parts=parts,
            full=gradients(self._tensor(how.penalty)) if how.penalty > 0 else None,
            maps=TracedBlocks(seen.blocks),
        )

    @property
    def rotation_space(self) -> NullSpace:
        return "all" if self._rule is None else self._rule.rotation_space(self._net)

    def fresh_state(self, draw: int) -> Leaves | None:
        """The rule's feedback drawn anew; None if it has none, or if that would be no null."""
        if self._rule is None or not self._rule.fresh_is_null:
            return None
        fresh = self._rule.init(self._net, generator(draw, "fresh feedback"))
        return {name: leaf.to(self.dtype).to(self.device) for name, leaf in fresh.items()} or None

    def double(self) -> NetworkSubject:
        params, state = ({n: leaf.double() for n, leaf in leaves.items()} for leaves in (self._params, self._state))
        return NetworkSubject(self._net, params, self._rule, state, self._local_loss)

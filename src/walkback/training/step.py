"""One training step of one model, as a pure function: trace -> credits -> local gradients.

The drivers call it for one model or vmap it over models; they own the update, the data and the randomness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor
from torch.func import grad_and_value

from walkback.credit import local
from walkback.credit.rule import LEARNED, CreditRule
from walkback.credit.trace import Trace, trace
from walkback.nets.network import Leaves, Network, part
from walkback.training.resolved_run import ResolvedRun


@dataclass(frozen=True)
class StepSpec:
    """The static part of a step: the same for every model of a fleet."""

    net: Network
    rule: CreditRule
    site: Literal["output", "input"]
    penalty_reduction: Literal["sum", "mean"]
    penalised: bool
    """Whether any model has a penalty; if none has, the penalty is not computed."""

    @staticmethod
    def of(*resolved_runs: ResolvedRun) -> StepSpec:
        first = resolved_runs[0]
        penalised = any(resolved.shared_options.penalty > 0 for resolved in resolved_runs)
        reduction = first.shared_options.penalty_reduction
        return StepSpec(first.net, first.rule.static(), first.credit_site, reduction, penalised)


class StepOutput(NamedTuple):
    gradients: Leaves
    own_gradients: Leaves
    """Gradients of the rule's own loss with respect to its learned leaves."""
    logs: Leaves
    """0-d tensors, averaged over an epoch by the drivers."""
    buffers: Leaves
    """Running statistics of the network after this step."""


def step(
    spec: StepSpec, params: Leaves, state: Leaves, knobs: Leaves, x: Tensor, y: Tensor, noise: Leaves
) -> StepOutput:
    """Gradients and logs of one model on one batch; `knobs` are its per-model numbers as 0-d tensors."""
    net = spec.net.in_training().with_noise(noise)
    rule = spec.rule.bind(part(knobs, "rule"))
    linears = rule.linears(net, state, noise)
    seen = trace(net, params, x, y, linears, with_input=rule.through_blocks)
    credits, logs = rule.credit(net, params, state, seen, noise)
    penalty = knobs["penalty"] if spec.penalised else None
    gradients = local.gradients(seen, credits, spec.site, penalty, spec.penalty_reduction)
    own_gradients, own_logs = _own_gradients(net, rule, params, state, seen, noise)
    correct = (seen.logits.argmax(-1) == y).to(x.dtype).mean()
    logs = {"loss": seen.losses.mean(), "train_acc": correct} | logs | own_logs
    # torch's fused optimisers take a gradient for as contiguous as its leaf.
    gradients = {name: gradient.contiguous() for name, gradient in gradients.items()}
    return StepOutput(gradients, own_gradients, logs, net.moved_buffers(params, seen.moments))


def _own_gradients(
    net: Network, rule: CreditRule, params: Leaves, state: Leaves, seen: Trace, noise: Leaves
) -> tuple[Leaves, Leaves]:
    learned = {name: leaf for name, leaf in state.items() if name.startswith(LEARNED)}
    if not learned:
        return {}, {}

    def loss(leaves: Leaves) -> tuple[Tensor, Leaves]:
        found = rule.own_loss(net, params, state | leaves, seen, noise)
        assert found is not None, "a rule with learned leaves must define own_loss"
        return found

    gradients, (value, logs) = grad_and_value(loss, has_aux=True)(learned)
    return gradients, {"own_loss": value, **logs}

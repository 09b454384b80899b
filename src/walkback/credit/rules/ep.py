"""Equilibrium propagation: the states relax under an energy that is nudged by the loss; credit is how they settle.

Citation: Scellier and Bengio, 2017; centred nudging: Laborieux and others, 2021
Feedback: the network's own weights, through the blocks' pullbacks in every sweep
State: none
Exact: no layer; every layer as beta goes to 0 and the relaxation settles
Cost: bp's forward pass and weight gradients; beside them `steps` forward passes and input pullbacks of both nudges

On the unchanged network, with all states free, each sample has the energy

    E = 1/2 sum_{l=0..L} |eps_l|^2 + beta loss(h_L),    eps_0 = h_0 - stem(x),  eps_{l+1} = h_{l+1} - h_l - f_l(h_l)

Its minimum without the loss is the forward pass. Both nudges start there, +beta and -beta, and
a_l = -(eps_l(+beta) - eps_l(-beta)) / (2 beta). At a settled minimum eps_l is the pullback of eps_{l+1} by the block's
own derivative, so a high cosine with the gradient is *by construction*: it shows that the relaxation works, not that
some other way of assigning credit was found. At initialisation, where the branches are small, the default sweeps come
close; in a trained network they do not settle, and the log's `ep_residual` and `ep_ratio` say how far off they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.func import vjp

from walkback.core.errors import InputError
from walkback.core.settings import require_above, require_at_least
from walkback.credit.losses import sample_losses
from walkback.credit.rule import CreditRule, Credits, Label, Logs, dynamic
from walkback.credit.trace import Trace, softmax_error
from walkback.nets.network import Leaves, Network, part

ASYMPTOTIC: Label = "asymptotic"
MOST_ZERO = 0.5
"""Share of samples with zero credit above which training stops."""
SLACK = 64
"""Roundings by which an energy may rise without counting as risen."""


@dataclass(frozen=True)
class EquilibriumPropagation(CreditRule):
    sites = ("output",)

    beta: float = dynamic(0.5)
    """Strength of the nudge; the bias is of order beta^2."""
    eta: float = dynamic(0.5)
    """Step size at the start; halved for a sample whenever its energy rises."""
    steps: int = 20
    """Sweeps over the states; their number is fixed."""
    sweep: Literal["top_down", "simultaneous"] = "top_down"
    """Whether a state sees the new states above it within a sweep, or all states move at once."""
    precision: Literal["float64", "network"] = "float64"
    """Of the relaxation: double, or the network's own. In float32 a grown stream swallows the displacements."""

    def __post_init__(self) -> None:
        if not isinstance(self.beta, Tensor):  # Inside a step it is one, and was checked before.
            require_above(self.beta, 0, "beta of ep")
            require_above(self.eta, 0, "eta of ep")
            if self.eta > 1:
                raise InputError(f"eta of ep is {self.eta}; expected at most 1, a full step.")
        require_at_least(self.steps, 1, "steps of ep")

    def refuses(self, net: Network) -> str | None:
        if net.in_training() is not net:
            return "in training its norms use the statistics of the batch, so the samples have no energies of their own"
        states = net.depth + 1
        if self.sweep == "simultaneous" and self.steps < states:
            return (
                f"credit sinks one state per simultaneous step, and steps={self.steps} does not reach all "
                f"{states} states; use steps={states} or more"
            )
        return None

    def labels(self, depth: int) -> tuple[Label, ...]:
        return (ASYMPTOTIC,) * (depth + 1)

    def credit(self, net: Network, params: Leaves, state: Leaves, trace: Trace, noise: Leaves) -> tuple[Credits, Logs]:
        dtype = torch.float64 if self.precision == "float64" else trace.top.dtype
        beta = torch.as_tensor(self.beta, dtype=dtype)
        energy = _Energy(net, params, trace, beta, dtype)
        errors, slopes = self._relax(energy)
        up, down = errors.chunk(2, dim=1)
        credits = tuple(((down - up) / (2 * beta)).to(trace.top.dtype))
        return credits, _logs(trace, credits, slopes / beta)

    def _relax(self, energy: _Energy) -> tuple[Tensor, Tensor]:
        """The errors eps_0..eps_L of both nudges after all sweeps, and the slopes that the last sweep still saw.

        A sweep that raised a sample's energy is undone and its step halved, for this sample alone.
        """
        kept = trial = energy.at_rest
        value = torch.full_like(energy.beta, torch.inf)
        eta = torch.as_tensor(self.eta, dtype=value.dtype).to(value).expand(value.shape)
        slopes = kept
        for _ in range(self.steps):
            at = energy.at(trial)
            rose = _rose(value, at.value)
            swept, slopes = self._sweep(at, eta)
            # Where the energy rose, this turn only goes back; the next one steps from there.
            back = _wide(rose, at.nudge)
            trial, kept = torch.where(back, kept, swept), torch.where(back, kept, trial)
            value, eta = torch.where(rose, value, at.value), torch.where(rose, eta / 2, eta)
        last = energy.at(trial)
        back = _wide(_rose(value, last.value), last.nudge)
        return energy.at(torch.where(back, kept, trial)).errors, slopes

    def _sweep(self, at: _Point, eta: Tensor) -> tuple[Tensor, Tensor]:
        """Every state's displacement after one sweep from this point, and the slopes it went down."""
        found = [at.errors[-1] + at.nudge]
        wide = _wide(eta, at.nudge)
        for layer in reversed(range(1, len(at.errors))):
            error = at.errors[layer] - wide * found[-1] if self.sweep == "top_down" else at.errors[layer]
            found.append(at.errors[layer - 1] - error - at.pullbacks[layer - 1](error))
        slopes = torch.stack(found[::-1])
        return at.moves - wide * slopes, slopes

    def objection(self, logs: Mapping[str, float]) -> str | None:
        share = logs["ep_zero"]
        if share <= MOST_ZERO:
            return None
        cure = "precision=float64" if self.precision == "network" else "more steps or a smaller eta"
        return (
            f"the relaxation gave {share:.0%} of the samples exactly zero credit at some layer although their gradient "
            f"is not zero; try {cure}"
        )


class _Point(NamedTuple):
    """The energy and its parts at some displacement of the states; both nudges, so 2n samples."""

    moves: Tensor
    """[L + 1, 2n, ...]: all states of a network have one shape, and are kept as one tensor."""
    errors: Tensor
    """eps_0..eps_L."""
    value: Tensor
    """Each sample's energy [2n]."""
    nudge: Tensor
    """beta times the loss gradient in h_L."""
    pullbacks: list[Callable[[Tensor], Tensor]]


class _Energy:
    """The energy of each sample as a function of its states' displacements from the free phase.

    The first n samples are nudged by +beta, the last n by -beta: one batch, so that a sweep is one set of operations.
    """

    def __init__(self, net: Network, params: Leaves, trace: Trace, beta: Tensor, dtype: torch.dtype):
        def leaves(prefix: str) -> Leaves:
            return {name: leaf.to(dtype) for name, leaf in part(params, prefix).items()}

        self._net = net
        self._head = leaves("head")
        self._blocks = [leaves(f"blocks.{index}") for index in range(net.depth)]
        states = [state.to(dtype) for state in trace.states]
        # The states as the trace saw them are the free phase, so branches are taken anew in this precision.
        branches = [net.branch(block, h) for block, h in zip(self._blocks, states[:-1], strict=True)]
        self._states = torch.stack([_twice(h) for h in states])
        self._branches = torch.stack([_twice(f) for f in branches])
        self._target = _twice(trace.target.to(dtype))
        sign = torch.ones_like(trace.losses, dtype=dtype)
        self.beta = torch.cat([beta * sign, -beta * sign])

    @property
    def at_rest(self) -> Tensor:
        return torch.zeros_like(self._states)

    def at(self, moves: Tensor) -> _Point:
        states = self._states + moves
        branches, pullbacks = [], []
        for index, block in enumerate(self._blocks):
            branch, back = vjp(self._branch(block), states[index])[:2]
            branches.append(branch)
            pullbacks.append(_first(back))
        # As differences from the free phase: the states themselves would cancel to their rounding.
        errors = torch.cat([moves[:1], moves.diff(dim=0) - (torch.stack(branches) - self._branches)])
        logits, back = vjp(lambda h: self._net.head(self._head, h), states[-1])[:2]
        (slope,) = back(softmax_error(logits, self._target))
        value = self.beta * sample_losses(logits, self._target) + _squares(errors).sum(0) / 2
        return _Point(moves, errors, value, _wide(self.beta, slope) * slope, pullbacks)

    def _branch(self, block: Leaves) -> Callable[[Tensor], Tensor]:
        return lambda h: self._net.branch(block, h)


def _logs(trace: Trace, credits: Credits, slopes: Tensor) -> Logs:
    """How far from settled, and how much credit there is beside the gradient; means over the batch."""
    true = _length(trace.top)
    lengths = torch.stack([_length(credit) for credit in credits])
    slope = _squares(slopes).sum(0).sqrt()
    return {
        "ep_residual": (slope.mean() / true.mean()).to(true.dtype),
        "ep_ratio": lengths[-1].mean() / true.mean(),
        "ep_zero": ((lengths == 0).any(0) & (true > 0)).to(true.dtype).mean(),
    }


def _rose(before: Tensor, after: Tensor) -> Tensor:
    """Whether each sample's energy went up by more than rounding; not a number counts as up."""
    return ~(after <= before + SLACK * torch.finfo(after.dtype).eps * after.abs())


def _first(back: Callable[[Tensor], tuple[Tensor, ...]]) -> Callable[[Tensor], Tensor]:
    return lambda cotangent: back(cotangent)[0]


def _twice(x: Tensor) -> Tensor:
    return torch.cat([x, x])


def _squares(x: Tensor) -> Tensor:
    """Each sample's squared length at each layer, of values [L + 1, n, ...]."""
    return x.flatten(2).square().sum(-1)


def _length(x: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=-1)
    return length


def _wide(each: Tensor, like: Tensor) -> Tensor:
    """One number for each sample, shaped to go with its features at one layer, and so at all of them."""
    return each.reshape(-1, *(1,) * (like.ndim - 1))


RULE = EquilibriumPropagation

"""Equilibrium propagation: the states relax under an energy nudged by the loss; credit is the change of their errors.

Citation: Scellier and Bengio, 2017; centred nudging: Laborieux and others, 2021
Feedback: the network's own weights, through the blocks' pullbacks in every sweep
State: none
Exact: no layer; every layer as beta goes to 0 and the relaxation converges
Cost: bp's forward pass and weight gradients; plus `steps` forward passes and input pullbacks of both nudges

With the weights fixed and all states free, each sample has the energy

    E = 1/2 sum_{l=0..L} |eps_l|^2 + beta loss(h_L),    eps_0 = h_0 - stem(x),  eps_{l+1} = h_{l+1} - h_l - f_l(h_l)

Without the loss, its minimum is the forward pass. The relaxations with +beta and with -beta both start there, and
a_l = -(eps_l(+beta) - eps_l(-beta)) / (2 beta). At a minimum, eps_l is the pullback of eps_{l+1} by the block's own
derivative, so a high cosine with the gradient is *by construction*: it shows that the relaxation converged, not that
another form of credit assignment works. At initialisation, where the branches are small, the default sweeps come close;
in a trained network they do not converge, and `ep_residual` and `ep_ratio` in the log measure how far off they are.
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
MAX_ZERO_SHARE = 0.5
"""Share of samples with zero credit above which training stops."""
ROUNDING_SLACK = 64
"""Multiples of machine epsilon by which an energy may rise without counting as risen."""


@dataclass(frozen=True)
class EquilibriumPropagation(CreditRule):
    sites = ("output",)

    beta: float = dynamic(0.5)
    """Strength of the nudge; the bias is of order beta^2."""
    eta: float = dynamic(0.5)
    """Initial step size; halved for a sample whenever its energy rises."""
    steps: int = 20
    """Number of sweeps over the states; there is no early stopping."""
    sweep: Literal["top_down", "simultaneous"] = "top_down"
    """`top_down` uses the new states above within a sweep; `simultaneous` updates all states at once."""
    precision: Literal["float64", "network"] = "float64"
    """Precision of the relaxation: float64, or the network's own. In float32 the displacements are lost in the rounding
    of large states."""

    def __post_init__(self) -> None:
        if not isinstance(self.beta, Tensor):  # Inside a step it is a tensor, and was checked before.
            require_above(self.beta, 0, "beta of ep")
            require_above(self.eta, 0, "eta of ep")
            if self.eta > 1:
                raise InputError(f"eta of ep is {self.eta}; expected at most 1, a full step.")
        require_at_least(self.steps, 1, "steps of ep")

    def refuses(self, net: Network) -> str | None:
        if not net.has_one_shape:
            return "the hidden states change their shape from block to block, and it relaxes states of one shape"
        if net.in_training() is not net:
            return "in training it uses the statistics of the batch or dropout, so a sample has no energy of its own"
        states = net.depth + 1
        if self.sweep == "simultaneous" and self.steps < states:
            return (
                f"credit moves down one state per simultaneous step, and steps={self.steps} does not reach all "
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
        """The errors eps_0..eps_L of both nudges after all sweeps, and the energy's gradient in the last sweep.

        A sweep that raised a sample's energy is undone and the step size halved, for this sample only.
        """
        kept = trial = energy.zero_displacement
        value = torch.full_like(energy.beta, torch.inf)
        eta = torch.as_tensor(self.eta, dtype=value.dtype).to(value).expand(value.shape)
        slopes = kept
        for _ in range(self.steps):
            at = energy.evaluate(trial)
            rose = _rose(value, at.value)
            swept, slopes = self._sweep(at, eta)
            # Where the energy rose, this iteration only undoes the sweep; the next one continues from there.
            back = _per_sample(rose, at.nudge)
            trial, kept = torch.where(back, kept, swept), torch.where(back, kept, trial)
            value, eta = torch.where(rose, value, at.value), torch.where(rose, eta / 2, eta)
        last = energy.evaluate(trial)
        back = _per_sample(_rose(value, last.value), last.nudge)
        return energy.evaluate(torch.where(back, kept, trial)).errors, slopes

    def _sweep(self, at: _Point, eta: Tensor) -> tuple[Tensor, Tensor]:
        """The displacements after one gradient sweep from this point, and the gradient used."""
        found = [at.errors[-1] + at.nudge]
        step = _per_sample(eta, at.nudge)
        for layer in reversed(range(1, len(at.errors))):
            error = at.errors[layer] - step * found[-1] if self.sweep == "top_down" else at.errors[layer]
            found.append(at.errors[layer - 1] - error - at.pullbacks[layer - 1](error))
        slopes = torch.stack(found[::-1])
        return at.moves - step * slopes, slopes

    def objection(self, logs: Mapping[str, float]) -> str | None:
        share = logs["ep_zero"]
        if share <= MAX_ZERO_SHARE:
            return None
        remedy = "precision=float64" if self.precision == "network" else "more steps or a smaller eta"
        return (
            f"the relaxation gave {share:.0%} of the samples exactly zero credit at some layer although their gradient "
            f"is not zero; try {remedy}"
        )


class _Point(NamedTuple):
    """The energy and its parts at given displacements of the states; both nudges, so 2n samples."""

    moves: Tensor
    """Displacements [L + 1, 2n, ...]: all states have one shape and are stacked."""
    errors: Tensor
    """eps_0..eps_L."""
    value: Tensor
    """Each sample's energy [2n]."""
    nudge: Tensor
    """beta times the loss gradient in h_L."""
    pullbacks: list[Callable[[Tensor], Tensor]]


class _Energy:
    """The energy of each sample as a function of its states' displacements from the free phase.

    The first n samples are nudged by +beta, the last n by -beta, as one batch.
    """

    def __init__(self, net: Network, params: Leaves, trace: Trace, beta: Tensor, dtype: torch.dtype):
        def leaves(prefix: str) -> Leaves:
            return {name: leaf.to(dtype) for name, leaf in part(params, prefix).items()}

        self._net = net
        self._head = leaves("head")
        self._blocks = [leaves(f"blocks.{index}") for index in range(net.depth)]
        states = [state.to(dtype) for state in trace.states]
        # The trace's states are the free phase; the branches are recomputed in this precision.
        branches = [net.residual(index, block, states[index]) for index, block in enumerate(self._blocks)]
        self._states = torch.stack([_twice(h) for h in states])
        self._branches = torch.stack([_twice(f) for f in branches])
        self._target = _twice(trace.target.to(dtype))
        sign = torch.ones_like(trace.losses, dtype=dtype)
        self.beta = torch.cat([beta * sign, -beta * sign])

    @property
    def zero_displacement(self) -> Tensor:
        return torch.zeros_like(self._states)

    def evaluate(self, moves: Tensor) -> _Point:
        """The energy and its parts where the states are displaced by `moves`."""
        states = self._states + moves
        branches, pullbacks = [], []
        for index, block in enumerate(self._blocks):
            branch, back = vjp(self._branch(index, block), states[index])[:2]
            branches.append(branch)
            pullbacks.append(_one_input_pullback(back))
        # As differences from the free phase: differences of whole states would cancel to rounding errors.
        errors = torch.cat([moves[:1], moves.diff(dim=0) - (torch.stack(branches) - self._branches)])
        logits, back = vjp(lambda h: self._net.head(self._head, h), states[-1])[:2]
        (slope,) = back(softmax_error(logits, self._target))
        value = self.beta * sample_losses(logits, self._target) + _squares(errors).sum(0) / 2
        return _Point(moves, errors, value, _per_sample(self.beta, slope) * slope, pullbacks)

    def _branch(self, index: int, block: Leaves) -> Callable[[Tensor], Tensor]:
        return lambda h: self._net.residual(index, block, h)


def _logs(trace: Trace, credits: Credits, slopes: Tensor) -> Logs:
    """How far the relaxation is from convergence, and the size of the credit relative to the gradient; batch means."""
    true = _length(trace.top)
    lengths = torch.stack([_length(credit) for credit in credits])
    slope = _squares(slopes).sum(0).sqrt()
    return {
        "ep_residual": (slope.mean() / true.mean()).to(true.dtype),
        "ep_ratio": lengths[-1].mean() / true.mean(),
        "ep_zero": ((lengths == 0).any(0) & (true > 0)).to(true.dtype).mean(),
    }


def _rose(before: Tensor, after: Tensor) -> Tensor:
    """Whether each sample's energy rose by more than rounding; NaN counts as risen."""
    return ~(after <= before + ROUNDING_SLACK * torch.finfo(after.dtype).eps * after.abs())


def _one_input_pullback(back: Callable[[Tensor], tuple[Tensor, ...]]) -> Callable[[Tensor], Tensor]:
    return lambda cotangent: back(cotangent)[0]


def _twice(x: Tensor) -> Tensor:
    """The samples once for each nudge."""
    return torch.cat([x, x])


def _squares(x: Tensor) -> Tensor:
    """Each sample's squared length at each layer, of values [L + 1, n, ...]."""
    return x.flatten(2).square().sum(-1)


def _length(x: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(x.flatten(1), dim=-1)
    return length


def _per_sample(each: Tensor, like: Tensor) -> Tensor:
    """Reshape one number per sample to broadcast with `like` [n, ...], and with the same shape stacked over layers."""
    return each.reshape(-1, *(1,) * (like.ndim - 1))


RULE = EquilibriumPropagation

"""The optimisers: torch's own, applied to named leaves, with a learning rate for each model of a stack."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

import torch
from torch import Tensor

from walkback.core.errors import InputError, unknown
from walkback.core.settings import Spec, build_settings, require_above, require_at_least
from walkback.nets.network import Leaves


@dataclass(frozen=True)
class Optimiser(ABC):
    """Base of the optimisers' settings; learning rate, schedule and weight decay are settings of the run."""

    counts_steps: ClassVar[bool] = True
    """Whether the update depends on the number of steps done (a bias correction)."""

    @property
    @abstractmethod
    def moments(self) -> Mapping[str, str]:
        """What it keeps of each leaf, all zero at the beginning: our names and torch's."""

    @abstractmethod
    def build(self, groups: list[dict[str, Any]], weight_decay: float, on_device: bool) -> torch.optim.Optimizer:
        """torch's optimiser for these parameter groups; `on_device` if their rates are tensors on the device."""


@dataclass(frozen=True)
class Adam(Optimiser):
    """Adam; the weight decay is added to the gradient (L2)."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        for name in ("beta1", "beta2"):
            _require_share(getattr(self, name), f"{name} of the optimizer")
        require_above(self.eps, 0, "eps of the optimizer")

    @property
    def moments(self) -> Mapping[str, str]:
        return {"first": "exp_avg", "second": "exp_avg_sq"}

    def build(self, groups: list[dict[str, Any]], weight_decay: float, on_device: bool) -> torch.optim.Optimizer:
        return torch.optim.Adam(groups, weight_decay=weight_decay, **self._shared(on_device))

    def _shared(self, on_device: bool) -> dict[str, Any]:
        return {"betas": (self.beta1, self.beta2), "eps": self.eps, "fused": True, "capturable": on_device}


@dataclass(frozen=True)
class AdamW(Adam):
    """AdamW; the weight decay is decoupled from the gradient."""

    def build(self, groups: list[dict[str, Any]], weight_decay: float, on_device: bool) -> torch.optim.Optimizer:
        return torch.optim.AdamW(groups, weight_decay=weight_decay, **self._shared(on_device))


@dataclass(frozen=True)
class Sgd(Optimiser):
    """Stochastic gradient descent; the weight decay is added to the gradient (L2)."""

    counts_steps = False

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        _require_share(self.momentum, "momentum of the optimizer 'sgd'")
        if self.nesterov and not self.momentum:
            raise InputError(
                "nesterov=true of the optimizer 'sgd' needs a momentum. Write sgd:momentum=0.9,nesterov=true."
            )

    @property
    def moments(self) -> Mapping[str, str]:
        # With a buffer of zeros torch's first step gives the gradient, as it does without a buffer.
        return {"momentum": "momentum_buffer"} if self.momentum else {}

    def build(self, groups: list[dict[str, Any]], weight_decay: float, on_device: bool) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            groups, momentum=self.momentum, nesterov=self.nesterov, weight_decay=weight_decay, fused=True
        )


OPTIMISERS: dict[str, type[Optimiser]] = {"adamw": AdamW, "adam": Adam, "sgd": Sgd}


def make_optimiser(spec: Spec) -> Optimiser:
    """The optimiser that a user wrote, such as `sgd:momentum=0.9,nesterov=true`."""
    if spec.name not in OPTIMISERS:
        raise unknown("optimizer", spec.name, OPTIMISERS)
    return build_settings(OPTIMISERS[spec.name], spec.settings, f"the optimizer '{spec.name}'")


def _require_share(value: float, what: str) -> None:
    require_at_least(value, 0, what)
    if value >= 1:
        raise InputError(f"{what} is {value}; expected less than 1.")


class LeafOptimiser:
    """torch's fused optimiser on named leaves, with its moments accessible by leaf name, so that a checkpoint can store
    them.

    The leaves are updated in place. They may have a model axis: the update is elementwise, so a stack of models is
    updated as each model alone would be. `rates` are numbers or 0-d tensors on the device that the caller sets. Where
    there are several, `rows` says for each row of a stack which of them it has; a leaf may have the first rows only.
    """

    def __init__(
        self,
        leaves: Leaves,
        weight_decay: float,
        rates: Sequence[float | Tensor] = (0.0,),
        rows: Sequence[int] = (),
        optimiser: Optimiser | None = None,
    ):
        kind = optimiser or AdamW()
        moments = {n: {key: torch.zeros_like(leaf) for key in kind.moments} for n, leaf in leaves.items()}
        self._moments = {f"{key}.{n}": values[key] for n, values in moments.items() for key in kind.moments}
        self._parts: list[tuple[str, slice | None, Tensor]] = []
        """By leaf, its rows that share a rate, as torch updates them together; None: all of the leaf."""
        groups: list[list[Tensor]] = [[] for _ in rates]
        states = []
        for name, leaf in leaves.items():
            for chosen, rate in _rows_by_rate(len(leaf), rows) if len(rates) > 1 else [(None, 0)]:
                part = leaf if chosen is None else leaf[chosen]
                state = {torchs: own if chosen is None else own[chosen] for own, torchs in _pairs(moments[name], kind)}
                if kind.counts_steps:
                    state["step"] = torch.zeros((), dtype=torch.float32, device=leaf.device)
                self._parts.append((name, chosen, part))
                groups[rate].append(part)
                states.append(state)
        own = [{"params": parts, "lr": rate} for parts, rate in zip(groups, rates, strict=True)]
        self._optimiser = kind.build(own, weight_decay, any(isinstance(rate, Tensor) for rate in rates))
        for (_, _, part), state in zip(self._parts, states, strict=True):
            self._optimiser.state[part] = state

    def update(self, gradients: Leaves, lr: float | None = None) -> None:
        """One step; with `lr` None the learning rates stay as they are (device tensors that the caller sets)."""
        for name, rows, part in self._parts:
            part.grad = gradients[name] if rows is None else gradients[name][rows]
        if lr is not None:
            for group in self._optimiser.param_groups:
                group["lr"] = lr
        self._optimiser.step()
        for _, _, part in self._parts:
            part.grad = None

    def moments(self) -> Leaves:
        """What the optimiser keeps of each leaf: `first.<leaf>` and `second.<leaf>`, or `momentum.<leaf>`."""
        return dict(self._moments)

    def set_count(self, steps: int) -> None:
        """Set the number of steps done, which a bias correction depends on."""
        for _, _, part in self._parts:
            if "step" in self._optimiser.state[part]:
                self._optimiser.state[part]["step"].fill_(steps)


def _pairs(moments: Leaves, kind: Optimiser) -> list[tuple[Tensor, str]]:
    """Each of a leaf's moments with torch's name for it."""
    return [(moments[key], torchs) for key, torchs in kind.moments.items()]


def _rows_by_rate(count: int, rows: Sequence[int]) -> list[tuple[slice, int]]:
    """The first `count` rows as slices whose rows have one rate, and that rate's index."""
    found, start = [], 0
    for rate, members in groupby(rows[:count]):
        end = start + len(list(members))
        found.append((slice(start, end), rate))
        start = end
    return found

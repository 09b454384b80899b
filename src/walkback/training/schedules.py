"""Learning-rate schedules: the factor of the learning rate at a step, as torch's own schedulers give it.

A schedule is written once for numbers (the single driver) and for a step counter on the device (the fleet).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from walkback.core.errors import InputError, unknown
from walkback.core.settings import Spec, build_settings, require_above, require_at_least

Count = TypeVar("Count", float, Tensor)
"""Steps done: a number, or a 0-d float64 tensor on the device."""


@dataclass(frozen=True)
class Schedule(ABC):
    """Base of the schedules; the fields are the settings."""

    @abstractmethod
    def factor(self, done: Count, total: int, epoch: int) -> Count:
        """The learning rate after `done` of `total` steps, as a share of the run's; `epoch` is an epoch's steps."""


@dataclass(frozen=True)
class CosineSchedule(Schedule):
    """From the learning rate down to almost zero along half a cosine, step by step."""

    def factor(self, done: Count, total: int, epoch: int) -> Count:
        return 0.5 * (1 + _cos(math.pi * done / total))


@dataclass(frozen=True)
class ConstantSchedule(Schedule):
    """The same learning rate at every step."""

    def factor(self, done: Count, total: int, epoch: int) -> Count:
        return 0 * done + 1


@dataclass(frozen=True)
class StepSchedule(Schedule):
    """Multiply the learning rate by `gamma` every `every` epochs, or after the epochs in `milestones`."""

    every: int | None = None
    milestones: str | None = None
    """Epochs joined by +, such as 80+120."""
    gamma: float = 0.1

    def __post_init__(self) -> None:
        require_above(self.gamma, 0, "gamma of the schedule 'step'")
        if (self.every is None) == (self.milestones is None):
            raise InputError(
                "The schedule 'step' needs epochs at which it changes: write step:every=30 or step:milestones=80+120."
            )
        if self.every is not None:
            require_at_least(self.every, 1, "every of the schedule 'step'")
        self._epochs()

    def _epochs(self) -> list[int]:
        texts = [] if self.milestones is None else self.milestones.split("+")
        if not all(text.isdecimal() and int(text) > 0 for text in texts):
            raise InputError(
                f"milestones of the schedule 'step' is '{self.milestones}'; expected epochs, such as 80+120."
            )
        return [int(text) for text in texts]

    def factor(self, done: Count, total: int, epoch: int) -> Count:
        if self.every is not None:
            return self.gamma ** (done // (self.every * epoch))  # type: ignore[no-any-return]
        found = 0 * done + 1
        for milestone in self._epochs():
            found = _where(done < milestone * epoch, found, self.gamma * found)
        return found


@dataclass(frozen=True)
class WarmupCosineSchedule(Schedule):
    """A linear rise over the first steps, then half a cosine over the others."""

    warmup: float = 0.05
    """The share of the run's steps in which the rate rises."""

    def __post_init__(self) -> None:
        require_at_least(self.warmup, 0, "warmup of the schedule 'warmup_cosine'")
        if self.warmup >= 1:
            raise InputError(
                f"warmup of the schedule 'warmup_cosine' is {self.warmup}; expected a share of the steps below 1."
            )

    def steps(self, total: int) -> int:
        """The number of steps in which the rate rises; at least one step is left for the cosine."""
        return min(round(self.warmup * total), total - 1)

    def factor(self, done: Count, total: int, epoch: int) -> Count:
        steps = self.steps(total)
        falling = 0.5 * (1 + _cos(math.pi * (done - steps) / (total - steps)))
        return _where(done < steps, (done + 1) / steps, falling) if steps else falling


SCHEDULES: dict[str, type[Schedule]] = {
    "cosine": CosineSchedule,
    "constant": ConstantSchedule,
    "step": StepSchedule,
    "warmup_cosine": WarmupCosineSchedule,
}


def make_schedule(spec: Spec) -> Schedule:
    """The schedule that a user wrote, such as `step:every=30,gamma=0.1`."""
    if spec.name not in SCHEDULES:
        raise unknown("schedule", spec.name, SCHEDULES)
    return build_settings(SCHEDULES[spec.name], spec.settings, f"the schedule '{spec.name}'")


def _cos(angle: Count) -> Count:
    return torch.cos(angle) if isinstance(angle, Tensor) else math.cos(angle)


def _where(condition: bool | Tensor, yes: Count, no: Count) -> Count:
    if isinstance(condition, Tensor):
        return torch.where(condition, yes, no)  # type: ignore[return-value]
    return yes if condition else no

"""Keep parameters of a frozen baseline at the same bits, whatever the training loop does to them.

torch's global optimiser hooks check the bits before every step and restore them after it, so weight decay and momentum
leave no trace. A parameter that moves in any other way is refused by its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from walkback.core.errors import InputError

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer types by size in bytes: two numbers are the same bits if they are equal as integers, NaN included."""


class FrozenParameters:
    """The parameters that a frozen baseline may not change, with a copy of each."""

    def __init__(self) -> None:
        self._modules: list[tuple[str, nn.Module, tuple[str, ...]]] = []
        self._kept: dict[str, Tensor] = {}
        self.steps = 0
        """Optimiser steps since `watch`."""

    @property
    def names(self) -> list[str]:
        return list(self._kept)

    def add(self, module: nn.Module, leave_out: tuple[str, ...] = ()) -> None:
        """Freeze the parameters of a module as they are now, without those whose name ends in one of `leave_out`."""
        prefix = f"{type(module).__name__}{len(self._modules)}" if self._modules else type(module).__name__
        self._modules.append((prefix, module, leave_out))
        self.keep()

    def keep(self) -> None:
        """Take the present bits as those to keep."""
        self._kept = {name: parameter.detach().clone() for name, parameter in self._current()}

    def contains(self, parameter: Tensor) -> bool:
        return any(each is parameter for _, each in self._current())

    def check(self, when: str) -> None:
        """Refuse parameters that are not the same bits as when they were frozen."""
        current = dict(self._current())
        for name, kept in self._kept.items():
            if name not in current or current[name].shape != kept.shape or current[name].dtype != kept.dtype:
                raise InputError(
                    f"The frozen parameter '{name}' was replaced {when}. Build the model before job.freeze, and keep "
                    "its parameters."
                )
        moved = self._moved()
        if moved:
            advice = (
                "Update parameters through a torch.optim.Optimizer, or skip those of which job.is_frozen(parameter) is "
                "true in your own update."
            )
            if not current[moved[0]].requires_grad:
                advice += (
                    " If it is feedback, which no forward pass reads, leave it out: job.freeze(..., "
                    f"leave_out=['{moved[0].rpartition('.')[2]}'])."
                )
            raise InputError(
                f"The frozen parameter '{moved[0]}' moved {when}, and not in a step of a torch.optim.Optimizer, so it "
                f"cannot be restored in time. {advice}"
            )

    def check_returned(self, model: nn.Module) -> None:
        """Refuse a returned model that does not have the frozen parameters."""
        own = list(model.parameters())
        identities = {id(parameter) for parameter in own}
        for name, parameter in self._current():
            if id(parameter) not in identities and not any(_same_bits(each, self._kept[name]) for each in own):
                raise InputError(
                    f"The frozen parameter '{name}' is not in the model that train returned. Freeze the modules of the "
                    "model that is trained and returned; rounding moves what is frozen in averaged weights, so leave "
                    "the parameters of which job.is_frozen(parameter) is true out of the average."
                )

    def watch(self) -> list[Any]:
        """Check before and restore after every optimiser step; returns the handles of torch's hooks."""
        return [
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]

    def _before_step(self, _optimizer: Optimizer, _args: Any, _named: Any) -> None:
        if not _is_capturing():  # The bits cannot be read while a graph is captured; the next check reads them.
            self.check("before an optimiser's step")

    def _after_step(self, optimizer: Optimizer, _args: Any, _named: Any) -> None:
        self.steps += 1
        if _is_capturing():
            return
        moved = self._moved()
        if moved and isinstance(optimizer, torch.optim.LBFGS):
            raise InputError(
                f"LBFGS moved the frozen parameter '{moved[0]}' and evaluated the loss there, within one step. Give it "
                "only the parameters of which job.is_frozen(parameter) is false."
            )
        current = dict(self._current())
        with torch.no_grad():
            for name in moved:
                current[name].copy_(self._kept[name])

    def _moved(self) -> list[str]:
        """The names of the parameters that have other bits now."""
        current = dict(self._current())
        different = {
            name: (_bits(current[name]) != _bits(kept).to(current[name].device)).any()
            for name, kept in self._kept.items()
        }
        # One transfer from the device tells whether anything moved; almost always nothing did.
        if not different or not torch.stack([each.to(_first(different).device) for each in different.values()]).any():
            return []
        return [name for name, each in different.items() if each]

    def _current(self) -> Iterable[tuple[str, Tensor]]:
        for prefix, module, leave_out in self._modules:
            for name, parameter in module.named_parameters():
                if name.rpartition(".")[2] not in leave_out:
                    yield f"{prefix}.{name}", parameter


def modules_of(given: Sequence[Any]) -> list[nn.Module]:
    """The modules that `job.freeze` got, one by one or in lists."""
    found: list[nn.Module] = []
    for each in given:
        if isinstance(each, nn.Module):
            found.append(each)
        elif isinstance(each, list | tuple):
            found += modules_of(each)
        else:
            raise InputError(f"job.freeze got a {type(each).__name__}; expected modules, such as model.blocks.")
    lazy = [name for module in found for name, each in module.named_parameters() if is_lazy(each)]
    if lazy:
        raise InputError(f"job.freeze got the lazy parameter '{lazy[0]}'. Run the model once before job.freeze.")
    if not any(True for module in found for _ in module.parameters()):
        raise InputError("job.freeze got no module with parameters; expected the blocks whose training is claimed.")
    return found


def names_left_out(modules: Sequence[nn.Module], given: Any) -> tuple[str, ...]:
    """The names that `job.freeze` got as `leave_out`; refused if they are not those of feedback."""
    names = (given,) if isinstance(given, str) else tuple(given)
    found = [(name.rpartition(".")[2], each) for module in modules for name, each in module.named_parameters()]
    for name in names:
        named = [each for own, each in found if own == name]
        if not named or any(each.requires_grad for each in named):
            what = "no frozen module has a parameter of that name" if not named else "it is trained (requires_grad)"
            raise InputError(f"job.freeze got leave_out={name!r}, but {what}. Leave out feedback weights only.")
    return names


def _first(tensors: dict[str, Tensor]) -> Tensor:
    return next(iter(tensors.values()))


def _bits(parameter: Tensor) -> Tensor:
    plain = parameter.detach()
    plain = torch.view_as_real(plain) if plain.is_complex() else plain
    return plain.contiguous().view(_INTEGERS[plain.element_size()])


def _same_bits(left: Tensor, right: Tensor) -> bool:
    same_kind = left.shape == right.shape and left.dtype == right.dtype
    return same_kind and torch.equal(_bits(left), _bits(right).to(left.device))


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()

"""Base of the Lightning and Hugging Face callbacks."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import nn

from walkback.core.errors import InputError, unknown
from walkback.watching.watch import Watch

FINISH_ACCURACIES = ("headline_acc", "frozen_baseline_acc", "bp_acc")


class CallbackBase:
    """Keeps the settings of a `Watch` and makes it when training starts; then it is the attribute `watch`.

    `accuracies` are those that the card is judged with at the end of training: a dict of the arguments of
    `Watch.finish`, or a function that returns it, called at the end. They can also be given later, by
    `callback.watch.finish(...)`.
    """

    def __init__(
        self,
        eval_batches: Iterable[Any],
        every: int | None = 100,
        *,
        accuracies: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
        **settings: Any,
    ):
        super().__init__()
        if not (accuracies is None or callable(accuracies) or isinstance(accuracies, Mapping)):
            raise InputError(
                f"accuracies is a {type(accuracies).__name__}; expected a dict such as {{'headline_acc': 0.61}}, or a "
                "function that returns one."
            )
        self._batches, self._settings = eval_batches, {**settings, "every": every}
        self._accuracies = accuracies if callable(accuracies) else _named(accuracies or {})
        self.watch: Watch | None = None

    def begin(self, model: nn.Module, step: int) -> None:
        self.watch = Watch(model, self._batches, start=step, **self._settings)

    def after_step(self, step: int, epoch: float | None) -> bool:
        """Pass a step to the watch; returns whether to stop. A repeated step (accumulated gradients) does nothing."""
        assert self.watch is not None
        return self.watch.step(step, epoch)

    def after_epoch(self, epoch: float | None) -> bool:
        """Measure at the end of an epoch if `every` is None; return whether to stop."""
        assert self.watch is not None
        if self.watch.every is None:
            self.watch.measure(epoch)
        return self.watch.should_stop

    def end(self) -> None:
        if self.watch is not None:
            self.watch.finish()  # First, so that the card exists whatever the accuracies are.
            given = self._accuracies() if callable(self._accuracies) else self._accuracies
            if given:
                self.watch.finish(**_named(given))


def _named(accuracies: Mapping[str, Any]) -> Mapping[str, Any]:
    """The accuracies; refused if one has another name than `Watch.finish` knows."""
    for name in accuracies:
        if name not in FINISH_ACCURACIES:
            raise unknown("accuracy", name, FINISH_ACCURACIES)
    return accuracies


def library_class(modules: Sequence[str], name: str, extra: str) -> type:
    """The class `name` of the first module that can be imported; `extra` is the extra of walkback that installs it."""
    for module in modules:
        try:
            found: type = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError:
            continue
        return found
    raise InputError(f"{extra} is not installed. Install it with pip install 'walkback[{extra}]'.")

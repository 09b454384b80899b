"""Base of the Lightning and Hugging Face callbacks."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from walkback.core.errors import InputError
from walkback.watching.watch import Watch


class CallbackBase:
    """Keeps the settings of a `Watch` and makes it when training starts; then it is the attribute `watch`."""

    def __init__(self, eval_batches: Iterable[Any], every: int | None = 100, **settings: Any):
        super().__init__()
        self._batches, self._settings = eval_batches, {**settings, "every": every}
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
            self.watch.finish()


def library_class(modules: Sequence[str], name: str, extra: str) -> type:
    """The class `name` of the first module that can be imported; `extra` is the extra of walkback that installs it."""
    for module in modules:
        try:
            found: type = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError:
            continue
        return found
    raise InputError(f"{extra} is not installed. Install it with pip install 'walkback[{extra}]'.")

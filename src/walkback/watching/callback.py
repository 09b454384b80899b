"""What the callbacks of other libraries share: the watch is made when training starts."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from walkback.core.errors import InputError
from walkback.watching.watch import Watch


class Holder:
    """Holds a watch's settings until there is a model to watch. `watch` is the watch, once training has started."""

    def __init__(self, eval_batches: Iterable[Any], every: int | None = 100, **settings: Any):
        super().__init__()
        self._batches, self._settings = eval_batches, {**settings, "every": every}
        self.watch: Watch | None = None

    def begin(self, model: nn.Module, step: int) -> None:
        self.watch = Watch(model, self._batches, start=step, **self._settings)

    def after_step(self, step: int, epoch: float | None) -> bool:
        """Whether to stop. Batches whose gradients are only accumulated come with the same step again."""
        assert self.watch is not None
        return self.watch.step(step, epoch)

    def after_epoch(self, epoch: float | None) -> bool:
        """Without a number of steps, the end of an epoch is the time to look."""
        assert self.watch is not None
        if self.watch.every is None:
            self.watch.look(epoch)
        return self.watch.should_stop

    def end(self) -> None:
        if self.watch is not None:
            self.watch.finish()


def base_of(modules: Sequence[str], name: str, extra: str) -> type:
    """The library's own class that a callback must be a kind of."""
    for module in modules:
        try:
            found: type = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError:
            continue
        return found
    raise InputError(f"{extra} is not installed. Install it with pip install 'walkback[{extra}]'.")

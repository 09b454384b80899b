"""A Lightning callback: `Trainer(callbacks=[WatchCallback(eval_batches, every=100, stop_on=["D2"])])`.

It takes what `Watch` takes; `module` names the part of the LightningModule that is the network ("net"), where its own
forward does not return logits. `every=None` looks at the end of each epoch. Stops by `trainer.should_stop`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from torch import nn

from walkback.core.errors import InputError
from walkback.watching.callback import Holder, base_of


class LightningHooks(Holder):
    """The hooks Lightning calls."""

    def __init__(self, eval_batches: Iterable[Any], every: int | None = 100, *, module: str = "", **settings: Any):
        super().__init__(eval_batches, every, **settings)
        self._module = module

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        try:
            part = pl_module.get_submodule(self._module)
        except AttributeError as error:
            raise InputError(f"module='{self._module}': {type(pl_module).__name__} has no such part.") from error
        self.begin(part, trainer.global_step)

    def on_train_batch_end(self, trainer: Any, pl_module: nn.Module, *_rest: Any) -> None:
        stop = self.after_step(trainer.global_step, trainer.current_epoch)
        trainer.should_stop = trainer.should_stop or stop

    def on_train_epoch_end(self, trainer: Any, pl_module: nn.Module) -> None:
        stop = self.after_epoch(trainer.current_epoch)
        trainer.should_stop = trainer.should_stop or stop

    def on_train_end(self, trainer: Any, pl_module: nn.Module) -> None:
        self.end()

    def on_exception(self, trainer: Any, pl_module: nn.Module, exception: BaseException) -> None:
        if self.watch is not None:
            self.watch.interrupt(type(exception).__name__)


@cache
def _callback() -> type:
    base = base_of(("lightning.pytorch.callbacks", "pytorch_lightning.callbacks"), "Callback", "lightning")
    return type("WatchCallback", (LightningHooks, base), {"__module__": __name__, "__doc__": __doc__})


def __getattr__(name: str) -> Any:
    """`WatchCallback` is made when it is asked for, so that importing this file needs no Lightning."""
    if name == "WatchCallback":
        return _callback()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

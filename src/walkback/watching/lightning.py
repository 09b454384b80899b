"""A Lightning callback: `Trainer(callbacks=[WatchCallback(eval_batches, every=100, stop_on=["D2"])])`.

Takes the arguments of `Watch`; `module` names the submodule of the LightningModule that is the network ("net"), if its
own forward does not return logits. `every=None` measures at the end of each epoch. Stops the training through
`trainer.should_stop`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from torch import nn

from walkback.core.errors import InputError
from walkback.watching.callback import CallbackBase, library_class


class LightningHooks(CallbackBase):
    """The hooks that Lightning calls."""

    def __init__(self, eval_batches: Iterable[Any], every: int | None = 100, *, module: str = "", **settings: Any):
        super().__init__(eval_batches, every, **settings)
        self._module = module

    def on_train_start(self, trainer: Any, pl_module: nn.Module) -> None:
        try:
            network = pl_module.get_submodule(self._module)
        except AttributeError as error:
            raise InputError(f"module='{self._module}': {type(pl_module).__name__} has no such submodule.") from error
        self.begin(network, trainer.global_step)

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
    base = library_class(("lightning.pytorch.callbacks", "pytorch_lightning.callbacks"), "Callback", "lightning")
    return type("WatchCallback", (LightningHooks, base), {"__module__": __name__, "__doc__": __doc__})


def __getattr__(name: str) -> Any:
    """`WatchCallback` is made on first access, so that importing this module needs no Lightning."""
    if name == "WatchCallback":
        return _callback()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

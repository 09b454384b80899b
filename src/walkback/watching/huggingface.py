"""A callback for Hugging Face's Trainer: `Trainer(..., callbacks=[WatchCallback(eval_batches, stop_on=["D2"])])`.

Takes the arguments of `Watch`; `eval_batches` are dicts of the model's inputs, with the labels under "labels". The loss
of a model whose logits are [samples, classes] is the cross-entropy of each sample; for any other model give `step_fn`.
`every=None` measures at the end of each epoch. Stops the training through `control.should_training_stop`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from walkback.watching.callback import CallbackBase, library_class


class TrainerHooks(CallbackBase):
    """The events that the Trainer calls."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begin(kwargs["model"], state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.after_step(state.global_step, state.epoch):
            control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.after_epoch(state.epoch):
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.end()


@cache
def _callback() -> type:
    base = library_class(("transformers.trainer_callback",), "TrainerCallback", "huggingface")
    return type("WatchCallback", (TrainerHooks, base), {"__module__": __name__, "__doc__": __doc__})


def __getattr__(name: str) -> Any:
    """`WatchCallback` is made on first access, so that importing this module needs no transformers."""
    if name == "WatchCallback":
        return _callback()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""A callback for Hugging Face's Trainer: `Trainer(..., callbacks=[WatchCallback(eval_batches, stop_on=["D2"])])`.

It takes what `Watch` takes; `eval_batches` are dicts as the model takes them, with the labels under "labels". A model
whose logits are [samples, classes] is measured by the cross-entropy of each sample; for any other give `step_fn`.
`every=None` looks at the end of each epoch. Stops by `control.should_training_stop`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from walkback.watching.callback import Holder, base_of


class TrainerHooks(Holder):
    """The events the Trainer tells of."""

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
    base = base_of(("transformers.trainer_callback",), "TrainerCallback", "huggingface")
    return type("WatchCallback", (TrainerHooks, base), {"__module__": __name__, "__doc__": __doc__})


def __getattr__(name: str) -> Any:
    """`WatchCallback` is made when it is asked for, so that importing this file needs no transformers."""
    if name == "WatchCallback":
        return _callback()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Call a model on one batch, and record the inputs and outputs of its blocks by hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from walkback.core.errors import InputError
from walkback.nets.tensor_trees import tensor_leaves

StepFn = Callable[[nn.Module, Any], Tensor]
"""Gives the losses of a batch: one for each sample, or one for each token [samples, tokens]."""


@dataclass
class Call:
    """One call of a block: its input state and its output."""

    block: str
    state: Tensor
    output: Tensor
    version: int
    """The state's version counter when the block was called; it changes if the state is modified in place."""
    numbers: tuple[int, int] = (-1, -1)
    """The numbers of state and output on the tape, if the pass was recorded."""


def version_of(tensor: Tensor) -> int:
    """How often a tensor was changed in place; not counted for tensors made in inference mode."""
    return 0 if tensor.is_inference() else tensor._version


@contextmanager
def record_calls(
    model: nn.Module, blocks: Sequence[str], number: Callable[[Tensor], int] = lambda tensor: -1
) -> Iterator[list[Call]]:
    """Record every call of the named blocks, in order; the hooks are removed on exit.

    `number` gives a tensor's number on the tape, where the pass is recorded on one.
    """
    calls: list[Call] = []
    pending: list[tuple[Tensor, int, int]] = []

    handles = []
    for name in blocks:

        def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str = name) -> None:
            state = first_tensor([*args, *kwargs.values()])
            if state is None:
                raise InputError(f"The block '{name}' is called without a tensor, so its state cannot be seen.")
            pending.append((state, version_of(state), number(state)))

        def leave(_module: nn.Module, _args: Any, output: Any, name: str = name) -> None:
            state, version, state_number = pending.pop()
            result = first_tensor(output)
            if result is None:
                raise InputError(f"The block '{name}' returns no tensor, so its output cannot be seen.")
            calls.append(Call(name, state, result, version, (state_number, number(result))))

        module = model.get_submodule(name)
        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(module.register_forward_hook(leave))
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def record_logits(model: nn.Module, number: Callable[[Tensor], int]) -> Iterator[list[tuple[Tensor, int]]]:
    """Record the logits that the model returns, if it does, with their numbers on the tape."""
    found: list[tuple[Tensor, int]] = []

    def leave(_module: nn.Module, _args: Any, output: Any) -> None:
        with suppress(InputError):
            logits = logits_of(output)
            found.append((logits, number(logits)))

    handle = model.register_forward_hook(leave)
    try:
        yield found
    finally:
        handle.remove()


def check_calls(calls: Sequence[Call], samples: int) -> None:
    """Refuse calls whose states cannot be measured; `samples` is the number of samples in the batch."""
    if not calls:
        raise InputError("None of the named blocks was called in the forward pass. Name others with blocks=.")
    for call in calls:
        for what, tensor in (("gets", call.state), ("returns", call.output)):
            if tensor.ndim < 2 or len(tensor) != samples:
                raise InputError(
                    f"The block '{call.block}' {what} a state of shape {tuple(tensor.shape)} for {samples} samples; "
                    "the first axis must be the samples (batch_first=True), the others one sample's features."
                )
        if version_of(call.state) != call.version:
            raise InputError(
                f"The block '{call.block}' changes its input in place, so the state it got cannot be measured. "
                "Write h = h + f(h) in place of h += f(h)."
            )


class ModelRunError(InputError):
    """The model cannot run on the batches, whatever its blocks are."""


def forward(model: nn.Module, x: Any, y: Tensor | None, step_fn: StepFn | None, **arguments: Any) -> Any:
    """The output of a model for one batch, or the losses that `step_fn` returns."""
    try:
        return _call(model, x, **arguments) if step_fn is None else _sample_means(step_fn(model, (x, y)))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
        shapes = ", ".join(str(tuple(leaf.shape)) for leaf in tensor_leaves(x))
        message = (str(error) or type(error).__name__).splitlines()[0]
        caller = type(model).__name__ if step_fn is None else "step_fn"
        raise ModelRunError(
            f"{caller} fails on a batch with inputs of shape {shapes}: {message}. Give batches that the model takes: "
            "one tensor, a tuple of positional or a dict of keyword arguments, of any number of samples."
        ) from error


def _sample_means(losses: Any) -> Any:
    """The losses of tokens [samples, tokens, ...] as their means for each sample; anything else as it is."""
    return losses.flatten(1).mean(1) if isinstance(losses, Tensor) and losses.ndim > 1 else losses


def _call(model: nn.Module, x: Any, **arguments: Any) -> Any:
    """Call a model on one batch: a dict by keyword, a tuple by position."""
    if isinstance(x, dict):
        return model(**x, **arguments)
    if isinstance(x, tuple | list):
        return model(*x, **arguments)
    return model(x, **arguments)


def logits_of(output: Any) -> Tensor:
    """The logits in a model's output: a tensor, `.logits`, ["logits"], or the first tensor of a tuple."""
    if isinstance(output, dict) and "logits" in output:
        output = output["logits"]
    elif hasattr(output, "logits"):
        output = output.logits
    found = first_tensor(output)
    if found is None:
        raise InputError(
            f"The model returns {type(output).__name__}, in which no logits were found. "
            "Give step_fn=(model, batch) -> per-sample loss."
        )
    return found


def first_tensor(value: Any) -> Tensor | None:
    """The first floating-point tensor in nested tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() else None
    parts: Sequence[Any] = ()
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, tuple | list):
        parts = value
    return next((found for part in parts if (found := first_tensor(part)) is not None), None)


def with_first_tensor(value: Any, new: Tensor) -> tuple[Any, bool]:
    """The same nested structure with its first floating-point tensor replaced, and whether there was one."""
    if isinstance(value, Tensor):
        return (new, True) if value.is_floating_point() else (value, False)
    if not isinstance(value, dict | tuple | list):
        return value, False
    done, parts = False, []
    for part in value.values() if isinstance(value, dict) else value:
        found, now = (part, False) if done else with_first_tensor(part, new)
        parts.append(found)
        done = done or now
    if isinstance(value, dict):
        made: Any = type(value)(zip(value, parts, strict=True))
    else:
        made = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return made, done

"""Any nn.Module as a subject: hooks record its blocks' inputs and outputs during one ordinary forward pass.

The state h_l is the input of block l. A block returns either the next state or the residual branch that is added to
its input (`discovery.py` finds out which). The gradient in h_l is the total derivative of the loss with respect to that
tensor, computed by autograd, so nothing else about the model has to be known.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from walkback.core.errors import InputError
from walkback.measure.inputs import cast, tensor_leaves
from walkback.measure.subject import FrozenPass, Subject, finish_pass

StepFn = Callable[[nn.Module, Any], Tensor]
CaptureKind = Literal["state", "branch"]


@dataclass
class Call:
    """One call of a block: its input state and its output."""

    block: str
    state: Tensor
    output: Tensor
    version: int
    """The state's version counter when the block was called; it changes if the state is modified in place."""


class ModuleSubject(Subject):
    """A model with the names of its blocks and what they return; `step_fn` replaces its cross-entropy loss."""

    def __init__(
        self,
        model: nn.Module,
        blocks: Sequence[str],
        kind: CaptureKind,
        step_fn: StepFn | None = None,
        found: Sequence[str] = (),
        skipped: Sequence[str] = (),
    ):
        first = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
        self.dtype, self.device = first.dtype, first.device
        self.found, self.skipped = tuple(found), tuple(skipped)
        self._model, self._blocks, self._kind, self._step_fn = model, tuple(blocks), kind, step_fn

    def run(self, x: Any, y: Tensor | None) -> FrozenPass:
        inputs = cast(x, self.dtype, self.device)
        labels = None if y is None else y.to(self.device)
        with torch.enable_grad(), record_calls(self._model, self._blocks) as calls:
            output = forward(self._model, inputs, labels, self._step_fn)
        check_calls(calls, len(tensor_leaves(inputs)[0]))
        tensors = [call.state for call in calls] + [calls[-1].output]
        # h_L may not exist as a tensor of its own. If a branch is added to h_{L-1}, the branch has the same gradient.
        top = calls[-1].output.detach()
        values = [call.state.detach() for call in calls]
        values.append(values[-1] + top if self._kind == "branch" else top)
        if self._step_fn is not None:
            return self._finish_step(inputs, labels, tensors, values, output)
        if labels is None:
            raise InputError("Evaluation batches need labels: (x, y) pairs. Without labels, give step_fn.")
        if labels.ndim != 1:
            raise InputError(f"Labels have shape {tuple(labels.shape)}; expected one whole number for each sample.")
        classified = finish_pass(inputs, labels, tensors, logits_of(output))
        return replace(classified, states=tuple(values))

    def _finish_step(
        self, x: Any, y: Tensor | None, tensors: Sequence[Tensor], values: Sequence[Tensor], losses: Any
    ) -> FrozenPass:
        count = len(values[0])
        if not isinstance(losses, Tensor) or losses.shape != (count,):
            got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
            raise InputError(f"step_fn returned {got}; expected a tensor with one loss for each of {count} samples.")
        reference = torch.autograd.grad(losses.sum(), list(tensors))
        return FrozenPass(x, y, tuple(values), tuple(reference), losses.detach(), None, None)

    def double(self) -> ModuleSubject:
        model64 = copy.deepcopy(self._model).double()
        return ModuleSubject(model64, self._blocks, self._kind, self._step_fn, self.found, self.skipped)


@contextmanager
def record_calls(model: nn.Module, blocks: Sequence[str]) -> Iterator[list[Call]]:
    """Record every call of the named blocks, in order; the hooks are removed on exit."""
    calls: list[Call] = []
    pending: list[tuple[Tensor, int]] = []
    handles = []
    for name in blocks:

        def enter(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], name: str = name) -> None:
            state = first_tensor([*args, *kwargs.values()])
            if state is None:
                raise InputError(f"The block '{name}' is called without a tensor, so its state cannot be seen.")
            pending.append((state, state._version))

        def leave(_module: nn.Module, _args: Any, output: Any, name: str = name) -> None:
            state, version = pending.pop()
            result = first_tensor(output)
            if result is None:
                raise InputError(f"The block '{name}' returns no tensor, so its output cannot be seen.")
            calls.append(Call(name, state, result, version))

        module = model.get_submodule(name)
        handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(module.register_forward_hook(leave))
    try:
        yield calls
    finally:
        for handle in handles:
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
        if call.state._version != call.version:
            raise InputError(
                f"The block '{call.block}' changes its input in place, so the state it got cannot be measured. "
                "Write h = h + f(h) in place of h += f(h)."
            )
        if not call.output.requires_grad:
            raise InputError(
                f"The output of the block '{call.block}' carries no gradient: the model detaches it or runs it under "
                "no_grad. Measure the model without that."
            )


class ModelRunError(InputError):
    """The model cannot run on the batches, whatever its blocks are."""


def forward(model: nn.Module, x: Any, y: Tensor | None, step_fn: StepFn | None, **arguments: Any) -> Any:
    """The output of a model for one batch, or the losses that `step_fn` returns."""
    try:
        return _call(model, x, **arguments) if step_fn is None else step_fn(model, (x, y))
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

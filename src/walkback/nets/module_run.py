"""Run the parts of a module (stem, blocks, head) as pure functions of their parameters.

The stem runs until the first block is called and ends there. A block is called by itself, with the arguments that it
gets besides the state. For the head the module is called on zeros, with blocks that compute nothing, and the last of
them hands over h_L.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from walkback.core.errors import InputError
from walkback.nets.block_calls import first_tensor, logits_of, with_first_tensor
from walkback.nets.find_blocks import CaptureKind
from walkback.nets.module_operations import Operations
from walkback.nets.network import Leaves
from walkback.nets.tensor_trees import map_tensors

OnBlock = Callable[[int, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""Called in place of a block, with its number, its own forward function and its arguments."""


class _StemIsDone(BaseException):
    """Ends the forward pass at the first block."""

    def __init__(self, state: Tensor):
        self.state = state


@dataclass
class BlockCall:
    """How a module calls a block: its arguments and what it returned."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any


class ModuleRun:
    """A module in one mode, with its blocks under control."""

    def __init__(self, module: nn.Module, blocks: Sequence[str], kind: CaptureKind, input_shape: tuple[int, ...]):
        self._module = module
        self._blocks = [module.get_submodule(name) for name in blocks]
        self.kind, self._input_shape = kind, input_shape
        self._on_block: OnBlock | None = None
        self.calls: list[BlockCall] = []
        """How each block was called in the pass that `record` ran."""
        self.head_rows: int | None = 1
        """Samples in the pass over zeros for the head; None for as many as h_L has."""
        self._prefixes = tuple(f"{name}." for name in blocks)
        self._constants: dict[tuple[torch.device, torch.dtype], list[Leaves]] = {}
        """The module's own parameters and buffers of each block, by name in the block, and last those outside."""
        self._extras: dict[tuple[int, torch.device, torch.dtype], tuple[tuple[Any, ...], dict[str, Any]]] = {}
        for each in module.modules():
            # It counts batches, for a cumulative average alone; inside a step nothing may be counted.
            if isinstance(each, nn.modules.batchnorm._BatchNorm):
                each.num_batches_tracked = None
        for index, block in enumerate(self._blocks):
            block.forward = partial(self._enter, index, block.forward)

    def _enter(self, index: int, forward: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return forward(*args, **kwargs) if self._on_block is None else self._on_block(index, forward, args, kwargs)

    @contextmanager
    def _blocks_run(self, on_block: OnBlock) -> Iterator[None]:
        before, self._on_block = self._on_block, on_block
        try:
            yield
        finally:
            self._on_block = before

    def is_inside(self, name: str) -> bool:
        """Whether a parameter of this name belongs to a block."""
        return name.startswith(self._prefixes)

    def record(self, leaves: Leaves, x: Tensor) -> Tensor:
        """One ordinary pass that remembers how the blocks are called; refused if they do not run once each, in
        order."""
        order: list[int] = []
        calls: dict[int, BlockCall] = {}

        def on_block(index: int, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            output = forward(*args, **kwargs)
            order.append(index)
            keep = partial(_constant, len(x))
            calls[index] = BlockCall(map_tensors(keep, args), map_tensors(keep, kwargs), output)
            return output

        with self._blocks_run(on_block):
            logits = logits_of(functional_call(self._module, leaves, (x,)))
        if order != [*range(len(self._blocks))]:
            raise InputError(
                f"the blocks run in the order {order}; each of the {len(self._blocks)} must run once, in turn"
            )
        self.calls = [calls[index] for index in order]
        return logits

    def whole(self, leaves: Leaves, x: Tensor, around_block: Callable[[int], None]) -> Tensor:
        """The logits of an ordinary pass; `around_block` is called before each block, and with -1 after the last."""

        def on_block(index: int, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            around_block(index)
            output = forward(*args, **kwargs)
            if index == len(self._blocks) - 1:
                around_block(-1)
            return output

        with self._blocks_run(on_block):
            return logits_of(functional_call(self._module, leaves, (x,)))

    def stem(self, leaves: Leaves, x: Tensor, operations: Operations) -> Tensor:
        """h_0; `leaves` are named as in the module."""

        def on_block(index: int, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            state = first_tensor([*args, *kwargs.values()])
            assert state is not None
            raise _StemIsDone(state)

        try:
            with self._blocks_run(on_block), operations:
                functional_call(self._module, {**self._constants_of(-1, x), **leaves}, (x,))
        except _StemIsDone as done:
            return done.state
        raise InputError("the module ended before its first block")

    def block(self, index: int, leaves: Leaves, h: Tensor, operations: Operations) -> Tensor:
        """What a block returns for the state h; `leaves` are named as in the block."""
        arguments, _ = with_first_tensor(self._extra_arguments(index, h), h)
        args, kwargs = arguments
        own = {**self._constants_of(index, h), **leaves}
        with operations:
            output = first_tensor(functional_call(self._blocks[index], own, tuple(args), kwargs))
        assert output is not None
        return output

    def head(self, leaves: Leaves, h: Tensor, operations: Operations) -> Tensor:
        """The logits of h_L; `leaves` are named as in the module."""
        rows = len(h) if self.head_rows is None else self.head_rows
        operations.is_idle = True

        def on_block(index: int, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            call = self.calls[index]
            if index < len(self._blocks) - 1:
                like = first_tensor(call.output)
                assert like is not None
                return with_first_tensor(call.output, h.new_zeros(rows, *like.shape[1:]))[0]
            operations.is_idle = False
            before = first_tensor([*args, *kwargs.values()])
            assert before is not None
            return with_first_tensor(call.output, h if self.kind == "state" else h - before)[0]

        with self._blocks_run(on_block), operations:
            zeros = h.new_zeros(rows, *self._input_shape)
            return logits_of(functional_call(self._module, {**self._constants_of(-1, h), **leaves}, (zeros,)))

    def _constants_of(self, part: int, like: Tensor) -> Leaves:
        """The module's own tensors of a block (or with -1 outside of the blocks): they stand in for those that a part
        does not use, and those that are constants."""
        key = (like.device, like.dtype)
        if key not in self._constants:

            def cast() -> None:
                found: list[Leaves] = [{} for _ in (*self._prefixes, "outside")]
                for name, tensor in (*self._module.named_parameters(), *self._module.named_buffers()):
                    block = next((i for i, prefix in enumerate(self._prefixes) if name.startswith(prefix)), -1)
                    inside = name.removeprefix(self._prefixes[block]) if block >= 0 else name
                    found[block][inside] = _as(tensor.detach(), *key)
                self._constants[key] = found

            _outside(cast)
        return self._constants[key][part]

    def _extra_arguments(self, index: int, h: Tensor) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A block's arguments as they were recorded, on the device and in the dtype of h."""
        key = (index, h.device, h.dtype)
        if key not in self._extras:
            call = self.calls[index]

            def cast() -> None:
                args, kwargs = (
                    map_tensors(lambda each: _as(each, *key[1:]), part) for part in (call.args, call.kwargs)
                )
                self._extras[key] = args, kwargs

            _outside(cast)
        return self._extras[key]


def _constant(samples: int, tensor: Tensor) -> Tensor:
    """A recorded argument; what is the same for every sample (an attention mask) is kept once."""
    same = tensor.ndim > 1 and len(tensor) == samples and bool((tensor == tensor[:1]).all())
    return tensor[:1].detach().clone() if same else tensor.detach().clone()


def _as(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)


def _outside(work: Callable[[], None]) -> None:
    """Call `work` outside of every transform and trace that may be running: these belong to a thread."""
    thread = Thread(target=work)
    thread.start()
    thread.join()


def in_mode(module: nn.Module, training: bool) -> nn.Module:
    """A copy of a module in training or evaluation mode, whose parameters need no gradients."""
    found = copy.deepcopy(module).train(training)
    for parameter in found.parameters():
        parameter.requires_grad_(False)
    return found

"""Find the blocks of any nn.Module, and whether they return the next state or the residual branch."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from walkback.core.errors import InputError
from walkback.nets.block_calls import Call, ModelRunError, StepFn, check_calls, forward, record_calls
from walkback.nets.tensor_trees import cast, tensor_leaves

Blocks = str | Sequence[str] | Sequence[nn.Module]
CaptureKind = Literal["state", "branch"]
"""What blocks return: the next state, or the residual branch that is added to their input."""


@dataclass(frozen=True)
class Candidate:
    """Modules that may be the network's blocks."""

    names: tuple[str, ...]
    what: str


@dataclass(frozen=True)
class FoundBlocks:
    """The blocks of a model."""

    names: tuple[str, ...]
    kind: CaptureKind
    what: str
    """Which blocks were found, as a sentence."""
    tried: tuple[str, ...]
    """What was tried before, and why it does not fit."""


def find_blocks(model: nn.Module, blocks: Blocks, x: Any, y: Tensor | None, step_fn: StepFn | None) -> FoundBlocks:
    """The blocks of an unwrapped model, found automatically or as named by `blocks`.

    `x`, `y` are a few samples for the forward pass that decides what the blocks return. If no blocks fit, the error
    lists what was tried.
    """
    candidates = _automatic(model) if blocks == "auto" else [_named(model, blocks)]
    tried: list[str] = []
    for candidate in candidates:
        try:
            inputs, calls = _record_calls(model, candidate, x, y, step_fn)
            needs_states = step_fn is None and (blocks == "auto" or len(calls) == 1)
            returned = _returned_states(model, inputs, len(calls)) if needs_states else None
            kind = _kind(calls, returned)
        except ModelRunError:
            raise
        except InputError as error:
            if blocks != "auto":
                raise
            tried.append(f"{candidate.what}: {str(error).rstrip('.')}")
            continue
        what = "the next state" if kind == "state" else "a residual branch"
        sentence = f"{len(calls)} blocks ({candidate.what}), each returning {what}"
        return FoundBlocks(candidate.names, kind, sentence, tuple(tried))
    listing = "; ".join(tried) if tried else "no container has two or more children of one type"
    raise InputError(
        f"The blocks of {type(model).__name__} were not found. Tried: {listing}. Name them, in order, with blocks=, "
        f"as the path of a ModuleList ('encoder.layers') or a list of modules or their names. {PLAIN_CHAIN}"
    )


PLAIN_CHAIN = (
    "In a plain chain of layers put each layer with its activation into one block, such as "
    "nn.Sequential(nn.Linear(64, 64), nn.Tanh())."
)
"""What to do with a network whose layers have no blocks."""


def unwrap(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """The plain module inside a compiled or data-parallel one, and notes on what was removed; refuses sharded ones."""
    notes: list[str] = []
    while True:
        kind = type(model).__name__
        if "FullyShardedDataParallel" in kind or kind.startswith("FSDP"):
            raise InputError(f"A {kind} model is sharded; its gradients are not whole. Gather it into a plain module.")
        inner = getattr(model, "_orig_mod", None)
        if inner is None and kind in ("DistributedDataParallel", "DataParallel"):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model, notes
        notes.append(f"{kind} unwrapped")
        model = inner


def _named(model: nn.Module, blocks: Blocks) -> Candidate:
    names = {module: name for name, module in model.named_modules()}
    if isinstance(blocks, str):
        try:
            children = list(model.get_submodule(blocks).children())
        except AttributeError as error:
            raise InputError(
                f"blocks='{blocks}': the model has no such module. It has: {_containers(model)}."
            ) from error
        return Candidate(tuple(names[child] for child in children), blocks)
    if not isinstance(blocks, Sequence):
        raise InputError(
            f"blocks is a {type(blocks).__name__}; expected the path of a ModuleList, or a list of modules."
        )
    chosen = []
    for block in blocks:
        if isinstance(block, nn.Module) and block in names:
            chosen.append(names[block])
        elif isinstance(block, str) and block in names.values():
            chosen.append(block)
        else:
            shown = f"'{block}'" if isinstance(block, str) else type(block).__name__
            raise InputError(f"blocks= names {shown}, which is not a module of the model.")
    if not chosen:
        raise InputError("blocks= is empty. Name the blocks in the order they are run.")
    return Candidate(tuple(chosen), f"{len(chosen)} named modules")


def _automatic(model: nn.Module) -> list[Candidate]:
    """Candidates: `model.blocks`, then consecutive children of one type, joined over containers, longest first."""
    found = []
    own = getattr(model, "blocks", None)
    if isinstance(own, nn.ModuleList | nn.Sequential) and len(own):
        names = {module: name for name, module in model.named_modules()}
        found.append(Candidate(tuple(names[block] for block in own), "blocks"))
    by_type: dict[type[nn.Module], list[str]] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            for kind, run in _same_type_runs(module):
                inside = any(name.startswith(block + ".") for block in by_type.get(kind, []))
                if len(run) > 1 and not inside:
                    by_type.setdefault(kind, []).extend(f"{name}.{child}" if name else child for child in run)
    for kind, members in sorted(by_type.items(), key=lambda item: -len(item[1])):
        if any(p.is_floating_point() for name in members for p in model.get_submodule(name).parameters()):
            found.append(Candidate(tuple(members), f"{len(members)} x {kind.__name__}"))
    return [
        candidate for index, candidate in enumerate(found) if candidate.names not in {f.names for f in found[:index]}
    ]


def _same_type_runs(container: nn.Module) -> list[tuple[type[nn.Module], list[str]]]:
    """The names of consecutive children of one type."""
    runs: list[tuple[type[nn.Module], list[str]]] = []
    for name, child in container.named_children():
        if runs and runs[-1][0] is type(child):
            runs[-1][1].append(name)
        else:
            runs.append((type(child), [name]))
    return runs


def _record_calls(
    model: nn.Module, candidate: Candidate, x: Any, y: Tensor | None, step_fn: StepFn | None
) -> tuple[Any, list[Call]]:
    first = next(p for p in model.parameters() if p.is_floating_point())
    inputs = cast(x, first.dtype, first.device)
    with torch.enable_grad(), record_calls(model, candidate.names) as calls:
        forward(model, inputs, None if y is None else y.to(first.device), step_fn)
    check_calls(calls, len(tensor_leaves(inputs)[0]))
    return inputs, calls


def _returned_states(model: nn.Module, inputs: Any, blocks: int) -> list[Tensor] | None:
    """h_0..h_L as returned by a model with the argument `return_hidden`; None if it has no such argument."""
    if "return_hidden" not in inspect.signature(model.forward).parameters:
        return None
    with torch.enable_grad():  # Some code behaves differently, or warns, where there are no gradients.
        output = forward(model, inputs, None, None, return_hidden=True)
    hiddens = output[1] if isinstance(output, tuple | list) and len(output) == 2 else None
    if not isinstance(hiddens, tuple | list) or not all(isinstance(hidden, Tensor) for hidden in hiddens):
        raise InputError(
            f"model(x, return_hidden=True) returns {_describe(output)}; expected (logits, [h_0, ..., h_L])"
        )
    if len(hiddens) != blocks + 1:
        raise InputError(
            f"model(x, return_hidden=True) returns {len(hiddens)} hidden states with {blocks} blocks; expected one "
            f"before each block and one after the last, {blocks + 1}"
        )
    return list(hiddens)


def _describe(output: Any) -> str:
    if isinstance(output, tuple | list):
        return f"({', '.join(map(_describe, output))})"
    return f"a tensor of shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__


def _kind(calls: Sequence[Call], returned: Sequence[Tensor] | None) -> CaptureKind:
    """Whether blocks return states or branches: compares each block's input and output with the next block's input.

    `returned` are the hidden states that the model itself returns; they give the state after the last block.
    """
    following = [call.state for call in calls[1:]]
    if returned is not None:
        for layer, (call, hidden) in enumerate(zip(calls, returned, strict=False)):
            if not _equal(call.state, hidden):
                raise InputError(
                    f"model(x, return_hidden=True) returns another h_{layer} than the one that block {layer} gets"
                )
        following.append(returned[-1])
    if not following:
        raise InputError(
            "with a single block it cannot be seen whether it returns the next state or a branch; name two or more, "
            "or let model(x, return_hidden=True) return (logits, [h_0, h_1])"
        )
    pairs = list(zip(calls, following, strict=False))
    as_state = all(_equal(call.output, state) for call, state in pairs)
    as_branch = all(
        call.state.shape == call.output.shape and _equal(call.state + call.output, state) for call, state in pairs
    )
    if not as_state and not as_branch:
        raise InputError(
            "a block's output is neither the next block's input nor what is added to its own input to give it. "
            f"{PLAIN_CHAIN}"
        )
    if as_state and as_branch:
        if not any(call.output.any() for call in calls):
            raise InputError("the blocks return zeros, so state and branch look alike")
        # Outputs so large that adding the inputs changes nothing: a next state is passed on as the same tensor.
        as_state = all(call.output is state for call, state in zip(calls, following[: len(calls) - 1], strict=False))
    return "state" if as_state else "branch"


def _equal(left: Tensor, right: Tensor) -> bool:
    """Whether two states are equal up to rounding."""
    left, right = left.detach(), right.detach()
    if left.shape != right.shape:
        return False
    size = float(torch.where(right.isfinite(), right.abs(), 0.0).max())
    return torch.allclose(left, right, rtol=1e-4, atol=1e-6 * size, equal_nan=True)


def _containers(model: nn.Module) -> str:
    names = [
        name for name, module in model.named_modules() if isinstance(module, nn.ModuleList | nn.Sequential) and name
    ]
    return ", ".join(names) if names else "no containers"

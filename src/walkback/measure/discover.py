"""Find a foreign model's blocks, and whether they return the next state or the residual branch."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from walkback.core.errors import InputError
from walkback.measure.foreign import Call, ForeignSubject, Kind, StepFn, call, check_calls, watched
from walkback.measure.inputs import cast

Blocks = str | Sequence[str] | Sequence[nn.Module]


@dataclass(frozen=True)
class Candidate:
    """Modules that may be the network's blocks."""

    names: tuple[str, ...]
    what: str


def subject_of(model: nn.Module, blocks: Blocks, x: Any, y: Tensor | None, step_fn: StepFn | None) -> ForeignSubject:
    """The model as a subject, its blocks found or as named; says what it took, or refuses with what was tried.

    `x`, `y` are a few samples for the one forward pass that decides.
    """
    model, notes = unwrap(model)
    candidates = _automatic(model) if blocks == "auto" else [_named(model, blocks)]
    tried = []
    for candidate in candidates:
        try:
            calls = _watch(model, candidate, x, y, step_fn)
            kind = _kind(model, calls)
        except InputError as error:
            if blocks != "auto":
                raise
            tried.append(f"{candidate.what}: {error}")
            continue
        words = "the next state" if kind == "state" else "a residual branch"
        found = [*notes, f"{len(calls)} blocks ({candidate.what}), each returning {words}"]
        return ForeignSubject(model, candidate.names, kind, step_fn, found, tried)
    listing = "; ".join(tried) if tried else "no container has two or more children of one type"
    raise InputError(
        f"The blocks of {type(model).__name__} were not found. Tried: {listing}. Name them, in order, with blocks=, "
        "as the path of a ModuleList ('encoder.layers') or a list of modules or their names."
    )


def unwrap(model: nn.Module) -> tuple[nn.Module, list[str]]:
    """The plain module inside a compiled or data-parallel one; sharded ones are refused."""
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
    """`blocks`, where the model has it; then runs of same-type children, joined over containers, longest first."""
    found = []
    own = getattr(model, "blocks", None)
    if isinstance(own, nn.ModuleList | nn.Sequential) and len(own):
        names = {module: name for name, module in model.named_modules()}
        found.append(Candidate(tuple(names[block] for block in own), "blocks"))
    by_type: dict[type[nn.Module], list[str]] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential):
            for kind, run in _runs(module):
                inside = any(name.startswith(block + ".") for block in by_type.get(kind, []))
                if len(run) > 1 and not inside:
                    by_type.setdefault(kind, []).extend(f"{name}.{child}" if name else child for child in run)
    for kind, members in sorted(by_type.items(), key=lambda item: -len(item[1])):
        if any(p.is_floating_point() for name in members for p in model.get_submodule(name).parameters()):
            found.append(Candidate(tuple(members), f"{len(members)} x {kind.__name__}"))
    return found


def _runs(container: nn.Module) -> list[tuple[type[nn.Module], list[str]]]:
    runs: list[tuple[type[nn.Module], list[str]]] = []
    for name, child in container.named_children():
        if runs and runs[-1][0] is type(child):
            runs[-1][1].append(name)
        else:
            runs.append((type(child), [name]))
    return runs


def _watch(model: nn.Module, candidate: Candidate, x: Any, y: Tensor | None, step_fn: StepFn | None) -> list[Call]:
    first = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
    inputs = cast(x, first.dtype, first.device)
    with torch.enable_grad(), watched(model, candidate.names) as calls:
        if step_fn is not None:
            step_fn(model, (inputs, None if y is None else y.to(first.device)))
        else:
            call(model, inputs)
    check_calls(calls)
    return calls


def _kind(model: nn.Module, calls: Sequence[Call]) -> Kind:
    """Decide by looking at each block's input, its output, and the next block's input."""
    if len(calls) == 1:
        if all(hasattr(model, name) for name in ("blocks", "out_head")) or hasattr(model, "norm"):
            return "branch"
        raise InputError("with a single block it cannot be seen whether it returns the next state or a branch")
    as_state = all(_equal(this.output, following.state) for this, following in itertools.pairwise(calls))
    as_branch = all(
        this.state.shape == this.output.shape and _equal(this.state + this.output, following.state)
        for this, following in itertools.pairwise(calls)
    )
    if as_state == as_branch:
        raise InputError(
            "a block's output is neither the next block's input nor what is added to its own input to give it"
            if not as_state
            else "the blocks return zeros or pass nothing on, so state and branch look alike"
        )
    return "state" if as_state else "branch"


def _equal(left: Tensor, right: Tensor) -> bool:
    left, right = left.detach(), right.detach()
    return left.shape == right.shape and torch.allclose(left, right, rtol=1e-4, atol=1e-6 * float(right.abs().max()))


def _containers(model: nn.Module) -> str:
    names = [
        name for name, module in model.named_modules() if isinstance(module, nn.ModuleList | nn.Sequential) and name
    ]
    return ", ".join(names) if names else "no containers"

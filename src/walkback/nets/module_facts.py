"""What has to be known of a module before it can be trained as a network: found by running its parts once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from walkback.core.errors import InputError
from walkback.core.random_streams import generator
from walkback.nets.block_calls import first_tensor
from walkback.nets.find_blocks import Blocks, CaptureKind, FoundBlocks, find_blocks
from walkback.nets.module_operations import OperationsScout
from walkback.nets.module_run import ModuleRun, in_mode
from walkback.nets.network import BlockLayer, Leaves, kind_of, named

TRIAL_SAMPLES = 5
"""Random samples that the module is run on; an odd number that is not the size of another axis by chance."""
TIED = 1e-9
"""Relative size of a gradient that is mere rounding."""
Build = Callable[[int], nn.Module]
"""Builds the module from a seed."""


@dataclass(frozen=True)
class ModuleFacts:
    """How a module is taken apart."""

    runs: Mapping[bool, ModuleRun]
    """The module in evaluation mode (False) and in training mode (True)."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of h_0..h_L of one sample."""
    kind: CaptureKind
    found: str
    """Which blocks were found, as a sentence."""
    names: Mapping[str, str]
    """By leaf, the name of the parameter or buffer in the module."""
    fixed: tuple[str, ...]
    """Leaves whose parameters do not require gradients."""
    momenta: Mapping[str, float]
    """The running statistics, each with the weight of a new batch in its average."""
    masks: Mapping[str, tuple[tuple[int, ...], float]]
    """Dropout masks: shape for one sample and share of zeros."""
    layers: tuple[BlockLayer, ...]
    layers_problem: str | None
    head_reads_cls: bool
    patch_leaves: tuple[str, ...]
    dtype: torch.dtype
    """The precision in which the module was run: float64, unless it cannot."""
    notes: tuple[str, ...] = ()
    alone: str = ""
    """Why its models cannot be trained as a fleet."""
    trains_differently: bool = field(default=True)
    """Whether training mode differs from evaluation mode."""

    def leaves_of(self, model: nn.Module) -> Leaves:
        """A module's parameters and running statistics as leaves."""
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        missing = [name for name in self.names.values() if name not in tensors]
        if missing:
            raise InputError(
                f"The module has no '{missing[0]}' when it is built again; it must be built alike each time."
            )
        return {
            leaf: tensors[name].detach().to("cpu", torch.float32).contiguous().clone()
            for leaf, name in self.names.items()
        }


def find_facts(build: Build, blocks: str, input_shape: tuple[int, ...], classes: int) -> ModuleFacts:
    """Take a module apart; refused if it cannot be."""
    first = build(0)
    _require_plain(first)
    first = first.cpu()
    wanted: Blocks = blocks.split("+") if "+" in blocks else blocks
    x = torch.randn(TRIAL_SAMPLES, *input_shape, generator=generator(0, "module samples"), dtype=torch.float64)
    model, dtype = _in_double(first, x)
    x = x.to(dtype)
    with torch.no_grad():
        found = find_blocks(in_mode(model, False), wanted, x, None, None)
    if len(set(found.names)) < len(found.names):
        raise InputError("a block is named twice; each must be another module")
    places = _places(model, found)
    _require_alike(first, build(1), found)
    runs = {flag: ModuleRun(in_mode(model, flag), found.names, found.kind, input_shape) for flag in (False, True)}
    tensors = _tensors(model)
    with torch.no_grad():
        logits = runs[False].record({name: each.detach().clone() for name, each in tensors.items()}, x)
    if logits.ndim != 2 or logits.shape != (TRIAL_SAMPLES, classes):
        raise InputError(
            f"it returns logits of shape {tuple(logits.shape)} for {TRIAL_SAMPLES} samples and {classes} classes; "
            f"expected [{TRIAL_SAMPLES}, {classes}]"
        )
    runs[True].calls = runs[False].calls
    shapes = _shapes(runs[False], found.kind)
    scouts, stem_grads, head_grads = _scout(runs[True], tensors, places, found.names, x)
    scouted = _Scouted(model, found, places, stem_grads, head_grads)
    momenta = {name: value for scout in scouts for name, value in scout.moments.items()}
    for name, value in momenta.items():
        if value is None or _is_cumulative(model, scouted.qualified(name)):
            raise InputError(
                f"the running statistics '{name}' are a cumulative average (momentum=None); give a momentum"
            )
    names = scouted.names() | {name: scouted.qualified(name) for name in momenta}
    parameters = dict(model.named_parameters())
    fixed = tuple(leaf for leaf, q in names.items() if q in parameters and not parameters[q].requires_grad)
    random = next((scout.random for scout in scouts if scout.random), "")
    if random:
        raise InputError(
            f"it draws random numbers in its forward pass by '{random}'; a step draws dropout masks of F.dropout and "
            "nn.Dropout outside of itself, and nothing else"
        )
    layers, problem = _layers(scouts[1:-1])
    unused = sorted(parameters.keys() - set(names.values()))
    return ModuleFacts(
        runs=runs,
        shapes=shapes,
        kind=found.kind,
        found=found.what,
        names=names,
        fixed=fixed,
        momenta={name: float(value) for name, value in momenta.items() if value is not None},
        masks={name: mask for scout in scouts for name, mask in scout.masks.items()},
        layers=layers,
        layers_problem=problem,
        head_reads_cls=_head_reads_cls(runs[False], tensors, shapes, dtype),
        patch_leaves=_patch_leaves(runs[False], tensors, names, x, shapes),
        dtype=dtype,
        notes=(f"not used and not trained: {', '.join(unused)}",) if unused else (),
    )


def _require_plain(model: nn.Module) -> None:
    tensors = [*model.named_parameters(), *model.named_buffers()]
    for name, tensor in tensors:
        if isinstance(tensor, nn.parameter.UninitializedParameter | nn.parameter.UninitializedBuffer):
            raise InputError(f"'{name}' of a lazy module has no shape yet; run the module once before it is returned")
        if tensor.is_meta:
            raise InputError(f"'{name}' is on the meta device and has no values")
    if not any(parameter.is_floating_point() for parameter in model.parameters()):
        raise InputError("it has no floating-point parameters")


def _in_double(model: nn.Module, x: Tensor) -> tuple[nn.Module, torch.dtype]:
    """The module in float64, or in float32 where it cannot run in float64."""
    try:
        double = in_mode(model, False).double()
        with torch.no_grad():
            double(x)
    except (RuntimeError, TypeError, NotImplementedError):
        return model.float(), torch.float32
    return model.double(), torch.float64


def _tensors(model: nn.Module) -> Leaves:
    """Parameters and floating-point buffers by name."""
    buffers = {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    return {**dict(model.named_parameters()), **buffers}


def _places(model: nn.Module, found: FoundBlocks) -> dict[str, int]:
    """For each parameter and buffer the block that holds it, or -1; refused if a block's is tied to another place."""

    def place(name: str) -> int:
        return next((i for i, block in enumerate(found.names) if name.startswith(f"{block}.")), -1)

    by_tensor: dict[int, str] = {}
    for name, tensor in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)):
        first = by_tensor.setdefault(id(tensor), name)
        if place(first) != place(name):
            raise InputError(
                f"the parameter '{name}' is tied to '{first}' in another part of the network: its two gradients come "
                "from different credits. Untie them"
            )
    return {name: place(name) for name in (*dict(model.named_parameters()), *dict(model.named_buffers()))}


def _require_alike(one: nn.Module, other: nn.Module, found: FoundBlocks) -> None:
    """Buffers that are no running statistics are constants: two seeds must give the same."""
    again = dict(other.named_buffers())
    for name, buffer in one.named_buffers():
        if name not in again or again[name].shape != buffer.shape:
            raise InputError(f"the buffer '{name}' is not the same when the module is built again")
        if not torch.equal(buffer.double().cpu(), again[name].double().cpu()):
            raise InputError(f"the buffer '{name}' is drawn at random; make it a parameter that requires no gradient")


def _shapes(run: ModuleRun, kind: CaptureKind) -> tuple[tuple[int, ...], ...]:
    states = [first_tensor([*call.args, *call.kwargs.values()]) for call in run.calls]
    last = first_tensor(run.calls[-1].output) if kind == "state" else states[-1]
    shapes = tuple(tuple(state.shape[1:]) for state in (*states, last) if state is not None)
    for layer, shape in enumerate(shapes):
        if not 1 <= len(shape) <= 3:
            raise InputError(
                f"h_{layer} has {len(shape)} axes beside the samples; expected (features), (tokens, features) or "
                "(channels, height, width)"
            )
    return shapes


def _scout(
    run: ModuleRun, tensors: Leaves, places: Mapping[str, int], blocks: Sequence[str], x: Tensor
) -> tuple[list[OperationsScout], Leaves, Leaves]:
    """Run stem, blocks and head in training mode; returns what each called, and the gradients of stem and head with
    respect to the parameters outside of the blocks, by name."""
    draws = generator(0, "module masks")
    leaves = {n: each.detach().clone().requires_grad_(isinstance(each, nn.Parameter)) for n, each in tensors.items()}
    outside = {name: each for name, each in leaves.items() if places[name] < 0}

    def scout(part: str, own: Leaves) -> OperationsScout:
        return OperationsScout(part, own, len(x), x.dtype, draws)

    scouts = [scout("stem", outside)]
    h = run.stem(outside, x, scouts[0])
    stem_grads = _gradients(h, outside)
    for index, block in enumerate(blocks):
        own = {n.removeprefix(f"{block}."): each for n, each in leaves.items() if places[n] == index}
        scouts.append(scout(f"blocks.{index}", own))
        before = h.detach()
        output = run.block(index, own, before, scouts[-1]).detach()
        h = before + output if run.kind == "branch" else output
    scouts.append(scout("head", outside))
    run.head_rows = None
    head_grads = _gradients(run.head(outside, h.detach(), scouts[-1]), outside)
    run.head_rows = 1
    for name, each in tensors.items():
        if not torch.equal(each.detach(), leaves[name].detach()):
            raise InputError(
                f"its forward pass changes the buffer '{name}' in training mode; only the running statistics of "
                "BatchNorm can be kept"
            )
    return scouts, stem_grads, head_grads


def _gradients(output: Tensor, leaves: Leaves) -> Leaves:
    """Gradients of a random sum of the output, of the leaves that it depends on."""
    leaves = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
    if not output.requires_grad or not leaves:
        return {}
    cotangent = torch.randn(output.shape, generator=generator(0, "module cotangent"), dtype=torch.float64).to(output)
    found = torch.autograd.grad(output, list(leaves.values()), cotangent, allow_unused=True)
    return {name: g for name, g in zip(leaves, found, strict=True) if g is not None}


class _Scouted:
    """Which part of the network each parameter belongs to."""

    def __init__(
        self, model: nn.Module, found: FoundBlocks, places: Mapping[str, int], stem_grads: Leaves, head_grads: Leaves
    ):
        self._blocks, self._places = found.names, places
        self._parameters = dict(model.named_parameters())
        self._stem = set(stem_grads)
        largest = max((float(g.abs().max()) for g in head_grads.values() if g.numel()), default=0.0)
        # The pass over zeros reaches the stem's parameters, too; what they get there cancels.
        used = {name for name, g in head_grads.items() if g.numel() and float(g.abs().max()) > TIED * largest}
        tied = sorted(used & self._stem & self._parameters.keys())
        if tied:
            raise InputError(
                f"the parameter '{tied[0]}' is used before the blocks and behind them (tied): its two gradients come "
                "from different credits. Untie the two"
            )
        self._head = set(head_grads) - self._stem

    def names(self) -> dict[str, str]:
        """By leaf, the parameter's name; parameters that no part uses are left out."""
        found = {}
        for name in self._parameters:
            place = self._places[name]
            if place >= 0:
                found[f"blocks.{place}.{name.removeprefix(f'{self._blocks[place]}.')}"] = name
            elif name in self._stem or name in self._head:
                found[f"{'stem' if name in self._stem else 'head'}.{name}"] = name
        return found

    def qualified(self, leaf: str) -> str:
        """The name in the module of a leaf."""
        part, _, rest = leaf.partition(".")
        if part != "blocks":
            return rest
        index, _, inside = rest.partition(".")
        return f"{self._blocks[int(index)]}.{inside}"


def _is_cumulative(model: nn.Module, buffer: str) -> bool:
    return getattr(model.get_submodule(buffer.rpartition(".")[0]), "momentum", 0.0) is None


def _layers(scouts: Sequence[OperationsScout]) -> tuple[tuple[BlockLayer, ...], str | None]:
    layers, problem = [], None
    for scout in scouts:
        index = int(scout.part.partition(".")[2])
        for name, (form, shape, groups) in scout.layers.items():
            key = f"{index}.{name.removesuffix('.weight')}"
            layers.append(BlockLayer(key, f"blocks.{index}.{name}", shape, form, groups))  # type: ignore[arg-type]
        for name, use in scout.problems.items():
            problem = problem or (
                f"its feedback goes through Linears and 2d convolutions, and in block {index} '{name}' is used by {use}"
            )
    if not layers:
        problem = problem or "its feedback goes through Linears and 2d convolutions, and the blocks have none"
    return tuple(layers), problem


def _plain(part: str) -> OperationsScout:
    return OperationsScout(part, {}, 0, torch.float64, generator(0, "module masks"))


def _outside_leaves(run: ModuleRun, tensors: Leaves) -> Leaves:
    return {name: each.detach().clone().requires_grad_() for name, each in tensors.items() if not run.is_inside(name)}


def _head_reads_cls(run: ModuleRun, tensors: Leaves, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> bool:
    """Whether the logits depend on the first of several tokens alone."""
    if kind_of(shapes[-1]) != "tokens" or shapes[-1][0] < 2:
        return False
    h = torch.randn(TRIAL_SAMPLES, *shapes[-1], generator=generator(0, "module states"), dtype=torch.float64).to(dtype)
    h.requires_grad_()
    run.head_rows = None
    logits = run.head(_outside_leaves(run, tensors), h, _plain("head"))
    run.head_rows = 1
    gradient = _gradients(logits, {"h": h}).get("h", torch.zeros_like(h))
    return not bool(gradient[:, 1:].any())


def _patch_leaves(
    run: ModuleRun, tensors: Leaves, names: Mapping[str, str], x: Tensor, shapes: Sequence[tuple[int, ...]]
) -> tuple[str, ...]:
    """The stem's leaves that do not reach the first token."""
    if kind_of(shapes[0]) != "tokens" or shapes[0][0] < 2:
        return ()
    leaves = _outside_leaves(run, tensors)
    h = run.stem(leaves, x, _plain("stem"))
    found = _gradients(h[:, 0], leaves)
    reached = named({name: g for name, g in found.items() if g.any()}, "stem")
    return tuple(leaf for leaf in names if leaf.startswith("stem.") and leaf not in reached)

"""Refuse models that cannot be measured before meaningless numbers are computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from walkback.core.errors import InputError
from walkback.measure.inputs import pick
from walkback.measure.subject import FrozenPass, Subject

PROBE_SAMPLES = 4
"""Samples in the passes that test whether samples influence each other; half are kept, half are exchanged."""

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Both passes have the same shapes and so the same rounding; another sample's influence is far larger than this."""
HALF_TOLERANCE = 1e-2


def require_module(model: object) -> None:
    """Refuse what is not a module of Python code."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model is a {type(model).__name__}; expected a torch.nn.Module.")
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError(
            f"The model is a ScriptModule ({type(model).__name__}), whose blocks cannot be seen from Python. Give the "
            "model that it was made from."
        )
    if any(parameter.is_inference() for parameter in model.parameters()):
        raise InputError(
            "The model was made in inference mode, so nothing can be differentiated. Make it outside of it."
        )


def require_measurable(model: nn.Module) -> None:
    """Refuse a model without floating-point parameters, on several devices, or with weights that are not finite."""
    weights = [(name, weight) for name, weight in _weights(model) if weight.is_floating_point()]
    if not any(parameter.is_floating_point() for parameter in model.parameters()):
        kinds = sorted({str(weight.dtype).removeprefix("torch.") for _, weight in _weights(model)})
        dtypes = f"only {', '.join(kinds)}" if kinds else "none at all"
        raise InputError(
            f"{type(model).__name__} has no floating-point parameters ({dtypes}), so nothing can be differentiated. "
            "Measure the floating-point model that a quantised one was made from."
        )
    _, first = weights[0]
    for name, weight in weights:
        if weight.device != first.device:
            raise InputError(
                f"The model is on several devices: '{weights[0][0]}' on {first.device}, '{name}' on {weight.device}. "
                "Put all of it on one device with model.to(...)."
            )
    if first.is_meta:
        raise InputError("The model is on the meta device and has no weights. Load its weights first.")
    for name, weight in weights:
        # Buffers may hold infinities on purpose: masks do.
        bad = int((~weight.isfinite() if isinstance(weight, nn.Parameter) else weight.isnan()).sum())
        if bad:
            raise InputError(
                f"The weight '{name}' holds NaN or infinity in {bad} of {weight.numel()} places: the model diverged "
                "or was loaded wrongly. Measure an earlier checkpoint."
            )


def require_independent_samples(subject: Subject, x: Any, y: Tensor | None) -> None:
    """Refuse a model whose samples influence each other: exchanging some samples must not change the others.

    Otherwise one sample's loss depends on the other samples' states, and per-sample gradients are not defined.
    """
    kept = PROBE_SAMPLES // 2
    rows = torch.arange(PROBE_SAMPLES)
    exchanged = torch.cat([rows[:kept], rows[kept:] + PROBE_SAMPLES - kept])
    first, second = (subject.run(pick(x, indices), pick(y, indices)) for indices in (rows, exchanged))
    place = _differs(first, second, kept)
    if place is None:
        return
    if _differs(first, subject.run(pick(x, rows), pick(y, rows)), kept) is not None:
        raise InputError(
            f"The model is random in evaluation mode: two passes over the same samples differ at {place}. "
            "Switch its noise off (a dropout that ignores model.eval(), for instance)."
        )
    raise InputError(
        f"The samples of a batch influence each other: a sample's {place} changes when other samples of its batch are "
        "exchanged. Per-sample gradients are not defined there. Attention must run over tokens, not over samples "
        "(batch_first=True, inputs [samples, tokens, features]), and BatchNorm must use running statistics "
        "(track_running_stats=True)."
    )


def _weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _differs(left: FrozenPass, right: FrozenPass, count: int) -> str | None:
    """The name of what differs in the first `count` samples of two passes; None if nothing does."""
    named = [(f"h_{layer}", *states) for layer, states in enumerate(zip(left.states, right.states, strict=True))]
    if left.logits is not None and right.logits is not None:
        named.append(("output", left.logits, right.logits))
    named.append(("loss", left.losses, right.losses))
    for name, one, other in named:
        if one.shape[1:] != other.shape[1:]:
            return name
        if _gap(one[:count], other[:count]) > TOLERANCE.get(one.dtype, HALF_TOLERANCE):
            return name
    return None


def _gap(left: Tensor, right: Tensor) -> float:
    """The largest difference relative to the largest value; values that are not finite are left out."""
    left, right = left.detach().double(), right.detach().double()
    known = left.isfinite() & right.isfinite()
    size = torch.where(known, right.abs(), 0.0).amax()
    return float(torch.where(known, (left - right).abs(), 0.0).amax() / size) if size > 0 else 0.0

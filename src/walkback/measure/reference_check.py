"""Check the reference gradient by finite differences of the loss, at every layer.

The loss of the model itself is computed again with h_l moved along the gradient and along a random direction. If the
slopes are not the inner products with the gradient, the reference is not the derivative of what the model computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from walkback.core.measurements import Array
from walkback.core.random_streams import generator
from walkback.measure.vectors import norms

CHECKED_SAMPLES = 64
STEP_SIZES = (1e-4, 1e-6)
"""Step sizes relative to |h_l|; the second is tried where the first may be too large, and the better one counts."""
ACCURATE = 1e-5
"""Median error under which no other step size is tried."""
COPIES = 4
"""Copies of each sample in one forward pass: forward and backward along two directions."""
_ROUNDING = 1e-14
"""Relative rounding error of a loss in float64, with the cancellation inside of a deep network."""

LossesAt = Callable[[int, Tensor], Tensor | None]
"""Gives each sample's loss with a tensor added to h_layer; None if the model did not compute h_layer again."""


def check_reference(losses_at: LossesAt, states: Sequence[Tensor], reference: Sequence[Tensor]) -> dict[str, Array]:
    """Errors of the reference for each layer and sample, as arrays named in `core.measurements.AXES`.

    `losses_at` runs the samples `COPIES` times over, copies one after the other; `states` and `reference` are those of
    the samples, once each, in float64.
    """
    found = [_check_layer(losses_at, layer, h, g) for layer, (h, g) in enumerate(zip(states, reference, strict=True))]
    names = ("reference_error", "reference_floor", "reference_slope", "reference_inner")
    return {name: np.stack([parts[index] for parts in found]) for index, name in enumerate(names)}


def _check_layer(losses_at: LossesAt, layer: int, h: Tensor, g: Tensor) -> list[Array]:
    rows, size = g.flatten(1), norms(g.flatten(1))
    noise = torch.randn(rows.shape, generator=generator(0, "reference check", layer), dtype=rows.dtype).to(rows)
    noise = noise / noise.norm(dim=1, keepdim=True)
    # Where there is no gradient, a second random direction shows whether there is a slope.
    along = torch.where(size[:, None] > 0, rows / size[:, None], noise.roll(1, dims=0))
    directions = torch.stack([along, noise])
    lengths = norms(h.flatten(1))
    lengths = torch.where((lengths > 0) & lengths.isfinite(), lengths, 1.0)
    best: list[Tensor] = []
    for relative in STEP_SIZES:
        step = relative * lengths
        moved = directions * step[:, None]
        addend = torch.cat([moved[0], -moved[0], moved[1], -moved[1]]).reshape(-1, *h.shape[1:])
        losses = losses_at(layer, addend)
        if losses is None:
            best = best or [torch.full_like(size, torch.nan) for _ in range(4)]
            break
        parts = losses.double().reshape(2, 2, -1)
        slopes = (parts[:, 0] - parts[:, 1]) / (2 * step)
        inners = (directions * rows).sum(-1)
        difference = (slopes - inners).abs().amax(0)
        scale = torch.where(size > 0, size, slopes.abs().amax(0))
        error = torch.where(difference == 0, 0.0, difference / scale)
        floor = torch.where(scale > 0, _ROUNDING * parts.abs().amax((0, 1)) / (step * scale), 0.0)
        if not best or error.nanmedian() < best[0].nanmedian():
            best = [error, floor, slopes[0], inners[0]]
        if best[0].nanmedian() <= ACCURATE:
            break
    return [part.cpu().numpy() for part in best]

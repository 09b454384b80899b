"""Credits whose alignment is known by construction, as functions of a frozen pass."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from walkback.core.random_streams import generator
from walkback.measure.subject import FrozenPass

CreditOf = Callable[[FrozenPass], list[Tensor]]


def gradient_at_cosine(cosine: float, seed: int) -> CreditOf:
    """The gradient turned by noise, for each sample and state, to exactly this cosine."""

    def credit(seen: FrozenPass) -> list[Tensor]:
        return [_turned(g, _noise(g, seed, layer), cosine) for layer, g in enumerate(seen.reference)]

    return credit


def noise_at(layers: set[int], cosine: float, seed: int) -> CreditOf:
    """Noise at these states; at the others the gradient turned to this cosine."""
    elsewhere = gradient_at_cosine(cosine, seed)

    def credit(seen: FrozenPass) -> list[Tensor]:
        return [
            _turned(g, _noise(g, seed, layer), 0.0) if layer in layers else turned
            for layer, (g, turned) in enumerate(zip(seen.reference, elsewhere(seen), strict=True))
        ]

    return credit


def against_gradient(seen: FrozenPass) -> list[Tensor]:
    """The gradient with the wrong sign."""
    return [-g for g in seen.reference]


def of_another_sample(seen: FrozenPass) -> list[Tensor]:
    """The gradient of the sample before."""
    return [g.roll(1, dims=0) for g in seen.reference]


def projected_error(draws: Generator) -> CreditOf:
    """The output error, projected to every state by matrices drawn once: independent of the weights."""
    seed = int(torch.randint(2**62, (), generator=draws))

    def credit(seen: FrozenPass) -> list[Tensor]:
        assert seen.error is not None
        matrices = generator(seed, "projections")
        shapes = [(seen.error.shape[1], state.shape[1]) for state in seen.states]
        return [seen.error @ torch.randn(shape, generator=matrices).to(seen.error.dtype) for shape in shapes]

    return credit


def _noise(g: Tensor, seed: int, layer: int) -> Tensor:
    """The same for a pass and for its replay in float64."""
    return torch.randn(g.shape, generator=generator(seed, "credit noise", layer)).to(g.dtype)


def _turned(g: Tensor, noise: Tensor, cosine: float) -> Tensor:
    """A vector of the gradient's length at this cosine to it, towards `noise`."""
    length = g.norm(dim=1, keepdim=True)
    unit = g / length
    across = noise - (noise * unit).sum(1, keepdim=True) * unit
    turned: Tensor = length * (cosine * unit + (1 - cosine**2) ** 0.5 * across / across.norm(dim=1, keepdim=True))
    return turned

"""Alignment of the parameter gradients that a method hands to its optimiser with those of the mean loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from walkback.core.random_streams import generator
from walkback.measure.vectors import NullSpace, by_position, cosines
from walkback.nets.network import Leaves

NULL_DRAWS = 20
STEM, HEAD = "stem", "head"
NetworkPart = int | str
"""A block's number, `stem` or `head`."""
Pull = Callable[[int, Tensor], Leaves]
"""The gradients of block l's parameters when a credit [n, ...] arrives at its output."""


@dataclass(frozen=True)
class Updates:
    """Parameter gradients of one group of samples, up to a common factor; without penalty and weight decay."""

    made: Leaves
    """What the method hands to its optimiser."""
    true: Leaves
    """The gradient of the mean loss of the same samples."""
    parts: Mapping[str, NetworkPart]
    """Which part of the network each parameter belongs to."""
    full: Leaves | None = None
    """The same as `made`, with the method's penalty."""
    pull: Pull | None = None


def part_cosine(left: Leaves, right: Leaves, names: Sequence[str]) -> Tensor:
    """Cosine of two gradients over the named parameters as one vector; NaN if one is zero, missing or not finite."""
    if not names or any(name not in left for name in names):
        return torch.tensor(torch.nan, dtype=torch.float64)
    a, b = (torch.cat([leaves[name].detach().double().flatten() for name in names]) for leaves in (left, right))
    return cosines(a, b)


def update_cosines(updates: Updates, blocks: int) -> dict[str, Tensor]:
    """The cosines of one group: per block, of the stem, per parameter."""
    by_part: dict[NetworkPart, list[str]] = {}
    for name, part in updates.parts.items():
        by_part.setdefault(part, []).append(name)

    def of(made: Leaves) -> Tensor:
        return torch.stack([part_cosine(made, updates.true, by_part.get(block, [])) for block in range(blocks)])

    found = {
        "update_cos": of(updates.made),
        "update_cos_stem": part_cosine(updates.made, updates.true, by_part.get(STEM, [])),
        "update_cos_leaf": torch.stack([part_cosine(updates.made, updates.true, [name]) for name in updates.parts]),
    }
    if updates.full is not None:
        found["update_cos_full"] = of(updates.full)
    return found


def null_cosines(updates: Updates, credits: Sequence[Sequence[Tensor]]) -> Tensor:
    """`update_cos` [block, draw] with other credits in place of the method's; `credits[draw][block]`."""
    assert updates.pull is not None
    names = {block: [n for n, part in updates.parts.items() if part == block] for block in range(len(credits[0]))}
    return torch.stack(
        [
            torch.stack([part_cosine(updates.pull(block, drawn[block]), updates.true, own) for drawn in credits])
            for block, own in names.items()
        ]
    )


def rotated(credits: Sequence[Tensor], space: NullSpace, draws: int = NULL_DRAWS) -> list[list[Tensor]]:
    """The credits under Haar-random rotations of their features, one rotation for each draw and block.

    A whole state that is large is not rotated as such: a rotation of n given vectors is a random orthonormal frame of
    their span, so the samples' coordinates in an orthonormal basis are put into one.
    """
    return [
        [_rotate(credit, space, generator(draw, "rotation null", block)) for block, credit in enumerate(credits)]
        for draw in range(draws)
    ]


def _rotate(credit: Tensor, space: NullSpace, drawn_from: torch.Generator) -> Tensor:
    positions = by_position(credit, space)
    vectors = positions.flatten(0, 1)
    count, features = vectors.shape
    basis, coordinates = (None, vectors) if features <= count else torch.linalg.qr(vectors.T)
    rank = features if basis is None else coordinates.shape[0]
    gaussian = torch.randn(features, rank, generator=drawn_from, dtype=torch.float64).to(vectors.device)
    frame, corner = torch.linalg.qr(gaussian)
    frame = frame * corner.diagonal().sign()  # Makes the frame Haar-distributed.
    turned: Tensor = vectors @ frame.T if basis is None else (frame @ coordinates).T
    turned = turned.reshape(positions.shape)
    if credit.ndim > 3 and space == "features":
        turned = turned.transpose(1, 2)
    return turned.reshape(credit.shape).to(credit.dtype)

"""Alignment of the parameter gradients that a method hands to its optimiser with those of the mean loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from walkback.core.random_streams import generator
from walkback.measure.block_maps import BlockMaps
from walkback.measure.vectors import NullSpace, by_position, norm_of, rotation_std
from walkback.nets.network import Leaves

STEM, HEAD = "stem", "head"
NetworkPart = int | str
"""A block's number, `stem` or `head`."""


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
    maps: BlockMaps | None = None


def part_cosine(left: Leaves, right: Leaves, names: Sequence[str]) -> Tensor:
    """Cosine of two gradients over the named parameters as one vector; NaN if one is zero, missing or not finite."""
    return _joined(_leaf_products(left, right, names), names)


_LeafProduct = tuple[Tensor, Tensor, Tensor]
"""The cosine of two gradients of one parameter, zero if one of them is zero, and their norms."""


def _leaf_products(left: Leaves, right: Leaves, names: Sequence[str]) -> dict[str, _LeafProduct]:
    """For each parameter that `left` has."""
    found = {}
    for name in names:
        if name in left:
            a, b = (leaves[name].detach().double().flatten() for leaves in (left, right))
            sizes = norm_of([a]), norm_of([b])
            found[name] = (torch.dot(_unit(a, sizes[0]), _unit(b, sizes[1])), *sizes)
    return found


def _unit(values: Tensor, size: Tensor) -> Tensor:
    """A vector of this norm divided by it; zero if it is zero."""
    return values / size.where(size > 0, 1.0)


def _joined(products: Mapping[str, _LeafProduct], names: Sequence[str]) -> Tensor:
    """The cosine over the named parameters as one vector."""
    if not names or any(name not in products for name in names):
        return torch.tensor(torch.nan, dtype=torch.float64)
    cosine, a, b = (torch.stack(values) for values in zip(*(products[name] for name in names), strict=True))
    return (cosine * (a / norm_of([a])) * (b / norm_of([b]))).sum()


def update_cosines(updates: Updates, blocks: int) -> dict[str, Tensor]:
    """The cosines of one group: per block, of the stem, per parameter."""
    by_part: dict[NetworkPart, list[str]] = {}
    for name, part in updates.parts.items():
        by_part.setdefault(part, []).append(name)

    def of(products: Mapping[str, _LeafProduct]) -> Tensor:
        return torch.stack([_joined(products, by_part.get(block, [])) for block in range(blocks)])

    made = _leaf_products(updates.made, updates.true, list(updates.parts))
    found = {
        "update_cos": of(made),
        "update_cos_stem": _joined(made, by_part.get(STEM, [])),
        "update_cos_leaf": torch.stack([_joined(made, [name]) for name in updates.parts]),
    }
    if updates.full is not None:
        in_blocks = [name for name, part in updates.parts.items() if isinstance(part, int)]
        found["update_cos_full"] = of(_leaf_products(updates.full, updates.true, in_blocks))
    return found


@dataclass(frozen=True)
class UpdateNull:
    """What one group of samples contributes to the null of a block's `update_cos`: random rotations of the method's
    credit in its place.

    A block's parameter gradient is linear in the credit c at its output: Jᵀc. Its inner product with the true gradient
    G is <c, JG>, so that with JG known no rotated credit has to be sent back. Only the length |Jᵀc| needs that; it
    hardly differs between random credits of one length, so it is taken from one of them in each group.
    """

    along: Tensor
    """JG / |G|, shaped like the credit."""
    gain: Tensor
    """(|Jᵀc| / |c|)² for one rotation of the credit."""


def update_null(updates: Updates, block: int, credit: Tensor, space: NullSpace, group: int) -> UpdateNull:
    """The contribution of one group."""
    assert updates.maps is not None
    true = {name: updates.true[name] for name, part in updates.parts.items() if part == block}
    along = updates.maps.push(block, true).double() / norm_of(list(true.values()))
    turned = rotate(credit, space, generator(group, "rotation null", block))
    gain = (norm_of(list(updates.maps.pull(block, turned).values())) / norm_of([turned])).square()
    return UpdateNull(along, gain)


FRESH_GROUPS = 3
"""Groups in which freshly drawn credits are sent back. More groups narrow the null and cost more: see the price that
`walkback bench diagnose` prints."""


def fresh_update_cosines(updates: Updates, block: int, draws: Sequence[Tensor]) -> Tensor:
    """`update_cos` of a block in one group under each draw. The cosines of fresh feedback may be far from zero, so
    their lengths are not approximated as those of rotations are."""
    assert updates.maps is not None
    true = {name: updates.true[name].double().flatten() for name, part in updates.parts.items() if part == block}
    size = norm_of(list(true.values()))
    unit = {name: leaf / size for name, leaf in true.items()}
    found = []
    for drawn in draws:
        pulled = updates.maps.pull(block, drawn)
        inner = [torch.dot(pulled[name].double().flatten(), leaf) for name, leaf in unit.items() if name in pulled]
        found.append(sum(inner, torch.zeros_like(size)) / norm_of(list(pulled.values())))
    return torch.stack(found)


def null_std(groups: Sequence[UpdateNull], credits: Sequence[Tensor], space: NullSpace) -> Tensor:
    """The standard deviation of the mean of `update_cos` over groups under one Haar-random rotation of all credits.

    It is exact but for the lengths, as in `haar_std`; the null's mean is zero. Groups without a credit or a gradient
    are left out.
    """
    pairs = [(credit.double() / norm_of([credit]), group.along) for credit, group in zip(credits, groups, strict=True)]
    known = [pair for pair in pairs if all(tensor.isfinite().all() for tensor in pair)]
    if not known:
        return torch.tensor(torch.nan, dtype=torch.float64)
    turned, along = (by_position(torch.cat(tensors), space) for tensors in zip(*known, strict=True))
    gain = torch.stack([group.gain for group in groups]).nanmean().sqrt()
    return rotation_std(turned, along) / (len(known) * gain)


def rotate(credit: Tensor, space: NullSpace, drawn_from: torch.Generator) -> Tensor:
    """The credit under one Haar-random rotation of its features.

    A whole state that is large is not rotated as such: a rotation of n given vectors is a random orthonormal frame of
    their span, so the samples' coordinates in an orthonormal basis are put into one.
    """
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

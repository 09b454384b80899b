"""Norms and cosines of per-sample vectors, in float64, without any ε: undefined values are NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor


def as_rows(values: Tensor) -> Tensor:
    """[n, ...] as float64 [n, features]."""
    return values.detach().double().flatten(1)


def norms(values: Tensor) -> Tensor:
    """L2 norm of each row, without intermediate under- or overflow; NaN or infinite if the row has such a value."""
    largest = _largest(values)
    found = torch.linalg.vector_norm(values / largest, dim=-1) * largest.squeeze(-1)
    # A row of zeros and one with infinity give NaN here; their norm is their largest absolute value.
    return torch.where(found.isnan(), largest.squeeze(-1), found)


_SQUARED_WITHOUT_LOSS = (1e-140, 1e140)
"""Norms whose squares neither under- nor overflow."""


def norm_of(tensors: Sequence[Tensor]) -> Tensor:
    """The norm of several tensors as one vector; zero without tensors."""
    if not tensors:
        return torch.zeros((), dtype=torch.float64)
    flat = [tensor.detach().double().flatten() for tensor in tensors]
    found: Tensor = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(values) for values in flat]))
    if _SQUARED_WITHOUT_LOSS[0] < float(found) < _SQUARED_WITHOUT_LOSS[1]:
        return found
    return norms(torch.cat(flat)[None]).squeeze(0)


def units(values: Tensor) -> Tensor:
    """Each row divided by its norm; NaN if it is zero or not finite."""
    scaled = values / _largest(values)
    unit: Tensor = scaled / torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return unit


def _largest(values: Tensor) -> Tensor:
    """The largest absolute value of each row; NaN if the row has a NaN."""
    found: Tensor = torch.linalg.vector_norm(values, torch.inf, dim=-1, keepdim=True)
    return found


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """Cosine of each pair of rows; NaN if either is zero or not finite."""
    return (units(left) * units(right)).sum(-1)


def clamped_cosines(left: Tensor, right: Tensor, group: int) -> Tensor:
    """Plain `F.cosine_similarity` of the same vectors, scaled as in a mean over `group` samples."""
    return torch.nn.functional.cosine_similarity(left / group, right / group, dim=-1).double()


NullSpace = Literal["features", "all"]
"""What a random rotation of the credit mixes: the features of each token or map position, or the whole state."""


def by_position(values: Tensor, space: NullSpace) -> Tensor:
    """[n, ...] as float64 [n, positions, features]: tokens are [n, tokens, d], maps [n, channels, ...]."""
    values = values.detach().double()
    if values.ndim == 2 or space == "all":
        return values.flatten(1)[:, None]
    return values if values.ndim == 3 else values.flatten(2).transpose(1, 2)


def haar_std(credit: Tensor, reference: Tensor, space: NullSpace = "all") -> Tensor:
    """Standard deviation of the mean cosine when one Haar-random rotation Q is applied to every sample's credit.

    Feedback acts on features, so with `features` the rotation is one of the features, shared by all samples and
    positions. The mean is that of `rotation_std` for unit vectors a_i, g_i, divided by n. The null's mean is zero.
    """
    a, g = (_unit_positions(values, space) for values in (credit, reference))
    keep = a.isfinite().all(-1).all(-1) & g.isfinite().all(-1).all(-1)
    return rotation_std(a[keep], g[keep]) / int(keep.sum())  # NaN if no sample is left: 0 / 0.


def rotation_std(a: Tensor, g: Tensor) -> Tensor:
    """Standard deviation of sum_it <g_it, Q a_it> over Haar-random rotations Q, for [n, positions, features] each.

    The sum is <Q, M> with M = sum_it g_it a_it^T, and E<Q, M>^2 = |M|_F^2 / d exactly, so nothing needs to be drawn.
    |M|_F^2 = sum <g_j, g_k><a_j, a_k> over positions j, k; the cheaper of the two is computed.
    """
    features = a.shape[-1]
    a, g = a.flatten(0, 1), g.flatten(0, 1)
    square = (g.T @ a).square().sum() if features < len(a) else ((a @ a.T) * (g @ g.T)).sum().clamp_min(0)
    return (square / features).sqrt()


def _unit_positions(values: Tensor, space: NullSpace) -> Tensor:
    """The same as `by_position`, each sample divided by its norm."""
    split = by_position(values, space)
    return units(split.flatten(1)).reshape(split.shape)


def without(values: Tensor, direction: Tensor) -> Tensor:
    """Each row without its component along the same row of `direction`; NaN if that is zero or not finite."""
    unit = units(direction)
    return values - (values * unit).sum(-1, keepdim=True) * unit


def token_cosines(left: Tensor, right: Tensor) -> Tensor:
    """For each sample of [n, tokens, d], the mean cosine over tokens with a nonzero `right`; NaN if there are none."""
    return cosines(left.detach().double(), right.detach().double()).nanmean(1)

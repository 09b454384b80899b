"""Norms and cosines of per-sample vectors, in float64, without any ε: undefined values are NaN."""

from __future__ import annotations

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


def haar_std(credit: Tensor, reference: Tensor) -> Tensor:
    """Standard deviation of the mean cosine when one Haar-random rotation Q is applied to every sample's credit.

    The mean is <Q, M>/n with M = sum_i g_i a_i^T of unit vectors, and E<Q, M>^2 = |M|_F^2 / d exactly, so nothing needs
    to be drawn. |M|_F^2 = sum_ij <g_i, g_j><a_i, a_j>; the cheaper of the two is computed. The null's mean is zero.
    """
    a, g = units(credit), units(reference)
    keep = a.isfinite().all(-1) & g.isfinite().all(-1)
    a, g = a[keep], g[keep]
    count, features = a.shape
    square = (g.T @ a).square().sum() if features < count else ((a @ a.T) * (g @ g.T)).sum().clamp_min(0)
    return (square / features).sqrt() / count  # NaN if no sample is left: 0 / 0.

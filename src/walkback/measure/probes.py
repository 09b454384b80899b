"""Linear probes: how well a ridge classifier reads the labels from each hidden state.

Features are standardised on the training samples, and the penalty is chosen by generalised cross-validation on them.
Token states are probed at the cls token or at their mean, maps at the mean over positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from walkback.core.measurements import Array
from walkback.measure.subject import Subject

PENALTIES = torch.logspace(-4, 6, 41, dtype=torch.float64)
"""Penalties that are tried, on features of variance 1."""


class RidgeClassifier:
    """Linear regression on one-hot labels with a ridge penalty; predicts the class with the largest output."""

    def __init__(self, features: Tensor, labels: Tensor, classes: int):
        features = features.double()
        self._mean, scale = features.mean(0), features.std(0)
        self._scale = torch.where(scale > 0, scale, 1.0)
        x = self._standardised(features)
        target = torch.nn.functional.one_hot(labels.long(), classes).double()
        self._offset = target.mean(0)
        u, s, v = torch.linalg.svd(x, full_matrices=False)
        rotated = u.T @ (target - self._offset)
        self.penalty = float(PENALTIES[int(torch.argmin(_validation_errors(s, rotated, target - self._offset)))])
        self._weights = v.T @ ((s / (s**2 + self.penalty))[:, None] * rotated)

    def _standardised(self, features: Tensor) -> Tensor:
        return (features.double() - self._mean) / self._scale

    def predict(self, features: Tensor) -> Tensor:
        """The predicted class of each row."""
        outputs: Tensor = self._standardised(features) @ self._weights + self._offset
        return outputs.argmax(-1)


def _validation_errors(s: Tensor, rotated: Tensor, target: Tensor) -> Tensor:
    """Generalised cross-validation for each penalty: n |residual|^2 / (n - degrees of freedom)^2.

    The mean that was subtracted is one more degree of freedom.
    """
    n = len(target)
    shrink = s**2 / (s**2 + PENALTIES[:, None].to(s))
    outside = target.square().sum() - rotated.square().sum()
    residual = ((1 - shrink)[:, :, None] * rotated).square().sum((1, 2)) + outside.clamp_min(0)
    freedom = n - shrink.sum(1) - 1
    return torch.where(freedom > 0, n * residual / freedom**2, torch.inf)


def measure_probes(subject: Subject, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], pool: str) -> Array:
    """For each hidden state and test sample, 1 where a probe fitted on the training samples is right."""
    states = [_features(subject, x, pool) for x, _ in (train, test)]
    classes = int(max(train[1].max(), test[1].max())) + 1
    found = []
    for fitted, tested in zip(*states, strict=True):
        if not (fitted.isfinite().all() and tested.isfinite().all()):
            found.append(np.full(len(tested), np.nan))
            continue
        probe = RidgeClassifier(fitted, train[1].to(fitted.device), classes)
        found.append((probe.predict(tested).cpu() == test[1].cpu()).double().numpy())
    return np.stack(found)


def _features(subject: Subject, x: Tensor, pool: str) -> Sequence[Tensor]:
    """One vector per sample for each hidden state."""
    with torch.no_grad():
        return [_vector(state, pool) for state in subject.states(x)]


def _vector(state: Tensor, pool: str) -> Tensor:
    if state.ndim == 2:
        return state
    if state.ndim == 3:
        return state[:, 0] if pool == "cls" else state.mean(1)
    return state.flatten(2).mean(2)

"""A model in training as the named arrays of a run's checkpoint, and back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from walkback.nets.network import Leaves
from walkback.runs import store
from walkback.training.driver import Snapshot

_PARTS: dict[str, Callable[[Snapshot], Leaves]] = {
    "params": lambda snapshot: snapshot.params,
    "state": lambda snapshot: snapshot.state,
    "moments": lambda snapshot: snapshot.moments,
    "own_moments": lambda snapshot: snapshot.own_moments,
}


def arrays_of(snapshot: Snapshot) -> store.Arrays:
    return {f"{p}/{name}": leaf for p, get in _PARTS.items() for name, leaf in as_numpy(get(snapshot)).items()}


def snapshot_of(checkpoint: store.Checkpoint) -> Snapshot:
    parts: dict[str, Leaves] = {part: {} for part in _PARTS}
    for key, array in checkpoint.arrays.items():
        part, _, name = key.partition("/")
        parts[part][name] = torch.from_numpy(array)
    return Snapshot(checkpoint.epoch, **parts)


def as_numpy(leaves: Leaves) -> store.Arrays:
    return {name: np.ascontiguousarray(leaf.numpy()) for name, leaf in leaves.items()}

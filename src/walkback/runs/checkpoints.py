"""A model in training as the named arrays of a run's checkpoint, and back, checked against the run's configuration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from walkback.credit.rule import LEARNED
from walkback.nets.network import Leaves
from walkback.runs import store
from walkback.training.driver import Snapshot
from walkback.training.optimisers import AdamW, Optimiser
from walkback.training.resolved_run import ResolvedRun

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


def check_checkpoint(run: store.Run, checkpoint: store.Checkpoint, resolved: ResolvedRun) -> None:
    """Refuse a checkpoint whose epoch, or whose arrays in name, dtype or shape, are not those of this resolved run."""
    if checkpoint.epoch > resolved.config.epochs:
        what = f"its checkpoint is of epoch {checkpoint.epoch}, and it trains for {resolved.config.epochs}"
        raise store.damaged_run(run.path, what)
    got = {name: _layout(array) for name, array in checkpoint.arrays.items()}
    expected = {name: _layout(array) for name, array in arrays_of(_first_snapshot(resolved)).items()}
    for name in sorted(got.keys() | expected.keys()):
        if got.get(name) != expected.get(name):
            what = f"'{name}' is {got.get(name, 'missing')} where its configuration needs {expected.get(name, 'none')}"
            raise store.damaged_run(run.path, f"in the checkpoint of epoch {checkpoint.epoch}, {what}")


def _layout(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _first_snapshot(resolved: ResolvedRun) -> Snapshot:
    """A snapshot before the first step; its moments have the right names and shapes, not the right numbers."""
    params, state = resolved.params(), resolved.state()
    trained = {name: leaf for name, leaf in params.items() if not resolved.is_frozen(name)}
    learned = {name: leaf for name, leaf in state.items() if name.startswith(LEARNED)}
    return Snapshot(0, params, state, _moments(trained, resolved.optimiser), _moments(learned, AdamW()))


def _moments(leaves: Leaves, optimiser: Optimiser) -> Leaves:
    return {f"{moment}.{name}": leaf for moment in optimiser.moments for name, leaf in leaves.items()}


def as_numpy(leaves: Leaves) -> store.Arrays:
    return {name: np.ascontiguousarray(leaf.numpy()) for name, leaf in leaves.items()}

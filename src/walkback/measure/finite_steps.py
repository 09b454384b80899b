"""Finite steps from the hidden states: does the loss change as the credit predicts, and does a step along it help?

To first order both depend on the angle alone; at a finite step curvature matters as well. Everything is computed in
float64, from the states of one frozen pass, and every step changes one sample's own state and loss.

- Perturbation correlation: along K random unit directions v the loss is evaluated at h +- delta v, delta = 1e-3 |h|;
  its differences are correlated with <a, v>. The same differences are used for the controls: the true gradient in
  place of a (near 1 if the step is small enough and float64 precise enough), and a random vector (near 0).
- Nudging: the change of the loss at h - eta |h| a / |a|, and the same along the gradient.

Whole states are moved: vectors, flattened maps, all tokens flattened. Where the head reads the cls token alone, only
that token's vector is moved, and |h|, a and the gradient are those of that token, as in every other measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from walkback.core.errors import InputError
from walkback.core.measurements import GROUP, Array, Measurements
from walkback.core.random_streams import generator
from walkback.measure.group_arrays import choose_pool
from walkback.measure.inputs import Groups
from walkback.measure.subject import CreditFunction, NetworkSubject
from walkback.measure.vectors import as_rows, cosines, norms, units

DIRECTIONS, STEP, NUDGE = 64, 1e-3, 0.01
CHUNK = {"cpu": 2**20, "cuda": 2**25}
"""How many numbers of states go through the network together: what fits the cache, or keeps a GPU busy."""

Losses = Callable[[Tensor], Tensor]
"""Losses [n, m] at states [n, m, features]: m trials for each of n samples."""


def measure_functional(
    subject: NetworkSubject,
    groups: Groups,
    *,
    credit: CreditFunction | None = None,
    labels: Sequence[str] | None = None,
    site: str | None = None,
    seed: int = 0,
    directions: int = DIRECTIONS,
    step: float = STEP,
    nudge: float = NUDGE,
) -> Measurements:
    """Perturbation correlation and nudging at every layer, on groups as returned by `regroup`.

    `credit` returns the credits of a pass; without it the subject's own rule is used, and without a rule only the
    gradient and the controls are measured. A sample without credit or gradient, or whose loss does not change, is NaN.
    """
    if directions < 3:
        raise InputError(f"{directions} directions were asked for; a correlation needs at least 3. The default is 64.")
    subject64 = subject.double()
    pool, start = "auto", 0
    layers: list[dict[str, list[Tensor]]] = [{} for _ in range(subject.net.depth + 1)]
    losses = []
    for x, y in groups:
        frozen_pass = subject64.run(x, y)
        assert frozen_pass.y is not None
        credits = credit(frozen_pass) if credit else subject64.credit(frozen_pass)
        pool = choose_pool(frozen_pass, pool)
        losses.append(frozen_pass.losses)
        for index, (state, gradient) in enumerate(zip(frozen_pass.states, frozen_pass.reference, strict=True)):
            h, g = _moved_rows(state, pool), _moved_rows(gradient, pool)
            a = None if credits is None else _moved_rows(credits[index], pool)
            # Each sample has two sides for every direction.
            size = max(1, CHUNK[h.device.type] // (2 * directions * state[0].numel()))
            for first in range(0, len(h), size):
                cut = slice(first, min(first + size, len(h)))
                drawn = _draw(seed, index, range(start + cut.start, start + cut.stop), directions, h)
                loss = _losses(subject64, index, state[cut], frozen_pass.y[cut], pool)
                with torch.no_grad():
                    found = _measure_layer(loss, h[cut], g[cut], None if a is None else a[cut], drawn, step, nudge)
                for name, values in found.items():
                    layers[index].setdefault(name, []).append(values)
        start += len(frozen_pass.losses)
    facts = {
        "layers": len(layers),
        "samples": start,
        "groups": sum(len(each) == GROUP for each in losses),
        "dtype": str(subject.dtype).removeprefix("torch."),
        "pool": pool,
        "site": site,
        "labels": list(labels) if labels is not None else None,
        "sample_hash": groups.sample_hash,
        "found": list(subject.found),
        "skipped": list(subject.skipped),
        "features": h.shape[1],
        "directions": directions,
        "step": step,
        "nudge": nudge,
        "seed": seed,
    }
    by_layer = [_layer_arrays({name: torch.cat(parts) for name, parts in layer.items()}) for layer in layers]
    arrays: dict[str, Array] = {name: np.stack([layer[name] for layer in by_layer]) for name in by_layer[0]}
    arrays["loss"] = torch.cat(losses).cpu().numpy()
    return Measurements(arrays, facts)


def differences(losses: Losses, h: Tensor, v: Tensor, step: float) -> tuple[Tensor, Tensor]:
    """Rates of the losses [n, K] along unit directions v [n, K, features]: central, and one-sided as in the papers.

    The step is `step` times each sample's |h|; NaN if that is zero or not finite.
    """
    delta = (step * _size(h))[:, None]
    move = delta[:, :, None] * v
    above, below = losses(torch.cat([h[:, None] + move, h[:, None] - move], dim=1)).chunk(2, dim=1)
    return (above - below) / (2 * delta), (above - losses(h[:, None])) / delta


def correlations(left: Tensor, right: Tensor) -> Tensor:
    """Pearson's correlation of each pair of rows; NaN if one does not vary or is not finite."""
    return cosines(left - left.mean(-1, keepdim=True), right - right.mean(-1, keepdim=True))


def nudged(losses: Losses, h: Tensor, along: Tensor, share: float) -> Tensor:
    """Change of each sample's loss [n] after a step of `share` |h| against `along`; NaN if that is zero."""
    moved = h - (share * _size(h))[:, None] * units(along)
    return (losses(moved[:, None]) - losses(h[:, None]))[:, 0]


def _measure_layer(
    losses: Losses, h: Tensor, g: Tensor, a: Tensor | None, drawn: Tensor, step: float, share: float
) -> dict[str, Tensor]:
    """All values of some samples at one layer; `drawn` [n, K + 1, features] are the directions and the control."""
    v, random = drawn[:, :-1], drawn[:, -1]
    central, one_sided = differences(losses, h, v, step)

    def along(vector: Tensor) -> Tensor:
        # Normalised: a sample's correlation does not depend on the length, and tiny credits would underflow.
        return (v @ units(vector)[:, :, None])[..., 0]

    found = {
        "rho_gradient": correlations(central, along(g)),
        "rho_random": correlations(central, along(random)),
        "nudge_gradient": nudged(losses, h, g, share),
    }
    if a is not None:
        predicted = along(a)
        found |= {
            "rho": correlations(central, predicted),
            "rho_one_sided": correlations(one_sided, predicted),
            "nudge_credit": nudged(losses, h, a, share),
            "credit_cos": cosines(a, g),
            "credit_norm": norms(a),
            "central": central,
            "predicted": predicted,
        }
    return found


def _layer_arrays(found: dict[str, Tensor]) -> dict[str, Array]:
    """One layer's arrays over all samples; the values kept for the pooled correlation are replaced by it."""
    if "rho" in found:
        central, predicted = found.pop("central"), found.pop("predicted")
        keep = found["rho"].isfinite()
        sizes = found["credit_norm"][keep]
        # Relative to the largest credit: a common scale does not change the correlation.
        predicted = predicted[keep] * (sizes / sizes.max() if len(sizes) else sizes)[:, None]
        pooled = correlations(central[keep].reshape(1, -1), predicted.reshape(1, -1))[0] if len(sizes) else torch.nan
        found["rho_pooled"] = torch.as_tensor(pooled)
    return {name: values.double().cpu().numpy() for name, values in found.items()}


def _size(h: Tensor) -> Tensor:
    sizes = norms(h)
    return torch.where((sizes > 0) & sizes.isfinite(), sizes, torch.nan)


def _draw(seed: int, layer: int, samples: Sequence[int], directions: int, like: Tensor) -> Tensor:
    """Unit directions [n, K + 1, features]; each sample has its own stream, so that batch sizes do not matter."""
    streams = (generator(seed, "probe directions", layer, sample) for sample in samples)
    drawn = torch.stack([torch.randn(directions + 1, like.shape[1], generator=stream) for stream in streams])
    return torch.nn.functional.normalize(drawn.to(like), dim=-1)


def _moved_rows(values: Tensor, pool: str) -> Tensor:
    """The part of a state that is moved, as rows [n, features]."""
    return as_rows(values[:, 0] if pool == "cls" else values)


def _losses(subject: NetworkSubject, layer: int, state: Tensor, y: Tensor, pool: str) -> Losses:
    """The losses of some samples as a function of the part that is moved at this layer; other tokens are kept."""

    def of(moved: Tensor) -> Tensor:
        trials = moved.shape[1]
        if pool == "cls":
            whole = state[:, None].repeat(1, trials, 1, 1)
            whole[:, :, 0] = moved
        else:
            whole = moved.reshape(len(state), trials, *state.shape[1:])
        found = subject.losses_from(layer, whole.flatten(0, 1), y.repeat_interleave(trials))
        return found.reshape(len(state), trials)

    return of

"""Synthetic measurements of networks in known states: healthy, exploded, noise, clamped, concentrated, cls."""

from __future__ import annotations

from typing import Any

import numpy as np

from walkback.core.measurements import GROUP, Measurements


def fake(
    *,
    blocks: int = 4,
    groups: int = 8,
    growth: float = 1.3,
    grad: float = 4e-4,
    replay_cos: float | list[float] = 1.0,
    replay: bool = True,
    cosines: list[float] | None = None,
    null_std: float = 0.01,
    labels: list[str] | None = None,
    site: str = "output",
    pool: str = "all",
    group_cos: float = 0.1,
    fresh: float | None = None,
    branch: float | list[float] | None = None,
    dtype: str = "float32",
    seed: int = 0,
) -> Measurements:
    """`grad` is |g_L| @128; `cosines` are the credit's, by layer; None measures no credit. `branch` is the mean norm of
    block outputs, for all or by block."""
    rng = np.random.default_rng(seed)
    layers, samples = blocks + 1, groups * GROUP
    spread = rng.uniform(0.9, 1.1, (1, samples))  # The same at every layer: ratios of means are exact.
    hidden = 10.0 * growth ** np.arange(layers)[:, None] * spread
    grads = grad * GROUP * 1.5 ** np.arange(blocks, -1, -1)[:, None] * spread / spread.mean()
    arrays = {
        "hidden_norm": hidden,
        "grad_norm": grads,
        "group_cos": np.full(groups * (groups - 1) // 2, group_cos),
        "loss": rng.uniform(0.5, 1.5, samples),
        "correct": (rng.uniform(size=samples) < 0.6).astype(np.float64),
        "error_norm": np.full(samples, 0.8),
    }
    if branch is not None:
        arrays["branch_norm"] = np.broadcast_to(np.reshape(branch, (-1, 1)), (blocks, 1)) * spread / spread.mean()
    if replay:
        by_layer = np.broadcast_to(np.asarray(replay_cos, dtype=np.float64), (layers,))
        arrays |= {
            "grad_norm64": grads.copy(),
            "grad_cos64": np.repeat(by_layer[:, None], samples, axis=1),
            "grad_rel_error": np.sqrt(np.maximum(0.0, 2 - 2 * np.repeat(by_layer[:, None], samples, axis=1))),
        }
    if cosines is not None:
        wanted = np.asarray(cosines, dtype=np.float64)[:, None]
        noise = rng.normal(0, 0.02, (layers, samples))
        per_sample = np.where(np.abs(wanted) == 1, wanted, wanted + noise - noise.mean(axis=1, keepdims=True))
        credit_norm = np.full((layers, samples), 2.0)
        arrays |= {
            "credit_cos": per_sample,
            "credit_norm": credit_norm,
            "credit_dot": per_sample * credit_norm * grads,
            "credit_cos_clamped": per_sample * np.minimum(1, grads / GROUP / 1e-8),
            "credit_group_cos": np.repeat(wanted, groups, axis=1),
            "null_haar_std": np.full(layers, null_std),
        }
        # Block l is trained by the credit of its output, or of its input.
        used = slice(0, -1) if site == "input" else slice(1, None)
        arrays |= {
            "used_cos": per_sample[used],
            "credit_ratio": np.full((blocks, samples), 1.0),
            "null_used_std": np.full(blocks, null_std),
        }
        if fresh is not None:
            arrays["null_fresh"] = fresh + 0.01 * np.tile([-1.0, 1.0], (layers, 10))
            arrays["null_used_fresh"] = arrays["null_fresh"][used]
    facts: dict[str, Any] = {
        "layers": layers,
        "samples": samples,
        "groups": groups,
        "dtype": dtype,
        "pool": pool,
        "site": site if cosines is not None else None,
        "labels": (labels or ["none"] * layers) if cosines is not None else None,
        "sample_hash": "5a3e",
        "found": ["4 residual blocks"],
        "skipped": [],
    }
    return Measurements(arrays, facts)


def changed(m: Measurements, facts: dict[str, Any] | None = None, **arrays: np.ndarray | None) -> Measurements:
    """The same measurements with some arrays or facts replaced; None removes an array."""
    kept = {name: array for name, array in (dict(m.arrays) | arrays).items() if array is not None}
    return Measurements(kept, dict(m.facts) | (facts or {}))


def without_blocks(m: Measurements) -> Measurements:
    """The measurements as versions before 0.10 made them: nothing about blocks."""
    return changed(m, used_cos=None, credit_ratio=None, null_used_std=None, null_used_fresh=None)


def scaled(m: Measurements, factor: float) -> Measurements:
    """The same network with a loss that is `factor` times as large."""
    touched = ("grad_norm", "grad_norm64", "credit_dot")
    return changed(m, **{name: m.arrays[name] * factor for name in touched if name in m.arrays})


def healthy(**given: Any) -> Measurements:
    return fake(**({"cosines": [0.3, 0.25, 0.2, 0.3, 0.25]} | given))


def backprop(**given: Any) -> Measurements:
    return fake(**({"cosines": [1.0] * 5, "labels": ["exact"] * 5} | given))


def exploded(**given: Any) -> Measurements:
    """As published for DFA: growth, a reference under the clamp, and a direction that is nevertheless valid."""
    return fake(**({"growth": 237.0, "grad": 4.2e-9, "cosines": [0.4, 0.0, 0.0, 0.0, 0.0]} | given))


def noise(**given: Any) -> Measurements:
    """The reference at the last two layers is rounding noise."""
    return fake(**({"replay_cos": [1, 1, 1, 0.2, 0.1], "grad": 1e-9, "cosines": [0.3] * 5} | given))


def concentrated(**given: Any) -> Measurements:
    return fake(**({"cosines": [0.05, 0.6, 0.05, 0.0, 0.05]} | given))


ALL = {
    "healthy": healthy,
    "backprop": backprop,
    "exploded": exploded,
    "noise": noise,
    "concentrated": concentrated,
    "no credit": fake,
    "no replay": lambda: healthy(replay=False),
    "cls": lambda: healthy(pool="cls"),
    "fresh": lambda: healthy(fresh=0.0),
    "one block": lambda: healthy(blocks=1, cosines=[0.3, 0.3]),
}

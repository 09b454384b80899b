"""Tiny runs for tests: small enough that a contract can be checked for every rule on every network."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from walkback.api import grid
from walkback.credit import RULES
from walkback.nets import ARCHS
from walkback.training.driver import Driver, Snapshot
from walkback.training.recipe import Recipe, resolve

DATA = "prototypes:train=96,test=64,dim=6,prototypes=8,labels=4"
SIZES = {"resmlp": "d=8,depth=3"}
"""Settings that make a network tiny; one without an entry is used at its defaults."""
CPU = torch.device("cpu")


def arch(name: str, extra: str = "") -> str:
    settings = ",".join(filter(None, [SIZES.get(name, ""), extra]))
    return f"{name}:{settings}" if settings else name


def recipe(method: str = "bp", **settings: object) -> Recipe:
    chosen = {"arch": arch("resmlp"), "data": DATA, "seeds": 1, "epochs": 2, "batch": 16, "dtype": "float64"}
    (config,) = grid(method, **(chosen | settings))
    return resolve(config)


def train(driver: Driver, epochs: int) -> list[Snapshot]:
    for _ in range(epochs):
        driver.train_epoch(lambda _steps: None)
    return driver.snapshots()


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    """The largest difference relative to a leaf's own size."""
    assert left.keys() == right.keys()
    return max(((left[name] - right[name]).norm() / right[name].norm().clamp_min(1e-12)).item() for name in right)


def same_bits(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in right)


def pairs() -> list[tuple[str, str]]:
    """Every rule on every network where it is defined."""
    return [(rule, net) for net in ARCHS.names() for rule in RULES.names() if _is_defined(rule, net)]


def _is_defined(rule: str, net: str) -> bool:
    probe = recipe("bp", arch=arch(net))
    return RULES.get(rule)().refuses(probe.net) is None


def variants(rule: str) -> Sequence[str]:
    """The rule with its settings varied one at a time."""
    made = RULES.get(rule)()
    found = [rule, f"{rule}:shell={'bp' if rule == 'bp' else 'method'}"]
    found += [f"{rule}:penalty=0.01", f"{rule}:penalty=0.01,penalty_reduction=mean"]
    found += [f"{rule}:site={site}" for site in made.sites[1:]]
    if "scale" in made.knobs():
        found.append(f"{rule}:scale=unit_error")
    return found

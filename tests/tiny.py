"""Tiny runs for tests: small enough that a contract can be checked for every rule on every network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
import torch

from walkback.core.configuration import grid
from walkback.core.settings import Scalar, Spec
from walkback.credit import RULES
from walkback.data.tensors import TENSORS_NAME as OWN_DATA
from walkback.data.tensors import Tensors, from_tensors
from walkback.nets import ARCHS
from walkback.training.driver import Snapshot, Trainer
from walkback.training.resolved_run import ResolvedRun, resolve

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

DATA = "prototypes:train=96,test=64,dim=6,prototypes=8,labels=4"
SIZES = {
    "resmlp": "d=8,depth=3",
    "student_net": "d=8,depth=3",
    "vit_mini": "d=8,depth=2,heads=2,mlp_ratio=2",
    "small_cnn": "width=4,depth=2",
}
"""Settings that make a network tiny; one without an entry is used at its defaults."""
ON_IMAGES = ("vit_mini", "small_cnn")
CHEAP: dict[str, dict[str, Scalar]] = {"ep": {"steps": 6}}
"""Settings that make a rule quick, and still let credit reach every leaf; its mathematics has tests of its own."""
EVERYWHERE = ("bp", "fa", "dfa")
"""Rules that are always tested on every network; the others are on `resmlp`, and on the rest in `make test-all`."""
DRIVEN = ("dfa", "kp", "state_bridge", "node_perturbation")
"""Rules that ask all there is of a driver: fixed state, one that follows the weights, a learned one, and noise. Those
that are derived twice take long to trace; their fleets have a test among their own."""
CPU = torch.device("cpu")


def arch(name: str, extra: str = "") -> str:
    settings = ",".join(filter(None, [SIZES.get(name, ""), extra]))
    return f"{name}:{settings}" if settings else name


@cache
def images() -> Tensors:
    """Noise of 8x8 pixels in 4 classes."""
    draws = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (112, 3, 8, 8), generator=draws, dtype=torch.uint8)
    labels = torch.arange(112) % 4
    return from_tensors(pixels[:64], labels[:64], pixels[64:], labels[64:], mean=(0.5,) * 3, std=(0.25,) * 3)


def resolved(method: str = "bp", **settings: object) -> ResolvedRun:
    """A tiny run, on data that fits the network unless `data` says otherwise."""
    chosen = {"arch": arch("resmlp"), "seeds": 1, "epochs": 2, "batch": 16, "dtype": "float64"} | settings
    own = "data" not in chosen and str(chosen["arch"]).partition(":")[0] in ON_IMAGES
    (config,) = grid(method, **({"data": OWN_DATA if own else DATA} | chosen))
    asked = config.method
    quick = Spec(asked.name, CHEAP.get(asked.name, {}) | dict(asked.settings))
    return resolve(replace(config, method=quick), images() if own else None)


def train(driver: Trainer, epochs: int) -> list[Snapshot]:
    for _ in range(epochs):
        driver.train_epoch(lambda _steps: None)
    return driver.snapshots()


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    """The largest difference relative to a leaf's own size."""
    assert left.keys() == right.keys()
    pairs = ((_felt(name, left[name]), _felt(name, right[name])) for name in right)
    return max(((ours - theirs).norm() / theirs.norm().clamp_min(1e-12)).item() for ours, theirs in pairs)


def _felt(name: str, leaf: torch.Tensor) -> torch.Tensor:
    """Without the bias of attention's keys: softmax does not feel it, so AdamW makes steps of pure rounding there."""
    if not name.endswith("qkv.bias"):
        return leaf
    third = len(leaf) // 3
    return torch.cat([leaf[:third], leaf[2 * third :]])


def same_bits(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in right)


def defined() -> list[tuple[str, str]]:
    """Every rule on every network where it is defined."""
    return [(rule, net) for net in ARCHS.names() for rule in RULES.names() if _is_defined(rule, net)]


def pairs() -> list[ParameterSet]:
    """The same as tests' parameters, those marked slow that only `make test-all` runs."""
    return _marked(lambda rule, net: net == "resmlp" or rule in EVERYWHERE)


def driven_pairs() -> list[ParameterSet]:
    """For what depends on the driver more than on the rule: backprop everywhere, and what asks most of a driver."""
    return _marked(lambda rule, net: rule == "bp" or (net == "resmlp" and rule in DRIVEN))


def _marked(is_quick: Callable[[str, str], bool]) -> list[ParameterSet]:
    marks = {True: (), False: (pytest.mark.slow,)}
    return [pytest.param(rule, net, marks=marks[is_quick(rule, net)]) for rule, net in defined()]


def _is_defined(rule: str, net: str) -> bool:
    probe = resolved("bp", arch=arch(net))
    return RULES.get(rule)().refuses(probe.net) is None


def variants(rule: str, net: str) -> list[tuple[str, int]]:
    """Methods and seeds: the rule with its settings varied one at a time.

    What no network has a say in (the site, the penalty's reduction) is varied on one network only.
    """
    made = RULES.get(rule)()
    shell, penalty = f"{rule}:shell={'bp' if rule == 'bp' else 'method'}", f"{rule}:penalty=0.01"
    found = [(rule, 1), (rule, 2), (shell, 1), (penalty, 2)]
    if "scale" in made.knobs():
        found.append((f"{rule}:scale=unit_error", 1))
    if "b_scale" in made.knobs():
        found.append((f"{rule}:b_scale=3", 2))
    if "error" in made.knobs():
        found.append((f"{rule}:error=logits", 1))
    if net == "resmlp":
        found += [(f"{penalty},penalty_reduction=mean", seed) for seed in (1, 2)]
        found += [(f"{rule}:site={site}", seed) for site in made.sites[1:] for seed in (1, 2)]
    if net == "vit_mini" and "credit_tokens" in {f.name for f in fields(made)}:
        other = "broadcast" if made.credit_tokens != "broadcast" else "cls"
        found += [(f"{rule}:credit_tokens={other}", 1), (f"{rule}:credit_tokens={other},shell=method", 2)]
    return found

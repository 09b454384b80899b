"""Tiny runs for tests: small enough that a contract can be checked for every rule on every network."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from walkback.core.configuration import grid
from walkback.core.content_hash import SHA256
from walkback.core.errors import InputError
from walkback.core.settings import Scalar, Spec
from walkback.credit import RULES
from walkback.credit.rule import refusal
from walkback.data.feed import Feed
from walkback.data.tensors import TENSORS_NAME, Tensors, from_tensors
from walkback.nets import ARCHS
from walkback.nets.module_source import spec_of_object
from walkback.nets.network import Network
from walkback.runs import store
from walkback.training.driver import Snapshot, Trainer
from walkback.training.resolved_run import ResolvedRun, resolve
from walkback.training.schedules import CosineSchedule

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

DATA = "prototypes:train=96,test=64,dim=6,prototypes=8,labels=4"
TOKEN_DATA = "markov:train=96,test=64,length=6,vocabulary=5"
SIZES = {
    "resmlp": "d=8,depth=3",
    "student_net": "d=8,depth=3",
    "vit_mini": "d=8,depth=2,heads=2,mlp_ratio=2",
    "small_cnn": "width=4,depth=2",
    "gpt_mini": "d=8,depth=2,heads=2,mlp_ratio=2",
}
"""Settings that make a network tiny; for other networks see DEFAULT_SIZES."""
DEFAULT_SIZES = {"d": 8, "width": 4, "depth": 2, "heads": 2, "mlp_ratio": 2}
"""Sizes of a network without an entry in SIZES, as far as it has these settings."""
FAST_SETTINGS: dict[str, dict[str, Scalar]] = {"ep": {"steps": 6}}
"""Settings that make a rule fast while credit still reaches every leaf; the oracle tests cover its default settings."""
RULES_ON_ALL_NETWORKS = ("bp", "fa", "dfa")
"""Rules tested on all networks by default. The others are tested on `resmlp`, and on the rest by `make test-all`."""
DRIVER_RULES = ("dfa", "kp", "state_bridge", "node_perturbation")
"""Rules that together use every part of a driver: fixed, weight-following and learned state, and noise. Fleets of rules
with second derivatives take long to trace; the tests of those rules cover them."""
CPU = torch.device("cpu")


def arch(name: str, extra: str = "") -> str:
    """The network `name` at tiny sizes, with further settings `extra`, as text."""
    settings = ",".join(filter(None, [SIZES.get(name) or _default_sizes(name), extra]))
    return f"{name}:{settings}" if settings else name


def _default_sizes(name: str) -> str:
    available = {f.name for f in fields(ARCHS.get(name))}
    return ",".join(f"{key}={size}" for key, size in DEFAULT_SIZES.items() if key in available)


@cache
def needs_images(name: str) -> bool:
    """Whether the network `name` raises InputError on vector inputs."""
    try:
        ARCHS.get(name)(input_shape=(6,), classes=4)
    except InputError:
        return True
    return False


@cache
def needs_tokens(name: str) -> bool:
    """Whether the network `name` predicts at every token."""
    return not needs_images(name) and bool(ARCHS.get(name)(input_shape=(6,), classes=4).per_token)


@cache
def images() -> Tensors:
    """Random images of 8x8 pixels in 4 classes."""
    draws = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (112, 3, 8, 8), generator=draws, dtype=torch.uint8)
    labels = torch.arange(112) % 4
    return from_tensors(pixels[:64], labels[:64], pixels[64:], labels[64:], mean=(0.5,) * 3, std=(0.25,) * 3)


def resolved(method: str = "bp", **settings: object) -> ResolvedRun:
    """A tiny run; `arch` may be an nn.Module class. The data suits the network, unless `settings` have `data`."""
    chosen = {"arch": arch("resmlp"), "seeds": 1, "epochs": 2, "batch": 16, "dtype": "float64"} | settings
    name = str(chosen["arch"]).partition(":")[0] if isinstance(chosen["arch"], str) else ""
    on_images = "data" not in chosen and bool(name) and needs_images(name)
    if isinstance(chosen["arch"], type):  # An nn.Module.
        on_images, chosen["arch"] = hasattr(chosen["arch"], "IMAGES"), spec_of_object(chosen["arch"])
    data = TENSORS_NAME if on_images else TOKEN_DATA if name and needs_tokens(name) else DATA
    (config,) = grid(method, **({"data": data} | chosen))
    spec = config.method
    fast = Spec(spec.name, FAST_SETTINGS.get(spec.name, {}) | dict(spec.settings))
    return resolve(replace(config, method=fast), images() if on_images else None)


def train(driver: Trainer, epochs: int) -> list[Snapshot]:
    for _ in range(epochs):
        driver.train_epoch(lambda _steps: None)
    return driver.snapshots()


def torch_loop(module: type[torch.nn.Module], resolved: ResolvedRun, epochs: int) -> dict[str, torch.Tensor]:
    """The leaves of a module that an ordinary torch loop trains by AdamW, from the same parameters and batches."""
    names, config = resolved.net.facts.names, resolved.config  # type: ignore[attr-defined]
    made = module().double().train()
    made.load_state_dict({names[name]: leaf for name, leaf in resolved.params().items()}, strict=False)
    optimiser = torch.optim.AdamW(made.parameters(), weight_decay=config.weight_decay)
    feed = Feed(resolved.source.load(None), config.batch, resolved.augment, resolved.dtype, CPU)
    done, total = 0, config.epochs * feed.steps
    for epoch in range(epochs):
        order = feed.order(config.seed, epoch)
        for step in range(feed.steps):
            x, y = feed.take({name: values[step] for name, values in order.items()})
            optimiser.param_groups[0]["lr"] = config.lr * CosineSchedule().factor(done, total, 1)
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(made(x), y).backward()
            optimiser.step()
            done += 1
    state = made.state_dict()
    return {name: state[own] for name, own in names.items()}


def sample_losses(logits: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Each sample's cross-entropy by torch; the mean over its tokens where each has a label."""
    losses = torch.nn.functional.cross_entropy(logits.movedim(-1, 1), y, reduction="none")
    return losses.flatten(1).mean(1) if losses.ndim > 1 else losses


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    """The largest difference over all leaves, relative to the norm of the right one."""
    assert left.keys() == right.keys()
    pairs = ((_without_key_bias(name, left[name]), _without_key_bias(name, right[name])) for name in right)
    return max(((ours - theirs).norm() / theirs.norm().clamp_min(1e-12)).item() for ours, theirs in pairs)


def _without_key_bias(name: str, leaf: torch.Tensor) -> torch.Tensor:
    """The leaf without the bias of attention's keys: softmax is invariant to it, so its gradient is mere rounding."""
    if not name.endswith("qkv.bias"):
        return leaf
    third = len(leaf) // 3
    return torch.cat([leaf[:third], leaf[2 * third :]])


def same_bits(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in right)


def defined() -> list[tuple[str, str]]:
    """All (rule, network) pairs where the rule is defined on the network."""
    return [(rule, net) for net in ARCHS.names() for rule in RULES.names() if _is_defined(rule, net)]


def pairs() -> list[ParameterSet]:
    """The defined pairs as test parameters; those that only `make test-all` runs are marked slow."""
    return _marked(lambda rule, net: net == "resmlp" or rule in RULES_ON_ALL_NETWORKS)


def driven_pairs() -> list[ParameterSet]:
    """The same for tests of drivers, with fewer pairs that are not slow: bp on all networks, DRIVER_RULES on one."""
    return _marked(lambda rule, net: rule == "bp" or (net == "resmlp" and rule in DRIVER_RULES))


def _marked(is_fast: Callable[[str, str], bool]) -> list[ParameterSet]:
    marks = {True: (), False: (pytest.mark.slow,)}
    return [pytest.param(rule, net, marks=marks[is_fast(rule, net)]) for rule, net in defined()]


def network_for(rule: str) -> str:
    """A tiny network on which the rule is defined, `resmlp` where possible, as text."""
    return arch(next(net for net in ("resmlp", *ARCHS.names()) if _is_defined(rule, net)))


def _is_defined(rule: str, net: str) -> bool:
    return refusal(RULES.get(rule)(), _network(net)) is None


@cache
def _network(name: str) -> Network:
    return resolved("bp", arch=arch(name)).net


def frozen_baseline(rule: str) -> str:
    """The rule's frozen baseline, as text."""
    return f"{rule}:shell={'bp' if rule == 'bp' else 'method'}"


def variants(rule: str, net: str) -> list[tuple[str, int]]:
    """Methods and seeds: the rule with its settings varied one at a time.

    Settings that act alike on all networks (the site, the penalty's reduction) are varied on one network only.
    """
    made = RULES.get(rule)()
    penalty = f"{rule}:penalty=0.01"
    found = [(rule, 1), (rule, 2), (frozen_baseline(rule), 1), (penalty, 2)]
    found += [(f"{rule}:{key}={other_choice(made, key)}", 1) for key in made.knobs() if is_choice(made, key)]
    if "b_scale" in made.knobs():
        found.append((f"{rule}:b_scale=3", 2))
    if net == "resmlp":
        found += [(f"{penalty},penalty_reduction=mean", seed) for seed in (1, 2)]
        found += [(f"{rule}:site={site}", seed) for site in made.sites[1:] for seed in (1, 2)]
    if (
        _network(net).kind == "tokens"
        and not _network(net).per_token
        and "credit_tokens" in {f.name for f in fields(made)}
    ):
        tokens = f"{rule}:credit_tokens={other_choice(made, 'credit_tokens')}"
        found += [(tokens, 1), (f"{tokens},shell=method", 2)]
    return found


def is_choice(made: Any, key: str) -> bool:
    """Whether the setting `key` of a rule is one of a few words."""
    return typing.get_origin(typing.get_type_hints(type(made))[key]) is typing.Literal


def other_choice(made: Any, key: str) -> str:
    """A value of such a setting that is not its present one."""
    return next(
        choice for choice in typing.get_args(typing.get_type_hints(type(made))[key]) if choice != getattr(made, key)
    )


def remove_hashes(run: Path) -> None:
    """Make a finished run like one of 0.8.1, whose log and record have no hashes, so that a test may change them."""
    record = json.loads((run / store.RECORD).read_text())
    for key in (store.LOG_HASH, SHA256):
        record.pop(key, None)
    (run / store.RECORD).write_bytes(store.record_json(record))

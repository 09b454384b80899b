"""How large a study is: the embedded task on two cores (`smoke`), or the papers' data and recipe (`paper`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from walkback.core.configuration import RunConfig, grid
from walkback.core.errors import unknown
from walkback.core.settings import Spec

METHODS = {
    "BP": "bp",
    "FA": "fa:site=input",
    "DFA": "dfa:scale=unit_error,site=input",
    "State Bridge": "state_bridge:site=input",
    "Credit Bridge": "credit_bridge:site=input",
    "EP": "ep",
    "EP short": "ep_short",
}
"""The papers' methods as they are written here, by the name that tables and figures show.

Site `input` and DFA's normalised error were fitted to published figures (docs/recipe.md); `raw` DFA is studied beside.
"""

RAW = {"dfa:site=input": "DFA raw"}
"""DFA with the error as it is."""


@dataclass(frozen=True)
class Place:
    """A network on its data."""

    arch: str
    data: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scale:
    """The sizes that every study shares; a study says only what it varies."""

    name: str
    seeds: tuple[int, ...]
    settings: Mapping[str, Any]
    """Fields of every run: lr, augment, batch, ..."""
    places: Mapping[str, Place]
    """resmlp, wide, no_norm, vit, student, cnn, cifar100."""
    epochs: Mapping[str, int]
    """By the kind of training: full, short (penalties), vit (networks that take long: ViT and CNN)."""
    functional_samples: int
    """Samples for finite-step metrics."""
    words: str = ""
    """What it is, for captions."""
    instead: Mapping[str, str] = field(default_factory=dict)
    """By rule, the kind of training it gets where `full` is asked for."""

    def runs(
        self,
        methods: Sequence[str],
        *,
        place: str = "resmlp",
        epochs: str = "full",
        seeds: Sequence[int] | None = None,
        arch: str | None = None,
        data: str | None = None,
        **settings: Any,
    ) -> list[RunConfig]:
        """One configuration for each method and seed at a place; methods are written as on the command line."""
        if place not in self.places:
            raise unknown("place", place, self.places)
        known = self.places[place]
        shared: dict[str, Any] = {
            "arch": arch or known.arch,
            "data": data or known.data,
            "seeds": list(seeds or self.seeds),
            **self.settings,
            **known.settings,
            **settings,
        }
        found = [grid([method], epochs=self.epochs[self._kind(method, epochs)], **shared) for method in methods]
        return [config for configs in found for config in configs]

    def _kind(self, method: str, epochs: str) -> str:
        return self.instead.get(Spec.parse(method).name, epochs) if epochs == "full" else epochs


_EMBEDDED = "prototypes:train=3200,test=1024"
_IMAGES = {"augment": "crop_flip_black"}
"""Padding with black reproduces the published accuracy of backprop; the mean colour does not (docs/recipe.md)."""

SMOKE = Scale(
    name="smoke",
    seeds=(1, 2),
    # Ten times the usual learning rate: what takes 100 epochs on CIFAR shows here within some hundred steps.
    settings={"lr": 0.01, "batch": 64},
    places={
        "resmlp": Place("resmlp:d=32", _EMBEDDED),
        "wide": Place("resmlp:d=48,depth=2", _EMBEDDED),
        "no_norm": Place("resmlp:d=32,terminal_norm=false", _EMBEDDED),
        "vit": Place("vit_mini:d=16,depth=2,heads=2,mlp_ratio=2", "tiles"),
        "student": Place("student_net:d=32", "teacher:train=3200,test=1024"),
        "cnn": Place("small_cnn:width=8,depth=2", "tiles"),
        "cifar100": Place("resmlp:d=32", f"{_EMBEDDED},labels=20"),
    },
    epochs={"full": 12, "short": 6, "vit": 4},
    functional_samples=256,
    words="embedded task, smoke scale: shows that the study runs, not what is true of CIFAR",
)

PAPER = Scale(
    name="paper",
    seeds=(42, 123, 456),
    settings={},
    places={
        "resmlp": Place("resmlp", "cifar10", _IMAGES),
        "wide": Place("resmlp:d=512,depth=2", "cifar10", _IMAGES),
        "no_norm": Place("resmlp:terminal_norm=false", "cifar10", _IMAGES),
        "vit": Place("vit_mini", "cifar10", _IMAGES),
        "student": Place("student_net", "teacher"),
        "cnn": Place("small_cnn", "cifar10", _IMAGES),
        "cifar100": Place("resmlp", "cifar100", _IMAGES),
    },
    epochs={"full": 100, "short": 30, "vit": 30},
    functional_samples=512,
    words="the papers' recipe on real data",
    # A step of EP costs as much as dozens of backprop's. The papers' EP is the short one; ours is beside it.
    instead={"ep": "short"},
)

SCALES = {scale.name: scale for scale in (SMOKE, PAPER)}


def scale_of(name: str) -> Scale:
    if name not in SCALES:
        raise unknown("scale", name, SCALES)
    return SCALES[name]

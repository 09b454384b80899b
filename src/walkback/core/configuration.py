"""The configuration of one run: every setting that affects its numbers, and nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from walkback.core.errors import InputError
from walkback.core.settings import (
    Spec,
    build_settings,
    convert,
    omitted_at_default,
    omitted_settings,
    parse_arch,
    require_above,
    require_at_least,
    require_at_most,
)


@dataclass(frozen=True)
class SharedOptions:
    """Settings of a method that all rules share."""

    shell: Literal["none", "bp", "method"] = "none"
    """The frozen baseline: keep the blocks at their random initialisation and train only stem, norm and head. `method`
    trains them by the method's own credit, `bp` by backprop; `bp` is accepted for the rule bp only, where both are the
    same."""
    site: Literal["output", "input"] = "output"
    """Which credit trains a block: that of its output state, or that of its input state (as in the papers)."""
    penalty: float = 0.0
    """Residual penalty: adds penalty * sum_j f[j]^2 to a block's local loss, f the output of its branch."""
    penalty_reduction: Literal["sum", "mean"] = "sum"
    """Whether the penalty sums or averages over features."""
    credit: Literal["own", "exact", "direction"] = omitted_at_default("own")
    """The oracle controls. `exact` trains block l by the exact gradient g_{l+1} in place of the method's credit;
    `direction` by its direction, with the norm of the credit by which the method would train the block."""

    def __post_init__(self) -> None:
        require_at_least(self.penalty, 0, "penalty")


@dataclass(frozen=True)
class RunConfig:
    """The settings of one training run; `training.resolved_run.resolve` fills in the defaults."""

    method: Spec = field(default_factory=lambda: Spec("bp"))
    arch: Spec = field(default_factory=lambda: Spec("resmlp"))
    data: Spec = field(default_factory=lambda: Spec("prototypes"))
    seed: int = 42
    epochs: int = 100
    batch: int = 128
    lr: float = 1e-3
    weight_decay: float = 0.01
    augment: Literal["auto", "none", "crop_flip", "crop_flip_black"] = "auto"
    """`auto` is `crop_flip` (random crop and flip) on images and nothing on vectors."""
    dtype: Literal["float32", "float64", "tf32"] = "float32"
    """`tf32` is float32 with TF32 matrix products (factors rounded to ten bits) in training steps on a GPU; measuring a
    model uses full float32 products."""
    optimizer: Spec = omitted_at_default(Spec("adamw"))  # noqa: RUF009  # Specs are frozen.
    """`adamw`, `adam` or `sgd` with their settings, such as `sgd:momentum=0.9,nesterov=true`."""
    schedule: Spec = omitted_at_default(Spec("cosine"))  # noqa: RUF009
    """The learning rate over the run: `cosine`, `constant`, `step:every=30` or `warmup_cosine:warmup=0.05`."""

    def __post_init__(self) -> None:
        for name, least, most in (("seed", 0, 2**63 - 1), ("epochs", 1, 10**9), ("batch", 1, 10**9)):
            require_at_least(getattr(self, name), least, name)
            require_at_most(getattr(self, name), most, name)
        require_above(self.lr, 0, "lr")
        require_at_least(self.weight_decay, 0, "weight_decay")

    def to_json(self) -> dict[str, Any]:
        omitted = omitted_settings(self)
        document = {name: value for name, value in asdict(self).items() if name not in omitted}
        for part in document.keys() & SPECS:
            spec: Spec = getattr(self, part)
            document[part] = {"name": spec.name, **spec.settings}
        return document

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> RunConfig:
        values = dict(document)
        for part in SPECS:
            if part in values:
                given = values.pop(part)
                if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
                    raise InputError(f"The config's '{part}' is {given!r}; expected an object with a 'name'.")
                values[part] = Spec(given["name"], {k: v for k, v in given.items() if k != "name"})
        specs = {part: values.pop(part) for part in SPECS if part in values}
        base = build_settings(RunConfig, values, "the run")
        return RunConfig(**(_field_values(base) | specs))

    def digest(self) -> str:
        """sha256 of the JSON form. Runs use the digest of the resolved configuration, so that writing out a default
        does not change it."""
        return config_digest(self.to_json())


def config_digest(document: Mapping[str, Any]) -> str:
    """The digest of a configuration in its JSON form, as a record stores it."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


PARTS = ("method", "arch", "data")
"""The fields that name an item of a catalog."""
SPECS = (*PARTS, "optimizer", "schedule")
"""The fields that are a name with settings."""


def _field_values(config: RunConfig) -> dict[str, Any]:
    """The fields by name; unlike `asdict`, nested dataclasses stay as they are."""
    return {f.name: getattr(config, f.name) for f in fields(config)}


def grid(
    methods: str | Sequence[str] = "bp",
    *,
    arch: str | Spec = "resmlp",
    data: str | Spec = "prototypes",
    seeds: int | Sequence[int] = 42,
    **settings: Any,
) -> list[RunConfig]:
    """One configuration for each method and seed; `settings` are fields of `RunConfig` (epochs, batch, lr, ...)."""
    names = [methods] if isinstance(methods, str) else methods
    numbers = [convert(seed, int, "seed") for seed in ([seeds] if isinstance(seeds, int | str) else seeds)]
    base = build_settings(RunConfig, settings, "the run")
    shared = {name: getattr(base, name) for name in settings}
    return [
        RunConfig(method=Spec.parse(m), arch=parse_arch(arch), data=Spec.parse(data), seed=seed, **shared)
        for m in names
        for seed in numbers
    ]

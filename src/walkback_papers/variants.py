"""Variants of the training recipe: each changes one choice that the papers do not state; one variant changes two."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from walkback.core.configuration import RunConfig
from walkback.core.settings import Spec
from walkback.training.resolved_run import resolve
from walkback_papers.scale import METHODS, RAW, Scale
from walkback_papers.tables import with_penalty

VARIANT_NAMES = ("BP", "FA", "DFA")
BRIDGES = ("State Bridge", "Credit Bridge")
"""Only their site is varied: none of the other unstated choices applies to them."""
RECIPE, VARIANT_PENALTY, VIT_VARIANT = "the recipe", "λ = 0.01", "ViT"
"""The bases that variants change; each is the first row of its family."""
SITE = "site output"
PENALTY_SIZE = 0.01
"""The penalty λ, used by both papers."""
B_SIZES = (0.1, 10.0)
"""Factors on B."""
LEFT_OUT = {
    "smoke": {
        ("B × 0.1", "FA"),
        ("B × 0.1", "DFA"),
        ("B std 1/√d", "DFA"),
        ("λ over mean", "FA"),
        ("λ with B × 0.1", "DFA"),
        *((name, bridge) for name in (RECIPE, SITE) for bridge in BRIDGES),
    }
}
"""By scale, the pairs of variant and method that are skipped: costly there and uninformative."""


@dataclass(frozen=True)
class Variant:
    """One row of the sensitivity study: method texts by shown name, of the methods that the variant changes."""

    name: str
    methods: Mapping[str, str]
    family: str = RECIPE
    place: str = "resmlp"
    epochs: str = "short"
    arch: str = ""
    """A setting added to the network of the place."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_base(self) -> bool:
        return self.name == self.family

    def runs(self, scale: Scale, method: str) -> list[RunConfig]:
        known = scale.places[self.place].arch
        arch = with_setting(known, self.arch) if self.arch else known
        return scale.runs([self.methods[method]], place=self.place, epochs=self.epochs, arch=arch, **self.settings)


def with_setting(text: str, setting: str) -> str:
    """A method's or network's text with one more setting."""
    return f"{text}{',' if ':' in text else ':'}{setting}"


def variants(scale: Scale) -> list[Variant]:
    """All variants at a scale. Each changes one choice of its family's base. `raw error + mean padding` changes two,
    because DFA is walked back with either of them unchanged (docs/recipe.md). Crops and tokens are varied on images."""
    base = {name: METHODS[name] for name in VARIANT_NAMES}
    bridges = {name: METHODS[name] for name in BRIDGES}
    feedback = {name: base[name] for name in ("FA", "DFA")}
    dfa = base["DFA"]
    (raw,) = RAW
    # FA's feedback already has standard deviation 1/√d, DFA's has 1.
    width = resolve(scale.runs([dfa])[0]).net.features
    penalty = {name: with_penalty(method, PENALTY_SIZE) for name, method in base.items()}
    found = [
        Variant(RECIPE, base | bridges),
        Variant("raw error", {"DFA": raw}),
        Variant("logits − y", {"DFA": with_setting(dfa, "error=logits")}),
        Variant(SITE, {name: _at_output(method) for name, method in (feedback | bridges).items()}),
        *(Variant(f"B × {size:g}", _with_setting_each(feedback, f"b_scale={size:g}")) for size in B_SIZES),
        Variant("B std 1/√d", {"DFA": with_setting(dfa, f"b_scale={width**-0.5!r}")}),
        Variant("W2 default", base, arch="w2_std=none"),
    ]
    if _has_images(scale, "resmlp"):
        crops = {"no crops": "none", "mean padding": "crop_flip"}
        found += [Variant(name, base, settings={"augment": augment}) for name, augment in crops.items()]
        found.append(Variant("raw error + mean padding", {"DFA": raw}, settings={"augment": "crop_flip"}))
    found += [
        Variant(VARIANT_PENALTY, penalty, VARIANT_PENALTY),
        Variant(
            "λ over mean",
            _with_setting_each({n: penalty[n] for n in feedback}, "penalty_reduction=mean"),
            VARIANT_PENALTY,
        ),
        *(
            Variant(f"λ with B × {s:g}", {"DFA": with_setting(penalty["DFA"], f"b_scale={s:g}")}, VARIANT_PENALTY)
            for s in B_SIZES
        ),
    ]
    if _has_images(scale, "vit"):
        cls = {"DFA": with_setting(dfa, "credit_tokens=cls")}
        spread = {"FA": with_setting(base["FA"], "credit_tokens=broadcast")}
        found += [
            Variant(VIT_VARIANT, base, VIT_VARIANT, "vit", "vit"),
            Variant("ViT with cls", cls, VIT_VARIANT, "vit", "vit"),
            Variant("ViT with all tokens", spread, VIT_VARIANT, "vit", "vit"),
        ]
    kept = [replace(row, methods=_without_skipped(LEFT_OUT.get(scale.name, set()), row)) for row in found]
    return [row for row in kept if row.methods]


def _at_output(method: str) -> str:
    """The method's text without its site: `output` is every rule's default."""
    spec = Spec.parse(method)
    return str(Spec(spec.name, {key: value for key, value in spec.settings.items() if key != "site"}))


def methods_of_variant(rows: Sequence[Variant]) -> list[str]:
    """The methods that occur in any row."""
    return [name for name in (*VARIANT_NAMES, *BRIDGES) if any(name in row.methods for row in rows)]


def _without_skipped(left_out: Collection[tuple[str, str]], row: Variant) -> dict[str, str]:
    return {name: method for name, method in row.methods.items() if (row.name, name) not in left_out}


def _with_setting_each(methods: Mapping[str, str], setting: str) -> dict[str, str]:
    return {name: with_setting(method, setting) for name, method in methods.items()}


def _has_images(scale: Scale, place: str) -> bool:
    return "augment" in scale.places[place].settings

"""The protocol's thresholds. Changing one needs no new measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from walkback.core import settings
from walkback.core.errors import InputError
from walkback.core.settings import convert, require_above, require_at_least
from walkback.judge.card_part import CardPart
from walkback.judge.statistics import NATS


@dataclass(frozen=True)
class DiagnosticThresholds(CardPart):
    """The thresholds of the checks and claims; the first four are the papers', the others are walkback's own."""

    g_norm_floor: float = 1e-7
    """D2 fails under this gradient norm (@128): ten times the clamp of plain cosine functions."""
    h_norm_explosion_ratio: float = 50.0
    """D1 fails above this growth from one hidden state to the next."""
    stability_drift_ceiling: float = 0.30
    """Drift (c) fails above this mean pairwise cosine of group gradients."""
    frozen_acc_margin_pp: float = 2.0
    """D3 fails under this margin over the frozen baseline, in percentage points."""
    direction_valid_cos: float = 0.995
    """A sample's gradient direction is correct if its cosine with the float64 replay reaches this."""
    direction_valid_share: float = 0.95
    """A layer's direction is valid if this share of samples is correct."""
    direction_noise_median: float = 0.9
    """A layer's direction is noise if the median cosine with the replay is under this."""
    cosine_eps: float = 1e-8
    """The norm at which plain cosine functions clamp."""
    clamp_share: float = 0.01
    """A clamped cosine is distorted if more than this share of samples is under the clamp."""
    concentration: float = 0.6
    """Concentration fails if one layer's share of the alignment exceeds this."""
    concentration_layers: int = 3
    """With fewer layers than this, concentration is not informative."""
    null_z: float = 3.0
    """An alignment is above its null from this many standard deviations on."""
    small_alignment: float = 0.05
    """A detectable alignment under this is called small."""
    confidence: float = 0.95
    """The level of every interval."""
    min_groups: int = 8
    """Fewer groups of samples than this are measured, with a warning."""
    frozen_loss_margin_nats: float = 0.05
    """D3 fails under this margin over the frozen baseline, where test losses are given: in nats a token."""

    JSON_REQUIRED = (
        "g_norm_floor", "h_norm_explosion_ratio", "stability_drift_ceiling", "frozen_acc_margin_pp",
        "direction_valid_cos", "direction_valid_share", "direction_noise_median", "cosine_eps", "clamp_share",
        "concentration", "concentration_layers", "null_z", "small_alignment", "confidence", "min_groups",
    )  # fmt: skip
    """Every card of format 1 has these. A threshold that is added later is not listed: a card without it was judged
    before it existed and is read with its default."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = convert(getattr(self, field.name), type(field.default), f"the threshold {field.name}")
            object.__setattr__(self, field.name, value)
        for name in ("g_norm_floor", "h_norm_explosion_ratio", "cosine_eps", "null_z", "confidence"):
            require_above(getattr(self, name), 0, f"the threshold {name}")
        for name in ("concentration_layers", "min_groups"):
            require_at_least(getattr(self, name), 2, f"the threshold {name}")
        _between(self, -1, 1, "stability_drift_ceiling", "direction_valid_cos", "direction_noise_median")
        _between(self, 0, 1, "direction_valid_share", "clamp_share", "concentration", "small_alignment")
        if self.confidence >= 1:
            raise InputError(f"the threshold confidence is {self.confidence}; expected less than 1, such as 0.95.")
        if self.direction_noise_median > self.direction_valid_cos:
            raise InputError(
                f"the threshold direction_noise_median is {self.direction_noise_median}, above direction_valid_cos "
                f"({self.direction_valid_cos}): a direction cannot be valid and noise at once. Lower it."
            )

    def depth_line(self, unit: str) -> float:
        """The margin over the frozen baseline that D3 and the depth claim ask for, in this unit."""
        return self.frozen_loss_margin_nats if unit == NATS else self.frozen_acc_margin_pp

    def changed(self) -> dict[str, Any]:
        """The thresholds that differ from their defaults, by name."""
        return settings.changed_settings(self)

    @staticmethod
    def from_json(stored: Mapping[str, Any]) -> DiagnosticThresholds:
        """The thresholds of a card; those that came after the card have their defaults."""
        return DiagnosticThresholds(**stored)


def _between(thresholds: DiagnosticThresholds, low: float, high: float, *names: str) -> None:
    for name in names:
        value = getattr(thresholds, name)
        if not low <= value <= high:
            raise InputError(f"the threshold {name} is {value}; expected a number from {low} to {high}.")

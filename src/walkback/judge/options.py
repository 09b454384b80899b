"""Options for judging measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from walkback.core.errors import InputError, unknown
from walkback.judge.editions import CLAIMS_EDITION, require_protocol
from walkback.judge.evidence import NULLS
from walkback.judge.headline import CLAIMED
from walkback.judge.thresholds import DiagnosticThresholds


@dataclass(frozen=True)
class JudgeOptions:
    """Thresholds, the edition that decides, the frozen baseline that decides, and what is claimed. Bad values are
    refused here, before anything is trained or measured."""

    thresholds: DiagnosticThresholds | None = None
    protocol: str = CLAIMS_EDITION
    null: Literal["method_shell", "bp_shell"] = "method_shell"
    claims: tuple[str, ...] = CLAIMED
    """The claims that the headline answers for: with ("depth",) a measured alignment is shown and decides nothing."""

    def __post_init__(self) -> None:
        require_protocol(self.protocol)
        if isinstance(self.claims, str):
            raise InputError(f"claims is {self.claims!r}; expected a list such as ['depth'].")
        for name in self.claims:
            if name not in CLAIMED:
                raise unknown("claim", name, CLAIMED)
        if "depth" not in self.claims:
            raise InputError("claims lacks 'depth': the question is whether the method trains the depth. Add it.")
        if self.null not in NULLS:
            raise unknown("null", self.null, NULLS)
        if not isinstance(self.thresholds, DiagnosticThresholds | None):
            raise InputError(f"thresholds is {self.thresholds!r}; expected a walkback.DiagnosticThresholds.")

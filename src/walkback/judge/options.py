"""Options for judging measurements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from walkback.core.errors import InputError, unknown
from walkback.judge.editions import edition
from walkback.judge.evidence import NULLS
from walkback.judge.thresholds import DiagnosticThresholds


@dataclass(frozen=True)
class JudgeOptions:
    """Thresholds, the edition that decides, and the frozen baseline that decides. Bad values are refused here, before
    anything is trained or measured."""

    thresholds: DiagnosticThresholds | None = None
    protocol: str = "three"
    null: Literal["method_shell", "bp_shell"] = "method_shell"

    def __post_init__(self) -> None:
        edition(self.protocol)
        if self.null not in NULLS:
            raise unknown("null", self.null, NULLS)
        if not isinstance(self.thresholds, DiagnosticThresholds | None):
            raise InputError(f"thresholds is {self.thresholds!r}; expected a walkback.DiagnosticThresholds.")

"""How measurements are judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from walkback.judge.thresholds import DiagnosticThresholds


@dataclass(frozen=True)
class JudgeOptions:
    """Thresholds, the edition that decides, and the frozen baseline that decides."""

    thresholds: DiagnosticThresholds | None = None
    protocol: str = "three"
    null: Literal["method_shell", "bp_shell"] = "method_shell"

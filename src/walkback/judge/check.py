"""Run all checks.

A check is a pure function of quantities, evidence and thresholds that returns a flag. It does not raise an exception
for something that could not be measured: it returns a flag with the status `missing` and a reason.
"""

from __future__ import annotations

from collections.abc import Callable

from walkback.judge.checks import CHECKS
from walkback.judge.evidence import Evidence
from walkback.judge.flag import Flag
from walkback.judge.quantities import Quantities
from walkback.judge.thresholds import DiagnosticThresholds

__all__ = ["CHECKS", "run_checks"]

_Check = Callable[[Quantities, Evidence, DiagnosticThresholds], Flag]

_ORDER = ("d1", "d2", "direction", "d3", "concentration")
"""The protocol's order; other checks follow in alphabetical order."""


def run_checks(q: Quantities, evidence: Evidence, t: DiagnosticThresholds) -> dict[str, Flag]:
    """Every check's flag by its id, in the protocol's order."""
    names = sorted(CHECKS.names(), key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
    flags = [CHECKS.get(name)(q, evidence, t) for name in names]
    return {flag.id: flag for flag in flags}

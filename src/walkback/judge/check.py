"""What a check is, and how all of them are run.

A check is a pure function from quantities, evidence and thresholds to a flag. It never raises for a measurement that
could not be taken: that is a `missing` flag with its reason.
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
"""The protocol's order; checks of other packages follow by name."""


def run_checks(q: Quantities, evidence: Evidence, t: DiagnosticThresholds) -> dict[str, Flag]:
    """Every check's flag by its id, in the protocol's order."""
    names = sorted(CHECKS.names(), key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))
    flags = [CHECKS.get(name)(q, evidence, t) for name in names]
    return {flag.id: flag for flag in flags}

"""Judge measurements: flags, claims and a verdict from measurements, evidence and thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from walkback.core.measurements import FIRST_EDITION, Measurements
from walkback.judge import claims as claim_rules
from walkback.judge.check import run_checks
from walkback.judge.claims import Claim
from walkback.judge.editions import EDITIONS, Outcome, Verdict, decide, edition, withheld
from walkback.judge.evidence import Evidence
from walkback.judge.failure_modes import Mode, Step, chain, modes
from walkback.judge.flag import Flag
from walkback.judge.quantities import Quantities, quantities
from walkback.judge.statistics import Margin
from walkback.judge.thresholds import DiagnosticThresholds


@dataclass(frozen=True)
class DiagnosticReport:
    """The measurements of one method on one network, and everything judged from them."""

    verdict: Outcome
    flags: Mapping[str, Flag]
    claims: Mapping[str, Claim]
    reasons: tuple[str, ...]
    thresholds: DiagnosticThresholds
    protocol: str
    verdicts: Mapping[str, Verdict]
    """By edition; all editions, the deciding one included."""
    modes: tuple[Mode, ...]
    chain: tuple[Step, ...]
    quantities: Quantities
    margin: Margin | None
    """Accuracy minus that of the deciding frozen baseline, with its interval."""
    measurements: Measurements
    evidence: Evidence
    method_name: str = ""
    notes: str = ""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Origin of the measurements, as plain values: arch, data, digest, seed, shell, provenance, rerun, ... `missing`
    names evidence that is missing, in words: then every edition is inconclusive."""

    @property
    def decision(self) -> Verdict:
        """The deciding edition's verdict."""
        return self.verdicts[self.protocol]

    def rejudge(self, thresholds: DiagnosticThresholds | None = None, protocol: str | None = None) -> DiagnosticReport:
        """The same measurements under other thresholds or another edition; nothing is measured again."""
        return judge(
            self.measurements,
            self.evidence,
            thresholds or self.thresholds,
            protocol or self.protocol,
            self.method_name,
            self.notes,
            self.context,
            earlier=self.quantities,
        )

    def to_json(self) -> dict[str, Any]:
        """The audit card."""
        from walkback.judge.card_document import document  # It imports this class.

        return document(self)

    def save(self, folder: str | Path) -> list[Path]:
        """Write report.json, .md, .tex, .html and measurements.npz into `folder`, and return their paths."""
        from walkback.report.save import save_report  # A package above this one: imported only when needed.

        return save_report(self, folder)

    def __str__(self) -> str:
        from walkback.judge.card_text import card_text  # It imports this class.

        return card_text(self)


def judge(
    measurements: Measurements,
    evidence: Evidence | None = None,
    thresholds: DiagnosticThresholds | None = None,
    protocol: str = "three",
    method_name: str = "",
    notes: str = "",
    context: Mapping[str, Any] | None = None,
    *,
    earlier: Quantities | None = None,
) -> DiagnosticReport:
    """Judge stored measurements: a pure function that needs no model.

    `earlier` are quantities of the same measurements; they are used again if these thresholds give the same.
    """
    edition(protocol)
    t, known, around = thresholds or DiagnosticThresholds(), evidence or Evidence(), context or {}
    q = earlier if earlier is not None and earlier.hold_under(t) else quantities(measurements, t)
    flags = run_checks(q, known, t)
    missing = str(around.get("missing") or "")
    verdicts = {name: withheld(name, missing) if missing else _decided(name, flags, known) for name in EDITIONS}
    frozen = around.get("shell") not in (None, "none")
    first_edition = bool(measurements.facts.get(FIRST_EDITION, False))
    margin = claim_rules.depth_margin(known, _correct(measurements), t, first_edition)
    alignment = claim_rules.alignment(q, flags, t, frozen)
    if missing:
        alignment = Claim("alignment", "inconclusive", missing)
    depth = claim_rules.depth(margin, flags["D3"], known, t, frozen)
    found = modes(q, flags, alignment)
    return DiagnosticReport(
        verdict=verdicts[protocol].outcome,
        flags=flags,
        claims={"alignment": alignment, "depth": depth},
        reasons=verdicts[protocol].reasons,
        thresholds=t,
        protocol=protocol,
        verdicts=verdicts,
        modes=found,
        chain=chain(q, flags, known, depth, found, around),
        quantities=q,
        margin=margin,
        measurements=measurements,
        evidence=known,
        method_name=method_name,
        notes=notes,
        context=around,
    )


def _decided(name: str, flags: Mapping[str, Flag], evidence: Evidence) -> Verdict:
    return decide(name, flags, bool(evidence.frozen))


def _correct(m: Measurements) -> tuple[bool, ...]:
    stored = m.get("correct")
    return () if stored is None else tuple(bool(value) for value in stored)

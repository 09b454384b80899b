"""Judge measurements: flags, claims and a verdict from measurements, evidence and thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from walkback.core.measurements import FIRST_EDITION, Measurements
from walkback.judge.alignment_claim import judge_alignment
from walkback.judge.alignment_facts import alignment_facts
from walkback.judge.check import run_checks
from walkback.judge.claim import Claim
from walkback.judge.credit_claim import credit_facts, judge_credit
from walkback.judge.depth_claim import depth_facts, judge_depth
from walkback.judge.editions import CLAIMS_EDITION, EDITIONS, Outcome, Verdict, decide, require_protocol, withheld
from walkback.judge.evidence import Evidence
from walkback.judge.failure_modes import Mode, Step, chain, modes
from walkback.judge.first_edition import first_edition_alignment, first_edition_depth
from walkback.judge.flag import Flag
from walkback.judge.headline import CLAIMED, judge_headline
from walkback.judge.quantities import Quantities, quantities
from walkback.judge.statistics import Margin
from walkback.judge.thresholds import DiagnosticThresholds


@dataclass(frozen=True, repr=False)
class DiagnosticReport:
    """The measurements of one method on one network, and everything judged from them."""

    verdict: Outcome
    flags: Mapping[str, Flag]
    claims: Mapping[str, Claim]
    """`alignment`, `depth` and `credit`."""
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
    claimed: tuple[str, ...] = CLAIMED
    """The claims that the edition `claims` answers for."""
    context: Mapping[str, Any] = field(default_factory=dict)
    """Origin of the measurements, as plain values: arch, data, digest, seed, shell, provenance, rerun, ... `missing`
    names evidence that is missing, in words: then every edition is inconclusive."""

    @property
    def decision(self) -> Verdict:
        """The deciding edition's verdict."""
        return self.verdicts[self.protocol]

    def rejudge(
        self,
        thresholds: DiagnosticThresholds | None = None,
        protocol: str | None = None,
        evidence: Evidence | None = None,
    ) -> DiagnosticReport:
        """The same measurements under other thresholds, another edition or other accuracies; nothing is measured
        again."""
        return judge(
            self.measurements,
            evidence or self.evidence,
            thresholds or self.thresholds,
            protocol or self.protocol,
            self.method_name,
            self.notes,
            self.context,
            claimed=self.claimed,
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

    def to_dict(self) -> dict[str, Any]:
        """The audit card; the same as `to_json`."""
        return self.to_json()

    def to_frame(self) -> Any:
        """The numbers of every hidden state as a pandas data frame."""
        from walkback.report.notebook import data_frame, layer_rows

        return data_frame(layer_rows(self))

    def plot(self) -> Any:
        """Norms, reference gradients and credit cosines as a matplotlib figure."""
        from walkback.report.notebook import plot_report

        return plot_report(self)

    def __str__(self) -> str:
        from walkback.judge.card_text import card_text  # It imports this class.

        return card_text(self)

    def __repr__(self) -> str:
        claims = ", ".join(f"{name} {claim.shown}" for name, claim in self.claims.items())
        return f"<DiagnosticReport of {self.method_name or 'a model'}: {self.verdict.replace('_', ' ')}; {claims}>"

    def _repr_html_(self) -> str:
        from walkback.report.notebook import report_html

        return report_html(self)


def judge(
    measurements: Measurements,
    evidence: Evidence | None = None,
    thresholds: DiagnosticThresholds | None = None,
    protocol: str = CLAIMS_EDITION,
    method_name: str = "",
    notes: str = "",
    context: Mapping[str, Any] | None = None,
    *,
    claimed: Sequence[str] = CLAIMED,
    earlier: Quantities | None = None,
) -> DiagnosticReport:
    """Judge stored measurements: a pure function that needs no model.

    `earlier` are quantities of the same measurements; they are used again if these thresholds give the same.
    """
    require_protocol(protocol)
    t, known, around = thresholds or DiagnosticThresholds(), evidence or Evidence(), context or {}
    q = earlier if earlier is not None and earlier.hold_under(t) else quantities(measurements, t)
    flags = run_checks(q, known, t)
    first_edition = bool(measurements.facts.get(FIRST_EDITION))
    missing, frozen = str(around.get("missing") or ""), around.get("shell") not in (None, "none")
    depth = depth_facts(
        known,
        _correct(measurements),
        t,
        frozen=frozen,
        missing=flags["D3"].reason,
        not_finite=q.broken,
        majority_share=measurements.facts.get("majority_share"),
        unigram_entropy=measurements.facts.get("unigram_entropy"),
        first_edition=first_edition,
    )
    alignment = alignment_facts(q, t, frozen, missing)
    claims = {"alignment": judge_alignment(alignment), "depth": judge_depth(depth)}
    if first_edition:
        claims["alignment"] = first_edition_alignment(q, flags, t, frozen, missing)
        claims["depth"] = first_edition_depth(depth.margin, flags["D3"], known, t, frozen)
    claims["credit"] = judge_credit(credit_facts(known, depth, claims["depth"], t, is_exact=alignment.all_exact))
    verdicts = {CLAIMS_EDITION: judge_headline(claims, claimed, grows=flags["D1"].truth is True)}
    verdicts |= {name: decide(name, flags, bool(known.baselines), q.broken, first_edition) for name in EDITIONS}
    if missing:
        verdicts = {name: withheld(name, missing) for name in verdicts}
    found = modes(q, flags, claims["alignment"])
    return DiagnosticReport(
        verdict=verdicts[protocol].outcome,
        flags=flags,
        claims=claims,
        reasons=verdicts[protocol].reasons,
        thresholds=t,
        protocol=protocol,
        verdicts=verdicts,
        modes=found,
        chain=chain(q, flags, known, claims["depth"], found, around),
        quantities=q,
        margin=depth.margin,
        measurements=measurements,
        evidence=known,
        method_name=method_name,
        notes=notes,
        claimed=tuple(claimed),
        context=around,
    )


def _correct(m: Measurements) -> tuple[bool, ...]:
    stored = m.get("correct")
    return () if stored is None else tuple(bool(value) for value in stored)

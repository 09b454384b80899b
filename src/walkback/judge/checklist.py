"""The reporting checklist, answered from the measurements; what they do not contain stays [TODO]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from walkback.core.measurements import GROUP, Measurements
from walkback.judge.card_part import CardPart
from walkback.judge.evidence import Evidence
from walkback.judge.quantities import Quantities
from walkback.judge.statistics import Margin

TODO = "[TODO]"


@dataclass(frozen=True)
class ChecklistItem(CardPart):
    """One question of the reporting checklist."""

    question: str
    answer: str


def checklist(
    m: Measurements, q: Quantities, evidence: Evidence, margin: Margin | None, context: Mapping[str, Any]
) -> tuple[ChecklistItem, ...]:
    """The questions with their answers; `context` holds the facts that are not in the measurements."""
    facts = m.facts
    provenance = context.get("provenance") or {}
    answers = {
        "Norms of every hidden state reported, without normalising first?": _hidden(m),
        "Gradient norm of every layer, and the batch it is quoted for?": _grads(m),
        "Direction of the reference checked in float64?": q.top.direction.reason,
        "Cosines without a clamp, with excluded samples counted?": _cosines(q),
        "Which aggregation over layers, and are exact layers counted?": _aggregation(q, facts),
        "Reference and credit from one frozen forward pass, in evaluation mode?": context.get("one_pass") or TODO,
        "Which samples, how many, and their hash?": _samples(facts),
        "Which dtype, and which pooling of tokens?": f"{q.dtype}, pool {facts.get('pool', 'unknown')}",
        "Credit compared with its null?": _null(q),
        "Feedback or bridges saved and used for measuring?": context.get("rule_state") or TODO,
        "Matched frozen-blocks baseline, and by which rule its shell was trained?": _baseline(evidence),
        "How many seeds, what is the spread, and is it paired?": _seeds(margin),
        "Final-epoch weights, never the best epoch on test data?": context.get("weights") or TODO,
        "Versions, commit, device and command recorded?": TODO if not provenance else "yes, under provenance",
    }
    return tuple(ChecklistItem(question, str(answer)) for question, answer in answers.items())


def _hidden(m: Measurements) -> str:
    return TODO if m.get("hidden_norm") is None else "yes, means of per-sample L2 norms in float64"


def _grads(m: Measurements) -> str:
    return TODO if m.get("grad_norm") is None else f"yes, @{GROUP}: the gradient of the mean loss of {GROUP} samples"


def _cosines(q: Quantities) -> str:
    excluded = [layer.credit.excluded for layer in q.layers if layer.credit is not None]
    if not excluded:
        return "no credit was measured"
    return f"yes; excluded by layer: {', '.join(map(str, excluded))} of {q.samples}"


def _aggregation(q: Quantities, facts: Mapping[str, Any]) -> str:
    if not q.has_credit:
        return "no credit was measured"
    exact = [str(layer.index) for layer in q.layers if layer.credit is not None and layer.credit.label == "exact"]
    which = f"exact by construction: layer {', '.join(exact)}" if exact else "no layer is exact by construction"
    return f"A1 to A4 and deep_mean, each named; site {facts.get('site')}; {which}"


def _samples(facts: Mapping[str, Any]) -> str:
    return f"{facts['samples']} in {facts['groups']} groups of {GROUP}, hash {facts.get('sample_hash') or TODO}"


def _null(q: Quantities) -> str:
    if not q.has_credit:
        return "no credit was measured"
    a = q.aggregates
    fresh = "" if a.deep_mean_fresh is None else f"; fresh feedback z = {a.deep_mean_fresh.z:.1f}"
    return f"random rotations z = {a.deep_mean_z:.1f}{fresh}"


def _baseline(evidence: Evidence) -> str:
    return f"given: {', '.join(evidence.baselines)}; {evidence.deciding} decides" if evidence.baselines else TODO


def _seeds(margin: Margin | None) -> str:
    if margin is None:
        return TODO
    spread = "no spread" if margin.sd is None else f"spread {margin.sd:.2g} {margin.unit}, ddof = 1"
    return f"{margin.n} {margin.counts}, {spread}"

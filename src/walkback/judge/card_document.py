"""The audit card: a report as plain JSON, without NaN or infinity; `report.schema.json` beside this describes it."""

from __future__ import annotations

import dataclasses
from typing import Any

from walkback.core.jsonable import jsonable
from walkback.core.version import __version__
from walkback.judge import statistics
from walkback.judge.card import seal
from walkback.judge.checklist import TODO, checklist
from walkback.judge.evidence import NULLS, UNNAMED
from walkback.judge.layers import Layer
from walkback.judge.report import DiagnosticReport

CARD_FORMAT = 1
"""The card's format number; a reader refuses any other."""


def document(report: DiagnosticReport) -> dict[str, Any]:
    """Everything the card shows, in one place."""
    q, context = report.quantities, report.context
    card = {
        "format": CARD_FORMAT,
        "walkback": __version__,
        "verdict": report.verdict,
        "sentence": report.decision.sentence,
        "protocol": report.protocol,
        "verdicts": {name: verdict.to_json() for name, verdict in report.verdicts.items()},
        "claim": _claim(report),
        "checks": [flag.to_json() for flag in report.flags.values()],
        "claims": {name: claim.to_json() for name, claim in report.claims.items()},
        "chain": [step.to_json() for step in report.chain],
        "modes": [mode.to_json() for mode in report.modes],
        "measured": _measured(report),
        "layers": [layer.to_json() for layer in q.layers],
        "aggregates": q.aggregates.to_json(),
        "statistics": _statistics(report),
        "thresholds": report.thresholds.to_json(),
        "provenance": jsonable(context.get("provenance") or {}),
        "limits": limits(report),
        "checklist": checklist(report.measurements, q, report.evidence, report.margin, context),
        "rerun": _lines(context.get("rerun")),
    }
    return seal(card)


def _claim(report: DiagnosticReport) -> dict[str, Any]:
    context = report.context
    return {
        "method": report.method_name or TODO,
        "arch": str(context.get("arch") or TODO),
        "data": str(context.get("data") or TODO),
        "digest": str(context.get("digest") or TODO),
        "seed": context.get("seed"),
        "notes": report.notes,
        **report.evidence.to_json(),
        "alignment": report.quantities.aggregates.a1.to_json(),
    }


def _measured(report: DiagnosticReport) -> dict[str, Any]:
    facts, q = report.measurements.facts, report.quantities
    return {
        "layers": q.depth + 1,
        "samples": q.samples,
        "groups": q.groups,
        "dtype": q.dtype,
        "pool": facts.get("pool"),
        "site": facts.get("site"),
        "sample_hash": facts.get("sample_hash"),
        "found": [str(line) for line in facts.get("found") or ()],
        "error_norm": q.error_norm.to_json(),
        "grad_over_error": q.grad_over_error.to_json(),
        "deep_layers": list(q.aggregates.deep_layers),
    }


def _statistics(report: DiagnosticReport) -> dict[str, Any]:
    margin = report.margin
    if margin is None:
        pairing = "none"
    else:
        pairing = {"paired seeds": "by seed", "samples": "by sample (McNemar)"}.get(margin.counts, "not paired")
    return {
        "n": 0 if margin is None else margin.n,
        "counts": "seeds" if margin is None else margin.counts,
        "ddof": 1,
        "pairing": pairing,
        "mean": None if margin is None else margin.mean,
        "sd": None if margin is None else margin.sd,
        "interval": None if margin is None or margin.interval is None else list(margin.interval),
        "confidence": report.thresholds.confidence,
        "minimum_detectable_margin": None if margin is None else statistics.detectable_margin(margin),
        "unit": "pp",
        "words": statistics.interval_text(margin),
    }


def limits(report: DiagnosticReport) -> list[str]:
    """What a reader must know before leaning on the verdict."""
    facts, q, t = report.measurements.facts, report.quantities, report.thresholds
    said = ["A verdict rules out the audited failures; it certifies no method."]
    defaults = {f.name: f.default for f in dataclasses.fields(t)}
    said += [f"The threshold {name} is {value:g}, not {defaults[name]:g}." for name, value in t.changed().items()]
    said += [f"Skipped: {line}" for line in facts.get("skipped") or ()]
    said += [str(line) for line in report.context.get("notes") or ()]
    if q.groups < t.min_groups:
        said.append(f"Only {q.groups} groups of samples were measured; {t.min_groups} or more are asked for.")
    if report.measurements.get("grad_cos64") is None:
        said.append("There was no float64 replay: directions are not checked.")
    if not report.evidence.frozen:
        said.append("No frozen baseline was given: depth utility is not checked.")
    if report.evidence.deciding == UNNAMED:
        said.append(f"The frozen baseline is a bare number ({NULLS[UNNAMED]}).")
    if not q.has_credit:
        said.append("No credit was measured: nothing is said about alignment.")
    if q.has_credit and all(_is_gradient(layer) for layer in q.layers):
        said.append(
            "The credit is the gradient itself at every layer, and nothing says it should be: check its source."
        )
    others = {name: v.outcome for name, v in report.verdicts.items() if v.outcome != report.verdict}
    said += [f"The edition '{name}' concludes otherwise: {outcome}." for name, outcome in others.items()]
    return said


def _is_gradient(layer: Layer) -> bool:
    """A credit that was not saved and was replaced by backprop reads 1.0 everywhere."""
    credit = layer.credit
    return credit is not None and credit.label == "none" and credit.cos.ok and credit.cos.known > 1 - 1e-6


def _lines(given: Any) -> list[str]:
    """One command, or several."""
    return [given] if isinstance(given, str) else [str(line) for line in given or ()]

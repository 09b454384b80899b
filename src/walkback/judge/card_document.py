"""Write a report as an audit card: plain JSON, without NaN or infinity; `card_schema` defines its structure."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from walkback.core.jsonable import jsonable
from walkback.core.measurements import DERIVATIVE, RULE_CREDIT, Array
from walkback.core.version import __version__
from walkback.judge import statistics
from walkback.judge.card import CheckedCard, seal
from walkback.judge.card_schema import AuditCard, CardClaim, CardMeasured, CardStatistics
from walkback.judge.checklist import TODO, checklist
from walkback.judge.evidence import NULLS, UNNAMED
from walkback.judge.layers import Layer
from walkback.judge.rejudging import rejudging_of
from walkback.judge.report import DiagnosticReport
from walkback.judge.statistics import NATS


def document(report: DiagnosticReport) -> dict[str, Any]:
    """The card of a report, with its hash."""
    context = report.context
    card = AuditCard(
        walkback=__version__,
        verdict=report.verdict,
        sentence=report.decision.sentence,
        protocol=report.protocol,
        verdicts=report.verdicts,
        claim=_claim(report),
        checks=tuple(report.flags.values()),
        claims=report.claims,
        claimed=report.claimed,
        chain=report.chain,
        modes=report.modes,
        measured=_measured(report),
        layers=report.quantities.layers,
        blocks=report.quantities.blocks,
        aggregates=report.quantities.aggregates,
        statistics=_statistics(report),
        thresholds=report.thresholds,
        rejudging=rejudging_of(report),
        provenance=jsonable(context.get("provenance") or {}),
        limits=tuple(limits(report)),
        checklist=checklist(report.measurements, report.quantities, report.evidence, report.margin, context),
        rerun=_lines(context.get("rerun")),
    )
    return CheckedCard(seal(card.to_json()))


def _claim(report: DiagnosticReport) -> CardClaim:
    context, evidence = report.context, report.evidence
    return CardClaim(
        method=report.method_name or TODO,
        arch=str(context.get("arch") or TODO),
        data=str(context.get("data") or TODO),
        digest=str(context.get("digest") or TODO),
        seed=context.get("seed"),
        notes=report.notes,
        seeds=evidence.seeds,
        headline_acc=evidence.headline_acc,
        frozen=evidence.frozen,
        bp_acc=evidence.bp_acc,
        null=evidence.deciding,
        test_samples=evidence.test_samples,
        oracles=evidence.oracles,
        losses=evidence.losses,
        alignment=report.quantities.aggregates.a1,
    )


def _measured(report: DiagnosticReport) -> CardMeasured:
    facts, q = report.measurements.facts, report.quantities
    return CardMeasured(
        layers=q.depth + 1,
        samples=q.samples,
        groups=q.groups,
        dtype=q.dtype,
        pool=facts.get("pool"),
        site=facts.get("site"),
        sample_hash=facts.get("sample_hash"),
        found=tuple(str(line) for line in facts.get("found") or ()),
        error_norm=q.error_norm,
        grad_over_error=q.grad_over_error,
        deep_layers=q.aggregates.deep_layers,
    )


def _statistics(report: DiagnosticReport) -> CardStatistics:
    margin = report.margin
    if margin is None:
        pairing = "none"
    else:
        by_sample = "by window" if margin.unit == NATS else "by sample (McNemar)"
        pairing = {"paired seeds": "by seed", "samples": by_sample}.get(margin.counts, "not paired")
    return CardStatistics(
        n=0 if margin is None else margin.n,
        counts="seeds" if margin is None else margin.counts,
        pairing=pairing,
        mean=None if margin is None else margin.mean,
        sd=None if margin is None else margin.sd,
        interval=None if margin is None else margin.interval,
        confidence=report.thresholds.confidence,
        minimum_detectable_margin=None if margin is None else statistics.detectable_margin(margin),
        words=statistics.interval_text(margin),
        unit="nats" if margin is not None and margin.unit == NATS else "pp",
    )


def limits(report: DiagnosticReport) -> list[str]:
    """What a reader must know before relying on the verdict."""
    facts, q, t = report.measurements.facts, report.quantities, report.thresholds
    lines = ["A verdict rules out the audited failures; it certifies no method."]
    defaults = {f.name: f.default for f in dataclasses.fields(t)}
    lines += [f"The threshold {name} is {value:g}, not {defaults[name]:g}." for name, value in t.changed().items()]
    lines += [f"Skipped: {line}" for line in facts.get("skipped") or ()]
    lines += [str(line) for line in report.context.get("notes") or ()]
    if q.groups < t.min_groups:
        lines.append(f"Only {q.groups} groups of samples were measured; {t.min_groups} or more are asked for.")
    if repeats := facts.get("repeated_samples"):
        lines.append(
            f"{repeats} of {q.samples} evaluation samples repeat an earlier one (distinct=False): the samples are not "
            "independent, and intervals over them are too narrow."
        )
    if report.measurements.get("grad_cos64") is None:
        lines.append("There was no float64 replay: directions are not checked.")
    lines += _origin_lines(report)
    if not report.evidence.baselines:
        lines.append("No frozen baseline was given: depth utility is not checked.")
    if report.evidence.deciding == UNNAMED:
        lines.append(f"The frozen baseline is a bare number ({NULLS[UNNAMED]}).")
    if not q.has_credit:
        lines.append("No credit was measured: nothing is said about alignment.")
    if q.has_credit and all(_is_gradient(layer) for layer in q.layers):
        lines.append(
            "The credit is the gradient itself at every layer, and nothing says it should be: check its source."
        )
    others = {name: v.outcome for name, v in report.verdicts.items() if v.outcome != report.verdict}
    lines += [f"The edition '{name}' concludes otherwise: {outcome}." for name, outcome in others.items()]
    return lines


def _origin_lines(report: DiagnosticReport) -> list[str]:
    """Where the credit and the reference come from, if that is not the rule and the checked derivative."""
    facts, errors = report.measurements.facts, report.measurements.get("reference_error")
    lines = [] if facts.get("credit") in (None, RULE_CREDIT) else [f"Credit: {facts['credit']}."]
    if facts.get("reference") not in (None, DERIVATIVE):
        return [*lines, f"The reference is {facts['reference']} and was not checked."]
    if facts.get("reference") is not None and report.measurements.get("grad_cos64") is not None:
        unchecked = [str(index) for index in range(report.quantities.depth + 1) if _is_unchecked(errors, index)]
        if unchecked:
            lines.append(f"The reference was not checked by finite differences at layer {', '.join(unchecked)}.")
    return lines


def _is_unchecked(errors: Array | None, index: int) -> bool:
    return errors is None or not bool(np.isfinite(errors[index]).any())


def _is_gradient(layer: Layer) -> bool:
    """Whether the cosine is 1 although nothing makes it exact, as where lost feedback was replaced by backprop."""
    credit = layer.credit
    return credit is not None and credit.label == "none" and credit.cos.ok and credit.cos.known > 1 - 1e-6


def _lines(commands: Any) -> tuple[str, ...]:
    """One command, or several."""
    return (commands,) if isinstance(commands, str) else tuple(str(line) for line in commands or ())

"""Measure and judge a user's own model. Nothing of `walkback.training` is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from walkback.core.errors import InputError
from walkback.judge.evidence import Accuracies, Evidence
from walkback.judge.options import JudgeOptions
from walkback.judge.report import DiagnosticReport, judge
from walkback.measure.discovery import Blocks, subject_of
from walkback.measure.inputs import regroup
from walkback.measure.module_subject import StepFn
from walkback.measure.restore import measurement_mode
from walkback.measure.snapshot import Pool, measure
from walkback.measure.subject import CreditFunction
from walkback.runs.provenance import provenance

ONE_PASS = "yes: one frozen pass for each group of samples, in evaluation mode"


def diagnose_model(
    model: nn.Module,
    eval_batches: Iterable[Any],
    accuracies: Mapping[str, Accuracies | Mapping[str, Accuracies]],
    judge_options: JudgeOptions,
    *,
    method_name: str,
    notes: str,
    credit: CreditFunction | None,
    blocks: Blocks,
    pool: Pool,
    step_fn: StepFn | None,
) -> DiagnosticReport:
    """Measure a model someone else made, leaving it as it was, and judge it."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model is a {type(model).__name__}; expected a torch.nn.Module.")
    evidence = Evidence.of(**accuracies, null=judge_options.null)  # type: ignore[arg-type]
    groups = regroup(eval_batches)
    with measurement_mode(model):
        subject = subject_of(model, blocks, *groups[0], step_fn)
        measurements = measure(subject, groups, credit=credit, pool=pool)
    context = {"arch": type(model).__name__, "provenance": provenance(subject.device, ()), "one_pass": ONE_PASS}
    return judge(measurements, evidence, judge_options.thresholds, judge_options.protocol, method_name, notes, context)

"""Measure and judge a user's own model. Nothing of `walkback.training` is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from torch import nn

from walkback.core.errors import InputError, unknown
from walkback.core.measurements import Measurements
from walkback.judge.evidence import Accuracies, Evidence
from walkback.judge.layers import LayerLabel
from walkback.judge.options import JudgeOptions
from walkback.judge.report import DiagnosticReport, judge
from walkback.measure.discovery import subject_of
from walkback.measure.inputs import Groups, joined_samples, regroup
from walkback.measure.module_subject import ModuleSubject, UpdateFunction
from walkback.measure.options import MeasureOptions
from walkback.measure.preconditions import require_measurable, require_module
from walkback.measure.restore import measurement_mode
from walkback.measure.snapshot import measure
from walkback.measure.updates import part_cosine
from walkback.nets.block_calls import StepFn
from walkback.nets.find_blocks import Blocks, unwrap
from walkback.runs.provenance import provenance

ONE_PASS = "yes: one frozen pass for each group of samples, in evaluation mode"


def diagnose_model(
    model: nn.Module,
    eval_batches: Iterable[Any],
    accuracies: Mapping[str, Accuracies | Mapping[str, Accuracies] | int],
    judge_options: JudgeOptions,
    *,
    method_name: str,
    notes: str,
    blocks: Blocks | None,
    step_fn: StepFn | None,
    options: MeasureOptions,
    distinct: bool = True,
) -> DiagnosticReport:
    """Measure a model someone else made, leaving it as it was, and judge it."""
    require_module(model)
    evidence = Evidence.of(**accuracies, null=judge_options.null)  # type: ignore[arg-type]
    groups = regroup(eval_batches, distinct=None if distinct else False)
    subject, measurements = measure_model(model, groups, blocks, step_fn, options)
    context = {"arch": type(model).__name__, "provenance": provenance(subject.device, ()), "one_pass": ONE_PASS}
    return judge(
        measurements,
        evidence,
        judge_options.thresholds,
        judge_options.protocol,
        method_name,
        notes,
        context,
        claimed=judge_options.claims,
    )


_BY_MODEL = ("credit", "fresh", "update", "reference", "initial")
"""Options that may be lists with one entry for each of several models."""


def diagnose_models(
    models: Sequence[nn.Module],
    eval_batches: Iterable[Any],
    accuracies: Mapping[str, Accuracies | Mapping[str, Accuracies] | int],
    judge_options: JudgeOptions,
    given: Mapping[str, Any],
    **what: Any,
) -> list[DiagnosticReport]:
    """Measure the models of one method's seeds on the same samples; each is judged with the accuracies of all."""
    if not models:
        raise InputError("The list of models is empty; give one model for each seed.")
    batches = list(eval_batches)
    if given["train_batches"] is not None:
        given = {**given, "train_batches": list(given["train_batches"])}
    for name in _BY_MODEL:
        if isinstance(given[name], list | tuple) and len(given[name]) != len(models):
            raise InputError(f"{name}= has {len(given[name])} entries for {len(models)} models; expected one for each.")
    _require_one_each(accuracies["headline_acc"], len(models))
    reports = []
    for index, model in enumerate(models):
        own = {name: value[index] if _is_by_model(name, value) else value for name, value in given.items()}
        options = measure_options(**own)
        reports.append(diagnose_model(model, batches, accuracies, judge_options, options=options, **what))
    return reports


def _is_by_model(name: str, value: Any) -> bool:
    return name in _BY_MODEL and isinstance(value, list | tuple)


def _require_one_each(accuracies: Any, models: int) -> None:
    count = len(accuracies) if isinstance(accuracies, Sequence) else 0 if accuracies is None else 1
    if count not in (0, models):
        raise InputError(f"headline_acc has {count} accuracies for {models} models; expected one for each, in order.")


def measure_model(
    model: nn.Module, groups: Groups, blocks: Blocks | None, step_fn: StepFn | None, options: MeasureOptions
) -> tuple[ModuleSubject, Measurements]:
    """Find the blocks of a model and measure it; the model is left as it was."""
    with measurement_mode(model):
        subject = subject_of(model, "auto" if blocks is None else blocks, *groups[0], step_fn)
        return subject, measure(subject, groups, options)


def measure_options(
    *,
    exact: Sequence[int] = (),
    labels: Sequence[str] | None = None,
    initial: nn.Module | Mapping[str, Any] | None = None,
    train_batches: Iterable[Any] | None = None,
    **given: Any,
) -> MeasureOptions:
    """The options of a user's call, refused if they are not of the expected kind."""
    for name, allowed in (("pool", ("auto", "cls", "mean", "all")), ("null_space", (None, "features", "all"))):
        if given[name] not in allowed:
            raise unknown(name, given[name], [str(each) for each in allowed])
    credit = given["credit"]
    if not (callable(credit) or credit in ("auto", "backward", None)):
        raise InputError(f'credit is {credit!r}; expected a function of a frozen pass, "auto", "backward" or None.')
    for name in ("reference", "fresh", "update"):
        if not (given[name] is None or callable(given[name])):
            raise InputError(f"{name} is a {type(given[name]).__name__}; expected a function.")
    known = get_args(LayerLabel)
    for label in labels or ():
        if label not in known:
            raise unknown("label", label, known)
    weights = initial.state_dict() if isinstance(initial, nn.Module) else initial
    if not (weights is None or isinstance(weights, Mapping)):
        raise InputError(f"initial is a {type(initial).__name__}; expected a model before training, or its state_dict.")
    train = None
    if train_batches is not None:
        x, y = joined_samples(train_batches)
        if y is None:
            raise InputError("train_batches have no labels; expected (x, y) pairs.")
        train = x, y
    return MeasureOptions(labels=labels, exact=tuple(exact), initial=weights, train=train, **given)


def measure_update_alignment(
    model: nn.Module, batch: Any, update: UpdateFunction | None = None, step_fn: StepFn | None = None
) -> dict[str, float]:
    """For each parameter, the cosine of its gradient in training with that of the mean loss of one batch.

    The gradient in training is what `update` leaves in `.grad`, or what the model's own backward pass leaves there.
    """
    require_module(model)
    if not (isinstance(batch, tuple | list) and len(batch) == 2):
        raise InputError(f"batch is a {type(batch).__name__}; expected a pair (x, y).")
    model, _ = unwrap(model)
    require_measurable(model)
    with measurement_mode(model):
        subject, (x, y) = ModuleSubject(model, (), "state", step_fn), batch
        if update is not None:
            found = subject.user_updates(x, y, update)
        else:
            seen = subject.run(x, y, updates=True)
            if seen.updates is None:
                raise InputError(f"There are no gradients in training: {seen.backward_problem}. Give update=.")
            found = seen.updates
    return {name: float(part_cosine(found.made, found.true, [name])) for name in found.true}

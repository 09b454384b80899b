"""Watch a model in a training loop of your own: measure every few steps, log, stop early, write the card.

    watch = walkback.Watch(model, eval_batches, every=100, stop_on=["D2"])
    for x, y in loader:
        ...
        optimiser.step()
        if watch.step():
            break
    watch.finish()

Training is not disturbed: weights, gradients, buffers, modes and random streams are the same as without a watch.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from walkback.auditing.diagnose_model import diagnose_model
from walkback.core.errors import InputError
from walkback.core.measurements import Measurements
from walkback.core.settings import convert, require_at_least
from walkback.judge.card_part import finite
from walkback.judge.editions import CLAIMS_EDITION, require_protocol
from walkback.judge.evidence import Evidence
from walkback.judge.flag import Flag
from walkback.judge.options import JudgeOptions
from walkback.judge.quantities import Quantities, quantities
from walkback.judge.report import DiagnosticReport
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.measure.detector_readings import DetectorReading
from walkback.measure.discovery import subject_of
from walkback.measure.inputs import regroup
from walkback.measure.module_subject import ModuleSubject
from walkback.measure.options import CreditSource, MeasureOptions, Pool
from walkback.measure.preconditions import require_module
from walkback.measure.restore import measurement_mode
from walkback.measure.snapshot import measure
from walkback.nets.block_calls import StepFn
from walkback.nets.find_blocks import Blocks
from walkback.runs.provenance import provenance
from walkback.watching.detectors import first_alarms, flags_of, parse_alarms, raised_in
from walkback.watching.journal import Journal, WatchRow, alarm_names, first_alarms_text
from walkback.watching.unwrap import broadcast_from_rank_zero, is_rank_zero, original_forward

Logger = Callable[[Mapping[str, Any]], None]
"""A function that is called with each row as it is written."""


class Watch:
    """Measures a model while it is trained.

    `eval_batches` are read once and kept: (x, y) pairs, at least 8 groups of 128 samples, as in `diagnose`. The model
    is measured at the start and then every `every` steps (None: only when `measure` is called). `stop_on` names
    detectors (D1, D2, D2@1024, direction); the training stops when one of them fails, or all of a tuple of them in the
    same measurement. The journal and the card are written into the folder `out`; `resume` continues an existing
    journal, after step `start` if training was resumed from an earlier checkpoint. `loggers` are called with each row.
    In distributed training, make a watch in every process: rank 0 measures and writes, and all stop together.
    """

    def __init__(
        self,
        model: nn.Module,
        eval_batches: Iterable[Any],
        *,
        every: int | None = 100,
        out: str | Path = "watch",
        resume: bool = False,
        start: int | None = None,
        thresholds: DiagnosticThresholds | None = None,
        protocol: str = CLAIMS_EDITION,
        stop_on: str | Sequence[str | Sequence[str]] = (),
        method_name: str = "",
        blocks: Blocks = "auto",
        pool: Pool = "auto",
        step_fn: StepFn | None = None,
        credit: CreditSource = "auto",
        loggers: Sequence[Logger] = (),
    ):
        require_module(model)
        require_protocol(protocol)
        self.every: int | None = None if every is None else convert(every, int, "every")
        require_at_least(1 if self.every is None else self.every, 1, "every")
        self.out = Path(out)
        self.should_stop = False
        self.report: DiagnosticReport | None = None
        """The card, after the training was stopped or finished."""
        self._model = model
        self._subject: ModuleSubject | None = None
        self._thresholds, self._protocol = thresholds or DiagnosticThresholds(), protocol
        self._alarms = parse_alarms(stop_on)
        self._blocks, self._step_fn = blocks, step_fn
        self._measure_options = MeasureOptions(credit=credit, pool=pool)
        self._name, self._loggers, self._is_over = method_name, tuple(loggers), False
        self._is_rank_zero = is_rank_zero()
        self.steps = start or 0
        """Optimiser steps done so far."""
        self.first: dict[str, int | None] = first_alarms([], self._thresholds, "step")
        """The step at which each detector first failed."""
        if self._is_rank_zero:
            self._start_journal(eval_batches, resume, start)

    def step(self, step: int | None = None, epoch: float | None = None) -> bool:
        """Call after each optimiser step; measures when it is time and returns whether to stop.

        `step` is the number of steps done in the whole training (default: one more than at the last call).
        """
        now = self.steps + 1 if step is None else step
        if now < self.steps:
            raise InputError(
                f"step={now} comes after step {self.steps}. Count steps over the whole training, not within an epoch."
            )
        is_due = self.every is not None and now // self.every > self.steps // self.every
        self.steps = now
        if is_due:
            self.measure(epoch)
        return self.should_stop

    def measure(self, epoch: float | None = None) -> WatchRow | None:
        """Measure now, at any step; returns the new row of the journal (None after the end of the watch)."""
        if self._is_over:
            return None
        row = self._measure_or_problem(epoch) if self._is_rank_zero else None
        if row is not None:
            self._record_row(row)
        alarm = broadcast_from_rank_zero(self._triggered_alarm(row) if row is not None else "")
        if alarm:
            self.should_stop = True
            self._end("stopped", f"stopped at step {self.steps} by {alarm}", Evidence())
        return row

    def look(self, epoch: float | None = None) -> WatchRow | None:
        """The same as `measure`, by its older name."""
        return self.measure(epoch)

    def finish(
        self, headline_acc: Any = None, frozen_baseline_acc: Any = None, bp_acc: Any = None
    ) -> DiagnosticReport | None:
        """Take the full measurement with its float64 replay and write the card; after a stop, return the stop's card.

        Accuracies are those of `diagnose`. After the end, as when a callback has finished the watch, the card is judged
        again with the accuracies given now, and written again. Returns None on ranks other than 0 and, with a warning,
        if the model can no longer be measured.
        """
        evidence = Evidence.of(headline_acc, frozen_baseline_acc, bp_acc)
        if not self._is_over:
            self._end("done", f"finished after step {self.steps}", evidence)
        elif self.report is not None and evidence != Evidence():
            self.report = self.report.rejudge(evidence=evidence)
            self.report.save(self.out)
            self._journal.update_record({"verdict": self.report.verdict})
        return self.report

    def interrupt(self, why: str = "interrupted") -> None:
        """Close the journal without a card, because training was interrupted."""
        if self._is_rank_zero and not self._is_over:
            self._journal.update_record({"status": "interrupted", "reason": f"{why} after step {self.steps}"})
        self._is_over = True

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.interrupt(kind.__name__)

    def _start_journal(self, eval_batches: Iterable[Any], resume: bool, start: int | None) -> None:
        self._journal = Journal(self.out, resume)
        rows = self._journal.rows
        self.steps = start if start is not None else rows[-1]["step"] if rows else 0
        # Reading a loader draws from the random streams.
        with measurement_mode(self._model):
            self._groups = regroup(eval_batches)
        row = self._measure_row(None)  # Raises now, before training, if the model or the samples cannot be measured.
        self._journal.start(self._facts(), self.steps)
        kept = self._journal.rows
        self.first = first_alarms(kept, self._thresholds, "step")
        if not kept or kept[-1]["step"] < self.steps:
            self._record_row(row)

    def _facts(self) -> dict[str, Any]:
        assert self._subject is not None
        return {
            "method": self._name,
            "model": type(self._model).__name__,
            "every": self.every,
            "stop_on": alarm_names(self._alarms),
            "protocol": self._protocol,
            "thresholds": asdict(self._thresholds),
            "found": list(self._subject.found),
            "sample_hash": self._groups.sample_hash,
            **provenance(self._subject.device, ()),
        }

    def _measure_or_problem(self, epoch: float | None) -> WatchRow:
        """A row of measurements, or of the reason why the model can no longer be measured; training continues."""
        try:
            return self._measure_row(epoch)
        except (InputError, torch.OutOfMemoryError) as error:
            return {"step": self.steps, "epoch": epoch, "flags": {}, "problem": str(error)}

    def _measure_row(self, epoch: float | None) -> WatchRow:
        began = time.perf_counter()
        with original_forward(self._model), measurement_mode(self._model):
            subject = self._as_subject()
            measurements = measure(subject, self._groups, replace(self._measure_options, replay=False))
        q = quantities(measurements, self._thresholds)
        row = _row(self.steps, epoch, q, flags_of(q, self._thresholds), measurements)
        return {**row, "seconds": round(time.perf_counter() - began, 4)}

    def _as_subject(self) -> ModuleSubject:
        """The model with its blocks, found once, and again after the model was moved or cast."""
        first = next((p for p in self._model.parameters() if p.is_floating_point()), None)
        known = self._subject
        if known is None or first is None or (first.dtype, first.device) != (known.dtype, known.device):
            self._subject = known = subject_of(self._model, self._blocks, *self._groups[0], self._step_fn)
        return known

    def _record_row(self, row: WatchRow) -> None:
        self._journal.append(row)
        for name in raised_in(row, self._thresholds):
            if self.first[name] is None:
                self.first[name] = self.steps
                self._journal.update_record({"first": self.first})
        for logger in self._loggers:
            logger(row)

    def _triggered_alarm(self, row: WatchRow) -> str:
        """The first alarm of `stop_on` whose detectors all fail in this row; empty if there is none."""
        raised = raised_in(row, self._thresholds)
        return next((" and ".join(alarm) for alarm in self._alarms if set(alarm) <= set(raised)), "")

    def _end(self, status: str, reason: str, evidence: Evidence) -> None:
        self._is_over = True
        if not self._is_rank_zero:
            return
        how = "on request" if self.every is None else f"every {self.every} steps"
        notes = f"Watched {how}; {reason}. First failed: {first_alarms_text(self.first)}."
        accuracies: dict[str, Any] = {
            "headline_acc": evidence.headline_acc,
            "frozen_baseline_acc": evidence.frozen,
            "bp_acc": evidence.bp_acc,
        }
        try:
            with original_forward(self._model):
                self.report = diagnose_model(
                    self._model,
                    self._groups,
                    accuracies,
                    JudgeOptions(self._thresholds, self._protocol),
                    method_name=self._name,
                    notes=notes,
                    blocks=self._blocks,
                    step_fn=self._step_fn,
                    options=self._measure_options,
                )
        except InputError as error:
            # The trained model must not be lost because the card failed: warn instead of raising.
            self._journal.update_record(
                {"status": "failed", "reason": f"{reason}; no card: {error}", "first": self.first}
            )
            warnings.warn(f"walkback wrote no card: {error}", stacklevel=3)
            return
        self.report.save(self.out)
        self._journal.update_record(
            {"status": status, "reason": reason, "verdict": self.report.verdict, "first": self.first}
        )


def _row(step: int, epoch: float | None, q: Quantities, flags: Mapping[str, Flag], m: Measurements) -> WatchRow:
    """One row of the journal, with the keys of a run's training log; values that are not finite are None."""
    reading = DetectorReading(
        growth=_or_nan(flags["D1"].value),
        grad_top=_or_nan(flags["D2"].value),
        direction=_or_nan(flags["direction"].value),
        hidden=tuple(_or_nan(layer.hidden_norm.value) for layer in q.layers),
        grad=tuple(_or_nan(layer.grad_norm_128.value) for layer in q.layers),
        cosine=tuple(_or_nan(layer.credit.cos.value) for layer in q.layers if layer.credit),
    )
    loss, correct = m.get("loss"), m.get("correct")
    numbers = {
        name: [finite(each) for each in value] if isinstance(value, tuple) else finite(value)
        for name, value in reading.to_json().items()
    }
    return {
        "step": step,
        "epoch": epoch,
        **numbers,
        "eval_loss": None if loss is None else finite(float(loss.mean())),
        "eval_acc": None if correct is None else float(correct.mean()),
        "flags": {name: flag.status for name, flag in flags.items()},
    }


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value

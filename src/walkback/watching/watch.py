"""Watch a model while someone else trains it: look every few steps, keep a journal, stop early, write the card.

    watch = walkback.Watch(model, eval_batches, every=100, stop_on=["D2"])
    for x, y in loader:
        ...
        optimiser.step()
        if watch.step():
            break
    watch.finish()

Training is not disturbed: weights, gradients, buffers, modes and random streams are as they would be without it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn

from walkback.auditing.diagnose_model import diagnose_model
from walkback.core.errors import InputError
from walkback.core.measurements import Measurements
from walkback.core.settings import convert, require_at_least
from walkback.judge.editions import edition
from walkback.judge.evidence import Evidence
from walkback.judge.flag import Flag, finite
from walkback.judge.options import JudgeOptions
from walkback.judge.quantities import Quantities, quantities
from walkback.judge.report import DiagnosticReport
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.measure.detector_readings import DetectorReading
from walkback.measure.discovery import Blocks, subject_of
from walkback.measure.foreign import ForeignSubject, StepFn
from walkback.measure.inputs import regroup
from walkback.measure.restore import left_as_found
from walkback.measure.snapshot import Pool, measure
from walkback.measure.subject import CreditFunction
from walkback.runs.provenance import provenance
from walkback.watching.detectors import alarms, first_of, flags_of, raised_in
from walkback.watching.journal import Journal, WatchRow, described, joined_rows
from walkback.watching.unwrap import as_written, is_first, said_by_first

Logger = Callable[[Mapping[str, Any]], None]
"""Hears each row as it is written."""


class Watch:
    """Detectors on a model in training.

    `eval_batches` are read once and kept: (x, y) pairs, at least 8 groups of 128 samples, as `diagnose` takes them.
    A look is taken at the start and then every `every` steps (None: only where `look` is called). `stop_on` names
    detectors (D1, D2, D2@1024, direction) any of which stops the training; a tuple in it stands for several raised in
    the same look. The journal and the card go into the folder `out`; `resume` goes on with one that is there, after
    step `start` where training was resumed from an earlier checkpoint. `loggers` are called with each row.
    Where training is distributed, make one in every process: the first looks and writes, all stop together.
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
        protocol: str = "three",
        stop_on: str | Sequence[str | Sequence[str]] = (),
        method_name: str = "",
        blocks: Blocks = "auto",
        pool: Pool = "auto",
        step_fn: StepFn | None = None,
        credit: CreditFunction | None = None,
        loggers: Sequence[Logger] = (),
    ):
        if not isinstance(model, nn.Module):
            raise InputError(f"model is a {type(model).__name__}; expected a torch.nn.Module.")
        edition(protocol)
        self.every: int | None = None if every is None else convert(every, int, "every")
        require_at_least(1 if self.every is None else self.every, 1, "every")
        self.out = Path(out)
        self.should_stop = False
        self.report: DiagnosticReport | None = None
        """The card, once the training was stopped or finished."""
        self._model = model
        self._subject: ForeignSubject | None = None
        self._thresholds, self._protocol = thresholds or DiagnosticThresholds(), protocol
        self._alarms = alarms(stop_on)
        self._how: dict[str, Any] = {"blocks": blocks, "pool": pool, "step_fn": step_fn, "credit": credit}
        self._name, self._loggers, self._is_over = method_name, tuple(loggers), False
        self._leads = is_first()
        self.steps = start or 0
        """Optimiser steps done so far."""
        self.first: dict[str, int | None] = first_of([], self._thresholds, "step")
        """The step at which each detector was first raised."""
        if self._leads:
            self._open(eval_batches, resume, start)

    def step(self, step: int | None = None, epoch: float | None = None) -> bool:
        """Tell that an optimiser step was done (the `step`-th of the training, or the next); look where it is time.

        Returns whether to stop.
        """
        now = self.steps + 1 if step is None else step
        if now < self.steps:
            raise InputError(
                f"step={now} comes after step {self.steps}. Count steps over the whole training, not within an epoch."
            )
        is_due = self.every is not None and now // self.every > self.steps // self.every
        self.steps = now
        if is_due:
            self.look(epoch)
        return self.should_stop

    def look(self, epoch: float | None = None) -> WatchRow | None:
        """Look now, whatever the step; returns the journal's new row (None once the watch is over)."""
        if self._is_over:
            return None
        row = self._seen(epoch) if self._leads else None
        if row is not None:
            self._keep(row)
        alarm = said_by_first(self._alarm(row) if row is not None else "")
        if alarm:
            self.should_stop = True
            self._end("stopped", f"stopped at step {self.steps} by {alarm}", Evidence())
        return row

    def finish(
        self, headline_acc: Any = None, frozen_baseline_acc: Any = None, bp_acc: Any = None
    ) -> DiagnosticReport | None:
        """Take the full measurement with its float64 replay and write the card; once stopped, the card of the stop.

        Accuracies are those `diagnose` takes. None in all but the first process of a distributed training, and, with a
        warning, where the model cannot be measured any more.
        """
        evidence = Evidence.of(headline_acc, frozen_baseline_acc, bp_acc)
        if not self._is_over:
            self._end("done", f"finished after step {self.steps}", evidence)
        return self.report

    def interrupt(self, why: str = "interrupted") -> None:
        """Close the journal without a card: training was broken off."""
        if self._leads and not self._is_over:
            self._journal.note({"status": "interrupted", "reason": f"{why} after step {self.steps}"})
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

    def _open(self, eval_batches: Iterable[Any], resume: bool, start: int | None) -> None:
        self._journal = Journal(self.out, resume)
        rows = self._journal.rows
        self.steps = start if start is not None else rows[-1]["step"] if rows else 0
        # A loader draws from the random streams when it is read.
        with left_as_found(self._model):
            self._groups = regroup(eval_batches)
        row = self._measured(None)  # Whatever is wrong with the model or the samples is said now, before training.
        self._journal.start(self._facts(), self.steps)
        kept = self._journal.rows
        self.first = first_of(kept, self._thresholds, "step")
        if not kept or kept[-1]["step"] < self.steps:
            self._keep(row)

    def _facts(self) -> dict[str, Any]:
        assert self._subject is not None
        return {
            "method": self._name,
            "model": type(self._model).__name__,
            "every": self.every,
            "stop_on": joined_rows(self._alarms),
            "protocol": self._protocol,
            "thresholds": asdict(self._thresholds),
            "found": list(self._subject.found),
            "sample_hash": self._groups.sample_hash,
            **provenance(self._subject.device, ()),
        }

    def _seen(self, epoch: float | None) -> WatchRow:
        """A row of numbers; a model that cannot be measured any more gives one that says why, and trains on."""
        try:
            return self._measured(epoch)
        except (InputError, torch.OutOfMemoryError) as error:
            return {"step": self.steps, "epoch": epoch, "flags": {}, "problem": str(error)}

    def _measured(self, epoch: float | None) -> WatchRow:
        began = time.perf_counter()
        with as_written(self._model), left_as_found(self._model):
            subject = self._as_subject()
            taken = measure(subject, self._groups, credit=self._how["credit"], pool=self._how["pool"], replay=False)
        q = quantities(taken, self._thresholds)
        row = _row(self.steps, epoch, q, flags_of(q, self._thresholds), taken)
        return {**row, "seconds": round(time.perf_counter() - began, 4)}

    def _as_subject(self) -> ForeignSubject:
        """The blocks are found once; again only after the model was moved or cast."""
        first = next((p for p in self._model.parameters() if p.is_floating_point()), None)
        known = self._subject
        if known is None or first is None or (first.dtype, first.device) != (known.dtype, known.device):
            how = self._how
            self._subject = known = subject_of(self._model, how["blocks"], *self._groups[0], how["step_fn"])
        return known

    def _keep(self, row: WatchRow) -> None:
        self._journal.append(row)
        for name in raised_in(row, self._thresholds):
            if self.first[name] is None:
                self.first[name] = self.steps
                self._journal.note({"first": self.first})
        for logger in self._loggers:
            logger(row)

    def _alarm(self, row: WatchRow) -> str:
        """The detectors to stop on that this row raises together; empty where there are none."""
        raised = raised_in(row, self._thresholds)
        return next((" and ".join(alarm) for alarm in self._alarms if set(alarm) <= set(raised)), "")

    def _end(self, status: str, reason: str, evidence: Evidence) -> None:
        self._is_over = True
        if not self._leads:
            return
        how = "when asked to" if self.every is None else f"every {self.every} steps"
        notes = f"Watched {how}; {reason}. First raised: {described(self.first)}."
        accuracies: dict[str, Any] = {
            "headline_acc": evidence.headline_acc,
            "frozen_baseline_acc": evidence.frozen,
            "bp_acc": evidence.bp_acc,
        }
        try:
            with as_written(self._model):
                self.report = diagnose_model(
                    self._model,
                    self._groups,
                    accuracies,
                    JudgeOptions(self._thresholds, self._protocol),
                    method_name=self._name,
                    notes=notes,
                    **self._how,
                )
        except InputError as error:
            # A trained model is worth more than its card: whoever trains goes on.
            self._journal.note({"status": "failed", "reason": f"{reason}; no card: {error}", "first": self.first})
            warnings.warn(f"walkback wrote no card: {error}", stacklevel=3)
            return
        self.report.save(self.out)
        self._journal.note({"status": status, "reason": reason, "verdict": self.report.verdict, "first": self.first})


def _row(step: int, epoch: float | None, q: Quantities, flags: Mapping[str, Flag], m: Measurements) -> WatchRow:
    """One line of the journal, in the names of a run's own training log; what is not finite is null."""
    nothing = float("nan")
    reading = DetectorReading(
        growth=_known(flags["D1"].value, nothing),
        grad_top=_known(flags["D2"].value, nothing),
        direction=_known(flags["direction"].value, nothing),
        hidden=tuple(_known(layer.hidden_norm.value, nothing) for layer in q.layers),
        grad=tuple(_known(layer.grad_norm_128.value, nothing) for layer in q.layers),
        cosine=tuple(_known(layer.credit.cos.value, nothing) for layer in q.layers if layer.credit),
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


def _known(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value

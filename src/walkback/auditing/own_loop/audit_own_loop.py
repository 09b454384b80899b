"""An audit of a user's own training function: train its jobs, measure the models, judge them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from walkback.auditing.audit import Audit
from walkback.auditing.audit_files import write_overview
from walkback.auditing.own_loop.function_reference import (
    FunctionReference,
    changed_sources,
    is_importing,
    source_hashes,
)
from walkback.auditing.own_loop.jobs import LoopJob, loop_jobs, method_jobs
from walkback.auditing.own_loop.judge_jobs import JobFolder, evidence_of_jobs, judge_job, measure_job
from walkback.auditing.own_loop.measure_plan import MeasurePlan, uses_feedback
from walkback.auditing.own_loop.train_job import JobOptions, TrainFunction, began_with, open_job, train_job
from walkback.core.errors import InputError
from walkback.core.files import friendly_os_errors
from walkback.judge.audit_table import make_audit_table
from walkback.judge.options import JudgeOptions
from walkback.judge.report import DiagnosticReport
from walkback.report.formats import PAGES
from walkback.report.save import MEASUREMENTS, save_card
from walkback.runs import store
from walkback.runs.deadline import Deadline
from walkback.runs.train_runs import ProgressListener, Result, TrainOptions, choose_device

RunJobs = Callable[[Sequence[LoopJob], "OwnLoop", TrainOptions, Deadline, ProgressListener], None]
"""Runs jobs that are not finished; `in_process` is one."""


@dataclass(frozen=True)
class OwnLoop:
    """A training function, and what the audit does with it."""

    train: TrainFunction
    methods: Sequence[str]
    seeds: Sequence[int]
    oracle: bool
    build: Any
    eval_batches: Any
    step_fn: Any = None
    measuring: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of `wb.diagnose`: credit, fresh, update, blocks, ..."""
    describe: Mapping[str, str] | None = None
    force: bool = False
    """Whether to go on with jobs that were trained by other source files than there are now."""

    def __post_init__(self) -> None:
        for key, value in (self.describe or {}).items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise InputError(f"describe has {key!r}: {value!r}; expected texts, such as {{'data': 'CIFAR-10'}}.")

    @property
    def references(self) -> tuple[FunctionReference, ...]:
        return FunctionReference.of(self.train), FunctionReference.of(self.build)

    @property
    def needs_feedback(self) -> tuple[str, ...]:
        """The methods whose credit is measured with the stored feedback."""
        return tuple(method for method in self.methods if uses_feedback(self.measuring, method))

    def job_options(self, options: TrainOptions, device: torch.device) -> JobOptions:
        return JobOptions(
            options.out.resolve(),
            device,
            options.checkpoint_seconds,
            options.command,
            self.references,
            self.describe or {},
            self.needs_feedback,
        )


def in_process(
    jobs: Sequence[LoopJob], loop: OwnLoop, options: TrainOptions, deadline: Deadline, listener: ProgressListener
) -> None:
    """Run the jobs one after the other in this process."""
    how = loop.job_options(options, choose_device(options.device))
    for done, job in enumerate(jobs, start=1):
        if deadline.is_past or not train_job(loop.train, job, how, deadline, listener):
            return
        listener.job_ended(job.name, done, len(jobs))


def audit_own_loop(
    loop: OwnLoop,
    options: TrainOptions,
    judge_options: JudgeOptions,
    listener: ProgressListener,
    run_jobs: RunJobs = in_process,
) -> Audit:
    """Train every job that is not finished; when all are, measure the methods, judge them, and write the pages."""
    if is_importing():
        raise InputError(
            "wb.audit was called while the training function's file was imported. Put the call below "
            "if __name__ == '__main__':, so that importing the file does not start another audit."
        )
    deadline = Deadline(options.max_seconds)
    methods = method_jobs(loop.methods, loop.seeds)
    jobs = loop_jobs(loop.methods, loop.seeds, loop.oracle)
    plan = MeasurePlan.of(
        loop.build, loop.eval_batches, loop.step_fn, loop.measuring, dict.fromkeys(job.method for job in methods)
    )
    # The GPU that is asked for may be on the machines of the executor only; the models are measured here.
    is_elsewhere = run_jobs is not in_process and options.device == "cuda" and not torch.cuda.is_available()
    device = torch.device("cpu") if is_elsewhere else choose_device(options.device)
    plan = replace(plan, sources=source_hashes(loop.references))
    todo = _unfinished(jobs, loop, plan.sources, options, device, listener)
    with friendly_os_errors(options.out, "create"):
        options.out.mkdir(parents=True, exist_ok=True)
    described = dict(loop.describe or {})
    plan.save(options.out, {"train": loop.train}, described)
    run_jobs(todo, loop, options, deadline, listener)
    found = JobFolder(options.out)
    results = tuple(_result(job, found, described, options.out) for job in jobs)
    if any(result.status != "done" for result in results):
        return Audit(options.out, results, None)
    finished = [run for job in jobs if (run := found.finished(job)) is not None]
    reports: list[DiagnosticReport] = []
    for done, job in enumerate(methods):
        listener.measuring(job.name, done, len(methods))
        run = found.finished(job)
        assert run is not None
        evidence = evidence_of_jobs(job, loop.seeds, judge_options.null, found)
        report = judge_job(run, measure_job(run, plan, device), evidence, plan, described, judge_options, finished)
        report.measurements.save(run.path / MEASUREMENTS)
        save_card(report, run.path, PAGES)
        reports.append(report)
    table = make_audit_table([report.to_json() for report in reports])
    write_overview(table, options.out, options.out)
    return Audit(options.out, results, table)


def _unfinished(
    jobs: Iterable[LoopJob],
    loop: OwnLoop,
    sources: Mapping[str, str],
    options: TrainOptions,
    device: torch.device,
    listener: ProgressListener,
) -> list[LoopJob]:
    """The jobs that are left. Existing folders are opened and checked before anything is trained."""
    how = loop.job_options(options, device)
    todo, finished = [], []
    for job in jobs:
        path = options.out / job.name
        with friendly_os_errors(path, "open"):
            exists = path.exists()
        if exists and not options.resume:
            raise InputError(f"{path} exists already. Add resume=True (--resume) to go on, or choose another out=.")
        run = open_job(job, how)
        changed = [] if run is None else changed_sources(began_with(run), sources)
        if changed and not loop.force:
            raise InputError(
                f"{changed[0]} changed since {path} was trained. Restore it, use another out=, or go on with "
                "force=True (--force), which the cards say."
            )
        if run is not None and run.is_done:
            finished.append(job.name)
        else:
            todo.append(job)
    if finished:
        listener.skipped(finished)
    return todo


def _result(job: LoopJob, found: JobFolder, described: Mapping[str, str], out: Path) -> Result:
    run = found.finished(job)
    record = {} if run is None else run.record
    own = record.get(store.OWN_LOOP, {})
    return Result(
        run=job.name,
        method=job.shown,
        seed=job.seed,
        test_acc=record.get("result", {}).get("test_acc"),
        seconds=record.get("timings", {}).get("seconds", 0.0),
        status="unfinished" if run is None else "done",
        epochs=own.get("epochs", 0),
        arch=own.get("model", ""),
        data=described.get("data", ""),
        path=str(out / job.name),
    )

"""Complete the runs of studies in several processes on this machine; each trains and measures a share of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from walkback.core.errors import WalkbackError
from walkback.core.files import friendly_os_errors
from walkback.runs.deadline import Deadline
from walkback.runs.stored_plan import store_plan
from walkback.runs.train_runs import ProgressListener, TrainOptions, plan_unfinished
from walkback.sweeping.executor import LocalExecutor
from walkback.sweeping.job_options import NotingListener, options_of
from walkback.sweeping.sweep import Scheduler, SweepListener, options_json, run_names
from walkback.training.planning.fleet_plan import FleetGroup
from walkback.training.planning.load_balance import Workers, shortest_compile_first, split_evenly, split_long_fleets
from walkback_papers.run_studies import RUNS_FOLDER, CompletionStatus, complete_runs, incomplete_runs, studies_of
from walkback_papers.scale import Scale, scale_of
from walkback_papers.study import Study
from walkback_papers.timings import Timings

SHARES = 2
"""Shares per process: times are only predicted, and with smaller shares the last one ends sooner."""


class StudyProcesses:
    """A `RunCompleter` in several processes. Studies and scale are sent by name, so they must be in the catalog."""

    def __init__(self, workers: Workers, listener: SweepListener):
        self._workers = workers
        self._count = workers.count
        self._listener = listener

    def __call__(
        self, studies: Mapping[str, Study], scale: Scale, options: TrainOptions, listener: ProgressListener
    ) -> CompletionStatus:
        start, deadline = time.monotonic(), Deadline(options.max_seconds)
        until = None if options.max_seconds is None else time.time() + options.max_seconds
        resolved_runs = incomplete_runs(studies, scale, options)
        shared, folder = replace(options, sharing=self._count), options.out / RUNS_FOLDER
        groups = plan_unfinished(resolved_runs, replace(shared, out=folder, resume=True))
        if not self._workers.in_turns:
            groups = split_long_fleets(groups, self._count)
        # Runs that are trained and not measured are in no fleet.
        to_train = {resolved.name for group in groups for resolved in group.resolved_runs}
        to_measure = tuple(resolved for resolved in resolved_runs if resolved.name not in to_train)
        if groups:
            with friendly_os_errors(folder, "create"):
                folder.mkdir(parents=True, exist_ok=True)
            store_plan(folder, groups)
        shares = self._shares(groups)
        if to_measure:
            shares.append(FleetGroup(to_measure, "single", 0.0, 0, 0))
        jobs = [_job(share, studies, scale, shared, until) for share in shares]
        if jobs:
            self._listener.planned(shares, 0)
            timings = Timings(options, self._workers, shares, start)
            executor = LocalExecutor()
            scheduler = Scheduler(run_names(shares), jobs, executor, self._listener, deadline, timings.done)
            try:
                failures = scheduler.run(self._count)
            finally:
                executor.close()
                self._listener.close()
            timings.keep()
            if failures:
                raise WalkbackError("; ".join(dict.fromkeys(failure.reason for failure in failures)))
        # With no time left, this counts what is still missing and makes nothing.
        return complete_runs(studies, scale, replace(options, max_seconds=0.0), ProgressListener())

    def _shares(self, groups: Sequence[FleetGroup]) -> list[FleetGroup]:
        if self._workers.in_turns:
            return shortest_compile_first(groups)
        return [_merged(share) for share in split_evenly(groups, SHARES * self._count)]


def _job(
    share: FleetGroup, studies: Mapping[str, Study], scale: Scale, options: TrainOptions, until: float | None
) -> dict[str, object]:
    """The job description sent to a worker. `until` is wall-clock time, as a share may wait for its process."""
    return {
        "kind": "studies",
        "options": options_json(options),
        "studies": list(studies),
        "scale": scale.name,
        "runs": [resolved.name for resolved in share.resolved_runs],
        "until": until,
    }


def run(job: dict[str, Any], note: Callable[[str], None]) -> bool:
    """Run in a worker: train and measure `job["runs"]`; returns whether all are finished and measured."""
    options = options_of(job)
    if job["until"] is not None:
        options = replace(options, max_seconds=max(0.0, job["until"] - time.time()))
    studies, scale = studies_of(job["studies"]), scale_of(job["scale"])
    return complete_runs(studies, scale, options, NotingListener(note), names=set(job["runs"])).is_done


def _merged(groups: Sequence[FleetGroup]) -> FleetGroup:
    """The fleets that one process trains one after the other, as one group."""
    if len(groups) == 1:
        return groups[0]
    return FleetGroup(
        resolved_runs=tuple(resolved for group in groups for resolved in group.resolved_runs),
        driver=groups[0].driver,
        seconds=sum(group.seconds for group in groups),
        memory=max(group.memory for group in groups),
        flops=max(group.flops for group in groups),
        work=sum(group.work for group in groups),
    )

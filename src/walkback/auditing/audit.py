"""An audit: methods trained with the baselines they need, measured, judged together, and written as pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from walkback.auditing.audit_files import OVERVIEW, write_overview
from walkback.auditing.diagnose_runs import diagnose_runs
from walkback.auditing.epoch_monitor import EpochMonitor
from walkback.auditing.measure_run import RunMeasurer
from walkback.core.configuration import RunConfig
from walkback.core.errors import InputError
from walkback.data.dataset import DataSource
from walkback.judge.audit_table import AuditTable, make_audit_table
from walkback.judge.options import JudgeOptions
from walkback.report.formats import PAGES
from walkback.report.overview import overview_text
from walkback.runs import train_runs
from walkback.runs.baselines import baselines_of
from walkback.training.resolved_run import ResolvedRun, resolve


@dataclass(frozen=True)
class Audit:
    """What an audit found."""

    out: Path
    results: tuple[train_runs.Result, ...]
    """Of every run, baselines included."""
    table: AuditTable | None
    """None while a run is unfinished."""

    @property
    def page(self) -> Path:
        """The overview, from which every card is linked."""
        return self.out / f"{OVERVIEW}.html"

    def __str__(self) -> str:
        if self.table is None:
            unfinished = sum(result.status != "done" for result in self.results)
            return f"{unfinished} of {len(self.results)} runs are unfinished; nothing is judged before all are done."
        return overview_text([card for row in self.table.rows for card in row.cards])


def run_audit(
    configs: Sequence[RunConfig],
    options: train_runs.TrainOptions,
    judge_options: JudgeOptions,
    listener: train_runs.ProgressListener,
    own_data: DataSource | None = None,
) -> Audit:
    """Train the methods and their baselines, judge each method over its seeds, and write the pages below `out`."""
    methods = [resolve(config, own_data) for config in configs]
    train_runs.refuse_duplicates(methods)
    shells = [resolved.method for resolved in methods if resolved.shared_options.shell != "none"]
    if shells:
        raise InputError(f"'{shells[0]}' is a frozen baseline; an audit adds those itself. Name the method without it.")
    everything = with_baselines(methods)
    # The page shows when the detectors first fire; looking changes nothing of what a run computes.
    results = train_runs.train_configs(
        [resolved.config for resolved in everything], options, listener, own_data, EpochMonitor()
    )
    if any(result.status != "done" for result in results):
        return Audit(options.out, tuple(results), None)
    measurer = RunMeasurer(options.data_root, train_runs.choose_device(options.device), own_data)
    paths = [options.out / resolved.name for resolved in methods]
    reports = diagnose_runs(paths, judge_options, measurer, listener, PAGES)
    found = make_audit_table([report.to_json() for report in reports])
    write_overview(found, options.out, options.out)
    return Audit(options.out, tuple(results), found)


def with_baselines(methods: Sequence[ResolvedRun]) -> list[ResolvedRun]:
    """The methods, then every run they are held against, each once."""
    found = {resolved.name: resolved for resolved in methods}
    for resolved in methods:
        found |= {other.name: other for other in baselines_of(resolved).values() if other.name not in found}
    return list(found.values())

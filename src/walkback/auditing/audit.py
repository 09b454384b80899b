"""An audit: train methods with their baselines, measure them, judge them together, write the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from walkback.auditing.audit_files import OVERVIEW, write_overview
from walkback.auditing.diagnose_runs import diagnose_resolved
from walkback.auditing.epoch_monitor import EpochMonitor
from walkback.auditing.measure_run import RunMeasurer
from walkback.core.errors import InputError, unknown
from walkback.core.tuning import TuneOptions, TuningTable
from walkback.judge.audit_table import AuditTable, make_audit_table
from walkback.judge.editions import Outcome
from walkback.judge.options import JudgeOptions
from walkback.report.formats import PAGES
from walkback.report.notebook import audit_html, data_frame, method_rows, plot_audit
from walkback.report.overview import overview_text
from walkback.report.tuning import tuning_text
from walkback.report.verdict_lines import MARKS, Paint, plain, summary_lines
from walkback.runs.train_runs import (
    ProgressListener,
    Result,
    TrainOptions,
    choose_device,
    refuse_duplicates,
)
from walkback.runs.tuning import train_tuned
from walkback.training.resolved_run import ResolvedRun

OracleChoice = Literal["none", "exact", "all"]
_KINDS: dict[str, tuple[str, ...]] = {"none": (), "exact": ("exact",), "all": ("exact", "input", "direction")}
"""The oracle controls that each choice trains."""


@dataclass(frozen=True, repr=False)
class Audit:
    """The result of an audit."""

    out: Path
    results: tuple[Result, ...]
    """One for every run, baselines and oracles included."""
    table: AuditTable | None
    """None while a run is unfinished."""
    tuning: TuningTable | None = None
    """The learning rates, where they were tuned."""

    @property
    def page(self) -> Path:
        """The overview page, which links to every card."""
        return self.out / f"{OVERVIEW}.html"

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        methods = 0 if self.table is None else len(self.table.rows)
        verdict = "unfinished" if self.table is None else self.table.verdict.replace("_", " ")
        return f"<Audit in {self.out}: {methods} methods, {len(self.results)} runs; {verdict}>"

    def _repr_html_(self) -> str:
        return f"<p>{self._unfinished}</p>" if self.table is None else audit_html(self.table, str(self.page))

    def plot(self) -> Any:
        """Accuracies beside the frozen baselines, and credit cosines, as a matplotlib figure."""
        if self.table is None:
            raise InputError(f"There is nothing to plot: {self._unfinished} Continue the audit with resume=True.")
        return plot_audit(self.table)

    def to_dict(self) -> dict[str, Any]:
        """What audit.json holds; without rows while a run is unfinished."""
        return {"rows": []} if self.table is None else self.table.to_json()

    def to_frame(self) -> Any:
        """One row for each method as a pandas data frame; empty while a run is unfinished."""
        return data_frame([] if self.table is None else method_rows(self.table))

    def summary(self, marks: Mapping[Outcome, str] = MARKS, paint: Paint = plain, decimals: int = 1) -> str:
        """A line for each method, verdict first, the reasons, and what the terms mean; and the learning rates, if they
        were tuned. `decimals` are those of percentages."""
        if self.table is None:
            return self._unfinished
        return self._with_tuning("\n".join(summary_lines(self.table, marks, paint, decimals)))

    @property
    def full_text(self) -> str:
        """The overview as text: every column of the page's table; and the learning rates, if they were tuned."""
        cards = [] if self.table is None else [card for row in self.table.rows for card in row.cards]
        return self._with_tuning(overview_text(cards) if cards else "")

    def _with_tuning(self, text: str) -> str:
        if self.table is None:
            return self._unfinished
        return text if self.tuning is None else f"{text}\n\n{tuning_text(self.tuning)}"

    @property
    def _unfinished(self) -> str:
        unfinished = sum(result.status != "done" for result in self.results)
        return f"{unfinished} of {len(self.results)} runs are unfinished; nothing is judged before all are done."


def run_audit(
    methods: Sequence[ResolvedRun],
    options: TrainOptions,
    judge_options: JudgeOptions,
    listener: ProgressListener,
    oracle: OracleChoice = "exact",
    tune: TuneOptions | None = None,
) -> Audit:
    """Train the methods, their baselines and oracles, judge each method over its seeds, and write the pages.

    With `tune` each of them is trained with its own learning rate.
    """
    refuse_duplicates(methods)
    frozen = [resolved.method for resolved in methods if resolved.shared_options.shell != "none"]
    if frozen:
        raise InputError(f"'{frozen[0]}' is a frozen baseline; an audit adds those itself. Name the method without it.")
    # The page shows the first epoch at which each detector fails; measuring does not change what a run computes.
    results, tuning = train_tuned(with_baselines(methods, oracle), tune, options, listener, EpochMonitor())
    if any(result.status != "done" for result in results):
        return Audit(options.out, tuple(results), None, tuning)
    if tuning is not None:
        methods = [resolved.tuned(tuning) for resolved in methods]
    measurer = RunMeasurer(options.data_root, choose_device(options.device))
    again = not options.resume
    reports = diagnose_resolved(methods, options.out, judge_options, measurer, listener, PAGES, again=again)
    table = make_audit_table([report.to_json() for report in reports])
    write_overview(table, options.out, options.out)
    return Audit(options.out, tuple(results), table, tuning)


def with_baselines(methods: Sequence[ResolvedRun], oracle: OracleChoice = "none") -> list[ResolvedRun]:
    """The methods, then every run they are compared with, each once; an oracle comes with its frozen baseline."""
    if oracle not in _KINDS:
        raise unknown("oracle", oracle, _KINDS)
    found = {resolved.name: resolved for resolved in methods}
    for resolved in methods:
        chosen = [run for kind, run in resolved.oracles.items() if kind in _KINDS[oracle]]
        shells = [run.frozen_baseline for run in chosen]
        for compared in (*resolved.baselines.values(), *chosen, *shells):
            found.setdefault(compared.name, compared)
    return list(found.values())

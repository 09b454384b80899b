"""Judge the reports of several models together: one row per method over its seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from walkback.auditing.audit_files import write_overview
from walkback.core.errors import InputError
from walkback.judge.audit_table import AuditTable, make_audit_table
from walkback.judge.editions import Outcome
from walkback.judge.evidence import Evidence, OracleAccuracies
from walkback.judge.report import DiagnosticReport, judge
from walkback.report.overview import overview_text
from walkback.report.save import save_report


@dataclass(frozen=True)
class ReportTable:
    """Reports judged together."""

    reports: tuple[DiagnosticReport, ...]
    table: AuditTable

    @property
    def verdict(self) -> Outcome:
        """The worst verdict of the methods."""
        return self.table.verdict

    def __str__(self) -> str:
        return overview_text([card for row in self.table.rows for card in row.cards])

    def save(self, folder: str | Path) -> list[Path]:
        """Write each report into a folder of its own, and the overview of all (audit.html, .md, .tex and .json)."""
        target = Path(folder)
        names = _folders(self.reports)
        written = [
            path
            for name, report in zip(names, self.reports, strict=True)
            for path in save_report(report, target / name)
        ]
        links = {name: f"{name}/report.html" for name in names}
        return [*written, *write_overview(self.table, target, target, links=links)]


def collect_reports(reports: Iterable[DiagnosticReport]) -> ReportTable:
    """Judge reports of one method's seeds together, for one method or several.

    Reports with the same method name, network and data are the seeds of one method, in the order given; each has its
    own accuracies. Their depth claim is over the seeds, paired, and Holm-corrected over the methods.
    """
    found = list(reports)
    for each in found:
        if not isinstance(each, DiagnosticReport):
            raise InputError(f"collect got a {type(each).__name__}; expected reports of wb.diagnose.")
    if not found:
        raise InputError("collect got no reports; give those of wb.diagnose, one for each model.")
    groups: dict[tuple[str, str, str], list[DiagnosticReport]] = {}
    for each in found:
        key = each.method_name, str(each.context.get("arch", "")), str(each.context.get("data", ""))
        groups.setdefault(key, []).append(each)
    judged = [each for group in groups.values() for each in _judge_seeds(group)]
    names = _folders(judged)
    judged = [_with_folder(each, name) for each, name in zip(judged, names, strict=True)]
    return ReportTable(tuple(judged), make_audit_table([each.to_json() for each in judged]))


def _judge_seeds(reports: Sequence[DiagnosticReport]) -> list[DiagnosticReport]:
    """The reports of one method's seeds, each with the accuracies of all of them."""
    if len(reports) == 1:
        return list(reports)
    evidence = _joined([report.evidence for report in reports], reports[0].method_name)
    seeds = [report.context.get("seed") for report in reports]
    known = [seed for seed in seeds if seed is not None]
    numbers: list[int] = known if len(set(known)) == len(seeds) else list(range(len(reports)))
    return [
        judge(
            report.measurements,
            replace(evidence, seeds=tuple(numbers)),
            report.thresholds,
            report.protocol,
            report.method_name,
            report.notes,
            {**report.context, "seed": seed},
            claimed=report.claimed,
        )
        for report, seed in zip(reports, numbers, strict=True)
    ]


def _joined(parts: Sequence[Evidence], method: str) -> Evidence:
    """The evidence over all seeds: that of every part where they agree, else their single seeds in order."""
    first = parts[0]
    if all(part.to_json() == first.to_json() for part in parts) and len(first.headline_acc) == len(parts):
        return first
    of_parts: dict[str, list[Mapping[str, tuple[float, ...]]]] = {
        "headline_acc": [{"": part.headline_acc} for part in parts],
        "bp_acc": [{"": part.bp_acc} for part in parts],
        "frozen_baseline_acc": [part.frozen for part in parts],
    }
    for what, columns in of_parts.items():
        same_kinds = all(each.keys() == columns[0].keys() for each in columns)
        sizes = {len(values) for each in columns for values in each.values()}
        if not same_kinds or sizes - {0, 1} or len(sizes) > 1:
            raise InputError(
                f"The reports of '{method}' do not have one {what} each, so the seeds cannot be paired. Give every "
                "report its own seed's, or name the methods differently (method_name=)."
            )
    return replace(
        first,
        headline_acc=tuple(value for part in parts for value in part.headline_acc),
        frozen={name: tuple(value for part in parts for value in part.frozen[name]) for name in first.frozen},
        bp_acc=tuple(value for part in parts for value in part.bp_acc),
        correct=(),
        frozen_correct={},
        bp_correct=(),
        oracles={name: _joined_oracle([part.oracles for part in parts], name) for name in _common(parts)},
    )


def _common(parts: Sequence[Evidence]) -> list[str]:
    return [name for name in parts[0].oracles if all(name in part.oracles for part in parts)]


def _joined_oracle(parts: Sequence[Mapping[str, OracleAccuracies]], name: str) -> OracleAccuracies:
    found = [part[name] for part in parts]
    return OracleAccuracies(
        found[0].method,
        tuple(value for each in found for value in each.acc),
        tuple(value for each in found for value in each.frozen_acc),
    )


def _with_folder(report: DiagnosticReport, name: str) -> DiagnosticReport:
    """The report with the name of its folder as its run, if it has none."""
    provenance: dict[str, Any] = dict(report.context.get("provenance") or {})
    return replace(report, context={**report.context, "provenance": {"run": name, **provenance}})


def _folders(reports: Sequence[DiagnosticReport]) -> list[str]:
    """A folder's name for each report: its run, or its method and seed."""
    names: list[str] = []
    for number, report in enumerate(reports):
        run = (report.context.get("provenance") or {}).get("run")
        method = "".join(c if c.isalnum() or c in "_.+-" else "-" for c in report.method_name) or "model"
        seed = report.context.get("seed")
        name = run or (method if seed is None else f"{method}-s{seed}")
        names.append(name if name not in names else f"{name}-{number}")
    return names

"""Threshold sensitivity: how far can each threshold be moved before a verdict changes?

Papers: P1 appendix E, its draft and the outline (gaps between healthy and degenerate)
Claim: D1 and D2 separate healthy from degenerate by orders of magnitude; depth utility (D3) is not robust
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from walkback.core.configuration import RunConfig
from walkback.judge.editions import Outcome
from walkback.judge.report import DiagnosticReport
from walkback.judge.threshold_sweep import FIELDS, ThresholdSweep, sweep_threshold
from walkback.report.cells import EMPTY_CELL, Cell
from walkback.report.study_report import Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.plots import listed
from walkback_papers.results import Case, Results
from walkback_papers.scale import AUDITED_METHODS, Scale
from walkback_papers.study import Study
from walkback_papers.tables import caption, make_study_report, method_label, range_cell

HEALTHY, _DEGENERATE = ("BP", "EP"), ("DFA", "State Bridge", "Credit Bridge")
"""The papers' groups. FA, DFA raw and EP short are swept too and are in neither group."""
_ALSO_DEGENERATE = "DFA raw"
"""Of those three the one that is walked back; the other two are compared with the healthy ones."""
_NAMES = {
    "D1": "growth (D1)",
    "D2": "floor (D2)",
    "direction": "drift (c)",
    "D3": "margin (D3), pp",
    "concentration": "κ",
}
_SPECS = {"D1": ".3g", "D2": ".2e", "direction": ".2f", "D3": "+.1f", "concentration": ".2f"}
_ORDER = sorted(FIELDS, key=lambda field: list(_NAMES).index(FIELDS[field]))
_EDITIONS = ("three", "four")
DECIDING = ("h_norm_explosion_ratio", "g_norm_floor", "frozen_acc_margin_pp")
"""The thresholds that a verdict depends on."""
_POINTS = 9
"""A flag changes at most once along a threshold, so the ends find every flip; the points between are for the figure."""
GAPS = ("threshold", "default", "swept", "healthy", "degenerate", "gap", "separated", "flips, three", "flips, four")


@dataclass(frozen=True)
class _Swept:
    """One threshold over all cases."""

    check: str
    by_edition: Mapping[str, ThresholdSweep]
    """Sweeps over every case, by edition."""
    gap: float | None
    """Between the healthy and the degenerate cases."""
    gap_of_all: float | None
    """The same with the methods that the papers put in neither group."""

    def flips(self, edition: str, names: Sequence[str]) -> list[str]:
        """The cases whose verdict changes within the sweep."""
        return [name for name in names if len(set(self.by_edition[edition].verdicts[name])) > 1]


class ThresholdSensitivity(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return scale.runs(AUDITED_METHODS)

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        cases = results.cases(self.runs(scale))
        reports = {f"{method_label(case.method)} s{case.seed}": case.report for case in cases}
        swept = {field: swept_over(reports, field) for field in _ORDER}
        note = (
            "Each threshold from a tenth to ten times its default (at most 1 for cosines), one at a time, on stored "
            f"measurements. Healthy: {' and '.join(HEALTHY)}; degenerate: {', '.join(_DEGENERATE)}; "
            "as the papers group them. Gap: a factor, for D3 a difference."
        )
        table_caption = caption(scale, cases, note)
        tables = [
            Table(
                "gaps",
                "Gaps and flips",
                GAPS,
                tuple(_gap_row(reports, found) for found in swept.values()),
                table_caption,
            ),
            Table(
                "flips", "Where each case's flag changes", _flip_heads(), tuple(_flip_rows(cases, swept)), table_caption
            ),
        ]
        return make_study_report(
            "threshold-sensitivity",
            "Threshold sensitivity",
            "How far can each threshold be moved before a verdict changes?",
            scale,
            cases,
            _findings(reports, swept),
            tables=tables,
            figures=[_figure(swept, table_caption)],
        )


def swept_over(reports: Mapping[str, DiagnosticReport], field: str) -> _Swept:
    """Judge every case again at thresholds over two orders of magnitude, by both editions."""
    known = {name: report for name, report in reports.items() if group_of(name) is not None}
    healthy = [name for name in known if group_of(name) == "healthy"]
    by_edition = {
        edition: sweep_threshold(
            {name: report.rejudge(protocol=edition) for name, report in reports.items()}, field, points=_POINTS
        )
        for edition in _EDITIONS
    }
    others = [name for name in reports if group_of(name) is None and _method_of(name) != _ALSO_DEGENERATE]
    return _Swept(
        FIELDS[field],
        by_edition,
        sweep_threshold(known, field, healthy, points=2).gap if known else None,
        sweep_threshold(reports, field, [*healthy, *others], points=2).gap,
    )


def _method_of(name: str) -> str:
    """The method in a case's name."""
    return name.rpartition(" s")[0]


def group_of(name: str) -> str | None:
    """`healthy`, `degenerate` or None, by the method in a case's name."""
    method = _method_of(name)
    return "healthy" if method in HEALTHY else "degenerate" if method in _DEGENERATE else None


def separated(found: _Swept) -> bool | None:
    if found.gap is None:
        return None
    return found.gap > (0 if found.check == "D3" else 1)


def _values(reports: Mapping[str, DiagnosticReport], check: str, kind: str) -> list[float]:
    """A check's values in one group, where there is one: κ is not defined where every layer is exact."""
    found = [report.flags[check].value for name, report in reports.items() if group_of(name) == kind]
    return [value for value in found if value is not None]


def _gap_row(reports: Mapping[str, DiagnosticReport], found: _Swept) -> tuple[Cell, ...]:
    one, spec = found.by_edition["three"], _SPECS[found.check]
    gap = Cell("NOT MEASURED", None, "one side has no value")
    if found.gap is not None:
        gap = Cell(f"{found.gap:+.1f} pp" if found.check == "D3" else f"{found.gap:.3g}x", found.gap)
    answer = separated(found)
    return (
        Cell(_NAMES[found.check]),
        Cell(f"{one.default:g}", one.default),
        Cell(f"{one.thresholds[0]:.3g} to {one.thresholds[-1]:.3g}"),
        *(_range_or_missing(_values(reports, found.check, kind), spec) for kind in ("healthy", "degenerate")),
        gap,
        Cell(EMPTY_CELL if answer is None else "yes" if answer else "no"),
        *(Cell(f"{len(found.flips(edition, list(reports)))} of {len(reports)}") for edition in _EDITIONS),
    )


def _range_or_missing(values: Sequence[float], spec: str) -> Cell:
    return range_cell(values, spec) if values else Cell("NOT MEASURED", None, "no case has a value")


def _flip_heads() -> tuple[str, ...]:
    return ("case", *(_NAMES[FIELDS[field]] for field in _ORDER))


def _flip_rows(cases: Sequence[Case], swept: Mapping[str, _Swept]) -> list[tuple[Cell, ...]]:
    """By case, the threshold at which each flag changes; a dash where it does not change within the sweep."""
    rows = []
    for case in cases:
        name = f"{method_label(case.method)} s{case.seed}"
        row = [Cell(name)]
        for found in swept.values():
            edge = found.by_edition["three"].flips.get(name)
            row.append(Cell(EMPTY_CELL) if edge is None else Cell(format(edge, _SPECS[found.check]), edge))
        rows.append(tuple(row))
    return rows


def _findings(reports: Mapping[str, DiagnosticReport], swept: Mapping[str, _Swept]) -> list[Finding]:
    papers = [name for name in reports if group_of(name) is not None]
    margin = swept["frozen_acc_margin_pp"]
    flips = {edition: margin.flips(edition, list(reports)) for edition in _EDITIONS}
    details = "; ".join(f"edition {e}: {', '.join(names) or 'no verdict'}" for e, names in flips.items())
    return [
        *(_separates(swept[field]) for field in ("h_norm_explosion_ratio", "g_norm_floor")),
        *(_robust(swept[field], papers) for field in ("h_norm_explosion_ratio", "g_norm_floor")),
        Finding(
            "d3-not-robust",
            "Depth utility (D3) is not robust: verdicts change between 0.2 and 20 pp.",
            any(flips.values()),
            f"What changes, {details}.",
        ),
    ]


def _separates(found: _Swept) -> Finding:
    finding_id = f"{found.check.lower()}-separates"
    claim = (
        f"{_NAMES[found.check]}: one threshold separates the papers' healthy cases ({', '.join(HEALTHY)}) from their "
        "degenerate ones."
    )
    if found.gap is None:
        return Finding(finding_id, claim, None, "One side has no value.")
    wider = "not known" if found.gap_of_all is None else f"{found.gap_of_all:.3g}x"
    details = (
        f"The gap is {found.gap:.3g}x (above 1 it separates); with FA and EP short among the healthy and "
        f"{_ALSO_DEGENERATE} among the degenerate ones it is {wider}."
    )
    return Finding(finding_id, claim, separated(found), details)


def _robust(found: _Swept, names: Sequence[str]) -> Finding:
    """Decided by flags: a verdict may stay the same only because another flag decides it as well."""
    flags = [name for name in names if name in found.by_edition["three"].flips]
    flips = {edition: found.flips(edition, names) for edition in _EDITIONS}
    details = "; ".join(f"edition {e}: {', '.join(changed) or 'none'}" for e, changed in flips.items())
    claim = f"{_NAMES[found.check]} flags the same cases of these two groups when moved tenfold either way."
    changed = ", ".join(flags) or "none"
    return Finding(
        f"{found.check.lower()}-robust",
        claim,
        not flags,
        f"Flags that change: {changed}; verdicts that change, {details}.",
    )


def _figure(swept: Mapping[str, _Swept], caption_text: str) -> Figure:
    """The share of all cases that are walked back, by threshold."""

    def share(verdicts: Mapping[str, tuple[Outcome, ...]]) -> list[float]:
        columns = zip(*verdicts.values(), strict=True)
        return [sum(word == "walked_back" for word in column) / len(column) for column in columns]

    def plot(found: _Swept) -> Plot:
        series = tuple(
            Series(f"edition {e}", found.by_edition[e].thresholds, share(found.by_edition[e].verdicts), mark="both")
            for e in _EDITIONS
        )
        events = ((found.by_edition["three"].default, "default"),)
        title = _NAMES[found.check]
        shares = (0.0, 1.0)
        return Plot(title, "threshold", "share walked back", series, x_log=True, events=events, y_range=shares)

    plots = tuple(plot(found) for field, found in swept.items() if field in DECIDING)
    details = f"Drift (c) and κ decide no verdict and are not drawn. {caption_text}"
    changed = [f"{_most_flips(found)} ({found.check})" for field, found in swept.items() if field in DECIDING]
    cases = len(next(iter(swept.values())).by_edition["three"].verdicts)
    title = f"Of {cases} verdicts a threshold moved tenfold either way changes {listed(changed)}"
    return Figure("sweeps", title, plots, details, columns=3)


def _most_flips(found: _Swept) -> int:
    """How many verdicts change within the sweep, by the edition in which more do."""
    return max(len(found.flips(edition, list(found.by_edition[edition].verdicts))) for edition in _EDITIONS)


STUDY = ThresholdSensitivity()

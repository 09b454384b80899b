"""Complementarity: over all judged runs of the studies, what do Mode 1 and depth utility each find alone?

Papers: P2 section 5.2, over our runs instead of its four cases
Claim: the Mode 1 check (D1 and D2) and depth utility (D3) each find failures that the other misses
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from walkback.core.configuration import RunConfig
from walkback.core.settings import Spec
from walkback.judge.report import DiagnosticReport
from walkback.report.cells import Cell
from walkback.report.study_report import Finding, StudyReport, Table
from walkback.training.resolved_run import resolve
from walkback_papers.results import Results
from walkback_papers.scale import Scale
from walkback_papers.studies import (
    batch_size,
    cifar100,
    credit_scale,
    depth_sweep,
    exact_credit,
    functional_metrics,
    penalty_sweep,
    representative,
    sensitivity,
)
from walkback_papers.study import Study
from walkback_papers.tables import all_true, make_study_report

_SOURCES = (
    batch_size, sensitivity, penalty_sweep, depth_sweep, cifar100, representative, credit_scale, functional_metrics,
    exact_credit,
)  # fmt: skip
"""Studies that have every judged run of the others too."""
_HEADS = ("rule", "runs", "fail D3", "both", "D3 alone", "Mode 1 alone", "neither")
Found = tuple[bool | None, bool | None]
"""Whether Mode 1 and whether depth utility walks a run back."""


class Complementarity(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        configs = [config for source in _SOURCES for config in source.STUDY.judged(scale)]
        by_name = {(resolved := resolve(config)).name: (config, resolved) for config in configs}
        # Oracle controls are judged beside a method, and are no methods themselves.
        return [config for config, resolved in by_name.values() if resolved.shared_options.credit == "own"]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        cases = results.cases(self.runs(scale))
        by_rule: dict[str, list[Found]] = {}
        for case in cases:
            by_rule.setdefault(Spec.parse(case.method).name, []).append(found_by(case.report))
        every = [found for each in by_rule.values() for found in each]
        rows = tuple(_row(name, found) for name, found in {**dict(sorted(by_rule.items())), "all": every}.items())
        note = (
            f"Every judged run of the studies once ({len(cases)}), whatever its network, data, penalty and depth, "
            "oracle controls left out; one row for each rule. Mode 1: D1 and D2 fail. Runs of one rule are not "
            "independent of each other. "
            f"Scale: {scale.name}."
        )
        return make_study_report(
            "complementarity",
            "Complementarity",
            "What do Mode 1 and depth utility each find alone, over the judged runs of all studies?",
            scale,
            cases,
            _findings(every),
            tables=[Table("runs", "Which check finds a run", _HEADS, rows, note)],
        )


def found_by(report: DiagnosticReport) -> Found:
    """Whether Mode 1, and whether depth utility, walks a run back; None where a check could not be made."""
    return all_true(report.flags[check].truth for check in ("D1", "D2")), report.flags["D3"].truth


def _row(name: str, found: Sequence[Found]) -> tuple[Cell, ...]:
    counts = Counter(found)
    fail = sum(depth is True for _, depth in found)
    values = (len(found), fail, *(counts[key] for key in ((True, True), (False, True), (True, False), (False, False))))
    return (Cell(name), *(Cell(str(value), value) for value in values))


def _findings(found: Sequence[Found]) -> list[Finding]:
    counts: Mapping[Found, int] = Counter(found)
    failing = sum(depth is True for _, depth in found)
    mode_1 = sum(mode is True for mode, _ in found)
    return [
        Finding(
            "depth-needed",
            "Depth utility finds runs that Mode 1 misses.",
            _some(counts[False, True], found),
            f"{counts[False, True]} of {failing} runs that fail depth utility are not in Mode 1.",
        ),
        Finding(
            "mode-1-needed",
            "Mode 1 finds runs that depth utility passes.",
            _some(counts[True, False], found),
            f"{counts[True, False]} of {mode_1} runs in Mode 1 pass depth utility.",
        ),
    ]


def _some(count: int, found: Iterable[Found]) -> bool | None:
    """Whether there is at least one; unknown where there is none and some runs could not be judged."""
    return True if count else None if any(None in each for each in found) else False


STUDY = Complementarity()

"""The representative setting: a wide network of two blocks, and whether a frozen baseline of another may stand for it.

Papers: P2 table 1
Claim: BP passes; FA fails by depth utility alone; DFA fails; the baseline is that of the deeper, narrower network
"""

from __future__ import annotations

from collections.abc import Sequence

from walkback.core.configuration import RunConfig
from walkback.judge.statistics import Margin
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.cells import Cell
from walkback.report.study_report import Finding, StudyReport, Table
from walkback_papers.plots import accuracy_bars, with_shells
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, RAW, Scale
from walkback_papers.studies.primary_audit import AUDIT_HEADS, audit_row
from walkback_papers.study import Study
from walkback_papers.tables import (
    accuracy_gain,
    all_true,
    caption,
    check_fails,
    check_values,
    claim_over_seeds,
    depth_fails,
    is_mode_1,
    is_within,
    make_study_report,
    margin_cell,
    mean_cell,
    method_label,
    not_,
    verdict_cell,
)

REPRESENTATIVE_METHODS = {
    **{name: METHODS[name] for name in ("BP", "FA", "DFA")},
    **{name: text for text, name in RAW.items()},
}


_PLACES = ("wide", "resmlp")
"""The network itself, and the one whose frozen baseline the papers hold it against."""


class Representative(Study):
    def judged(self, scale: Scale) -> list[RunConfig]:
        return scale.runs(list(REPRESENTATIVE_METHODS.values()), place="wide")

    def runs(self, scale: Scale) -> list[RunConfig]:
        shells = [
            config for place in _PLACES for name in REPRESENTATIVE_METHODS for config in _shell(scale, name, place)
        ]
        return [*self.judged(scale), *shells]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        methods = {
            name: results.cases(scale.runs([text], place="wide")) for name, text in REPRESENTATIVE_METHODS.items()
        }
        cases = [case for found in methods.values() for case in found]
        own, other = (
            {name: results.cases(_shell(scale, name, place)) for name in REPRESENTATIVE_METHODS} for place in _PLACES
        )
        shells = [case for found in (own, other) for each in found.values() for case in each]
        differences = {name: accuracy_gain(own[name], other[name]) for name in REPRESENTATIVE_METHODS}
        rows = [_baseline(methods[name], own[name], other[name], differences[name]) for name in REPRESENTATIVE_METHODS]
        here, there = (f"{run_index['BP'][0].resolved.config.arch}" for run_index in (own, other))
        note = (
            f"Other network: {_plain(there)}. Differences in percentage points, paired by seed, with 95% t intervals."
        )
        bars = with_shells(methods)
        bars["other's"] = {name: [case.accuracy for case in found] for name, found in other.items()}
        tables = [
            Table(
                "audit",
                "Audit of the wide network",
                AUDIT_HEADS,
                tuple(audit_row(found) for found in methods.values()),
                caption(scale, cases, "Growth, norms and (c): smallest to largest seed. Margin: over its own shell."),
            ),
            Table(
                "baselines",
                "Its own frozen baseline, and that of the other network",
                ("method", "accuracy", "own shell", "other's shell", "own − other", "over own", "over other's", "flag"),
                tuple(rows),
                caption(scale, [*cases, *shells], note),
            ),
        ]
        return make_study_report(
            "representative",
            "Representative setting",
            f"Which methods train the depth of {_plain(here)}, and is the baseline they are held against matched?",
            scale,
            [*cases, *shells],
            [*as_published(methods), _matched(differences)],
            tables=tables,
            figures=[accuracy_bars(bars, caption(scale, [*cases, *shells], f"Other: {_plain(there)}."))],
        )


def _shell(scale: Scale, name: str, place: str) -> list[RunConfig]:
    """A method's own shell at a place, for every seed."""
    text = REPRESENTATIVE_METHODS[name]
    return scale.runs(["bp:shell=bp" if name == "BP" else f"{text},shell=method"], place=place)


def _plain(arch: str) -> str:
    """A network by its name, width and depth."""
    name, _, settings = arch.partition(":")
    given = dict(item.split("=") for item in settings.split(","))
    return f"{name} d={given['d']} L={given['depth']}"


def _baseline(cases: list[Case], own: list[Case], other: list[Case], difference: Margin) -> tuple[Cell, ...]:
    over_own, over_other = accuracy_gain(cases, own), accuracy_gain(cases, other)
    line = DiagnosticThresholds().frozen_acc_margin_pp
    flags = ["raised" if margin.mean < line else "clear" for margin in (over_own, over_other)]
    return (
        Cell(method_label(cases[0].method)),
        *(mean_cell([case.accuracy for case in found], ".3f") for found in (cases, own, other)),
        *(margin_cell(margin) for margin in (difference, over_own, over_other)),
        Cell(f"D3 {flags[0]} with either" if flags[0] == flags[1] else f"D3 {flags[0]}, other's: {flags[1]}"),
    )


def as_published(methods: dict[str, list[Case]]) -> list[Finding]:
    """What the papers say of backprop, FA and DFA wherever they print all three."""
    bp, fa, dfa = (verdict_cell(methods[name], "three").text for name in ("BP", "FA", "DFA"))
    return [
        Finding("Backprop passes.", bp == "trustworthy", f"Verdict: {bp}."),
        Finding("FA's trained blocks do not beat its frozen ones.", depth_fails(methods["FA"]), _depth(methods["FA"])),
        Finding("FA does not trigger Mode 1.", not_(is_mode_1(methods["FA"])), f"Verdict: {fa}."),
        Finding("DFA is walked back.", dfa.startswith("walked back"), f"Verdict: {dfa}."),
        Finding("D1 fires for DFA.", check_fails(methods["DFA"], "D1"), check_values(methods["DFA"], "D1")),
        Finding("D2 fires for DFA.", check_fails(methods["DFA"], "D2"), check_values(methods["DFA"], "D2")),
    ]


def _matched(differences: dict[str, Margin]) -> Finding:
    line = DiagnosticThresholds().frozen_acc_margin_pp
    listed = "; ".join(f"{name} {margin_cell(difference).text} pp" for name, difference in differences.items())
    return Finding(
        "The other network's frozen baseline may stand for this one's.",
        all_true(is_within(difference.interval, line) for difference in differences.values()),
        f"Own shell less the other's, to be within {line:g} pp: {listed}.",
    )


def _depth(cases: Sequence[Case]) -> str:
    return f"Depth: {claim_over_seeds(cases, 'depth').reason}."


STUDY = Representative()

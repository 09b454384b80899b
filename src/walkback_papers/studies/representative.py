"""The representative setting: a wide network of two blocks, and whether another network's frozen baseline fits it.

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
from walkback_papers.plots import accuracies_with_frozen, accuracy_bars
from walkback_papers.results import Case, Results
from walkback_papers.scale import METHODS, RAW, Scale
from walkback_papers.studies.primary_audit import AUDIT_HEADS, AUDIT_NOTE, audit_row
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
"""The network itself, and the one whose frozen baseline the papers compare it with."""


class Representative(Study):
    def judged(self, scale: Scale) -> list[RunConfig]:
        return scale.runs(list(REPRESENTATIVE_METHODS.values()), place="wide")

    def runs(self, scale: Scale) -> list[RunConfig]:
        frozen = [
            config
            for place in _PLACES
            for name in REPRESENTATIVE_METHODS
            for config in _frozen_runs(scale, name, place)
        ]
        return [*self.judged(scale), *frozen]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        methods = {
            name: results.cases(scale.runs([text], place="wide")) for name, text in REPRESENTATIVE_METHODS.items()
        }
        cases = [case for found in methods.values() for case in found]
        own, other = (
            {name: results.cases(_frozen_runs(scale, name, place)) for name in REPRESENTATIVE_METHODS}
            for place in _PLACES
        )
        frozen = [case for found in (own, other) for each in found.values() for case in each]
        differences = {name: accuracy_gain(own[name], other[name]) for name in REPRESENTATIVE_METHODS}
        rows = [
            _baseline_row(methods[name], own[name], other[name], differences[name]) for name in REPRESENTATIVE_METHODS
        ]
        arch_here, arch_other = (f"{by_method['BP'][0].resolved.config.arch}" for by_method in (own, other))
        note = (
            f"Other network: {_short_arch(arch_other)}. Differences in percentage points, paired by seed, with 95% t "
            "intervals."
        )
        bars = accuracies_with_frozen(methods)
        bars["frozen baseline of the other network"] = {
            name: [case.accuracy for case in found] for name, found in other.items()
        }
        tables = [
            Table(
                "audit",
                "Audit of the wide network",
                AUDIT_HEADS,
                tuple(audit_row(found) for found in methods.values()),
                caption(scale, cases, AUDIT_NOTE),
            ),
            Table(
                "baselines",
                "Its own frozen baseline, and that of the other network",
                (
                    "method",
                    "accuracy",
                    "frozen baseline",
                    "other's frozen baseline",
                    "own − other, pp",
                    "over own, pp",
                    "over other's, pp",
                    "D3",
                ),
                tuple(rows),
                caption(scale, [*cases, *frozen], note),
            ),
        ]
        return make_study_report(
            "representative",
            "Representative setting",
            f"Which methods train the depth of {_short_arch(arch_here)}, and does the frozen baseline match?",
            scale,
            [*cases, *frozen],
            [*as_published(methods), _baseline_matches(differences)],
            tables=tables,
            figures=[
                accuracy_bars(
                    bars,
                    caption(scale, [*cases, *frozen], f"Other: {_short_arch(arch_other)}."),
                    methods,
                )
            ],
        )


def _frozen_runs(scale: Scale, name: str, place: str) -> list[RunConfig]:
    """The runs of a method's own frozen baseline at a place, for every seed."""
    text = REPRESENTATIVE_METHODS[name]
    return scale.runs(["bp:shell=bp" if name == "BP" else f"{text},shell=method"], place=place)


def _short_arch(arch: str) -> str:
    """A network's name, width and depth, as text."""
    name, _, settings = arch.partition(":")
    given = dict(item.split("=") for item in settings.split(","))
    return f"{name} d={given['d']} L={given['depth']}"


def _baseline_row(cases: list[Case], own: list[Case], other: list[Case], difference: Margin) -> tuple[Cell, ...]:
    over_own, over_other = accuracy_gain(cases, own), accuracy_gain(cases, other)
    line = DiagnosticThresholds().frozen_acc_margin_pp
    outcomes = ["fails" if margin.mean < line else "passes" for margin in (over_own, over_other)]
    return (
        Cell(method_label(cases[0].method)),
        *(mean_cell([case.accuracy for case in found], ".3f") for found in (cases, own, other)),
        *(margin_cell(margin) for margin in (difference, over_own, over_other)),
        Cell(f"{outcomes[0]} with either" if outcomes[0] == outcomes[1] else f"{outcomes[0]}, other's: {outcomes[1]}"),
    )


def as_published(methods: dict[str, list[Case]]) -> list[Finding]:
    """The papers' claims about backprop, FA and DFA where they report all three."""
    bp, fa, dfa = (verdict_cell(methods[name], "three").text for name in ("BP", "FA", "DFA"))
    return [
        Finding("bp-passes", "Backprop passes.", bp == "trustworthy", f"Verdict: {bp}."),
        Finding(
            "fa-depth-fails",
            "FA's trained blocks do not beat its frozen ones.",
            depth_fails(methods["FA"]),
            _depth_text(methods["FA"]),
        ),
        Finding("fa-not-mode-1", "FA is not in Mode 1.", not_(is_mode_1(methods["FA"])), f"Verdict: {fa}."),
        Finding("dfa-walked-back", "DFA is walked back.", dfa.startswith("walked back"), f"Verdict: {dfa}."),
        *(
            Finding(
                f"dfa-fails-{check.lower()}",
                f"DFA fails {check}.",
                check_fails(methods["DFA"], check),
                check_values(methods["DFA"], check),
            )
            for check in ("D1", "D2")
        ),
    ]


def _baseline_matches(differences: dict[str, Margin]) -> Finding:
    line = DiagnosticThresholds().frozen_acc_margin_pp
    listed = "; ".join(f"{name} {margin_cell(difference).text} pp" for name, difference in differences.items())
    return Finding(
        "other-baseline-matches",
        "The other network's frozen baseline may be used for this one.",
        all_true(is_within(difference.interval, line) for difference in differences.values()),
        f"Own frozen baseline minus the other's, to be within {line:g} pp: {listed}.",
    )


def _depth_text(cases: Sequence[Case]) -> str:
    return f"Depth: {claim_over_seeds(cases, 'depth').reason}."


STUDY = Representative()

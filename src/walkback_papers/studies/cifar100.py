"""A hundred classes: does the pattern of the primary audit come back on CIFAR-100?

Papers: P2 table 6
Claim: it does: BP passes, FA fails by depth utility without Mode 1, DFA fails by both
"""

from __future__ import annotations

from walkback.core.configuration import RunConfig
from walkback.report.study_report import Finding, StudyReport, Table
from walkback_papers.plots import accuracy_bars, with_shells
from walkback_papers.results import Case, Results
from walkback_papers.scale import Scale
from walkback_papers.studies.primary_audit import AUDIT_HEADS, audit_row
from walkback_papers.studies.representative import REPRESENTATIVE_METHODS, as_published
from walkback_papers.study import Study
from walkback_papers.tables import caption, check_fails, make_study_report

_CHECKS = ("D1", "D2", "D3")


class Cifar100Study(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return self.judged(scale)

    def judged(self, scale: Scale) -> list[RunConfig]:
        """The ten classes beside it too: the claim compares them."""
        return [
            config
            for place in ("cifar100", "resmlp")
            for config in scale.runs(list(REPRESENTATIVE_METHODS.values()), place=place)
        ]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        here, ten = (
            {name: results.cases(scale.runs([text], place=place)) for name, text in REPRESENTATIVE_METHODS.items()}
            for place in ("cifar100", "resmlp")
        )
        cases = [case for found in here.values() for case in found]
        table = Table(
            "audit",
            "Audit with more classes",
            AUDIT_HEADS,
            tuple(audit_row(found) for found in here.values()),
            caption(scale, cases, "Growth, norms and (c): smallest to largest seed. Margin: over its own shell."),
        )
        classes = f"{here['BP'][0].resolved.source.classes} and {ten['BP'][0].resolved.source.classes} classes"
        return make_study_report(
            "cifar100",
            "More classes",
            f"Do {classes} get the same verdicts?",
            scale,
            cases,
            [*as_published(here), _same(here, ten)],
            tables=[table],
            figures=[accuracy_bars(with_shells(here), caption(scale, cases))],
        )


def _same(here: dict[str, list[Case]], ten: dict[str, list[Case]]) -> Finding:
    """Whether every check says the same of every method with more classes."""
    known, differ = 0, []
    for name in ("BP", "FA", "DFA"):
        for check in _CHECKS:
            answers = [check_fails(cases[name], check) for cases in (here, ten)]
            if None in answers:
                continue
            known += 1
            if answers[0] != answers[1]:
                differ.append(f"{check} of {name}")
    open_ones = 3 * len(_CHECKS) - known
    said = f"{known - len(differ)} of {3 * len(_CHECKS)} checks agree"
    said += f"; other: {', '.join(differ)}" if differ else ""
    said += f"; seeds differ or no value in {open_ones}" if open_ones else ""
    holds = False if differ else None if open_ones else True
    return Finding("Every check says the same of BP, FA and DFA as with ten classes.", holds, f"{said}.")


STUDY = Cifar100Study()

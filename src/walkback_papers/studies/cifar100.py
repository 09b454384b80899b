"""A hundred classes: are the verdicts on CIFAR-100 those of the primary audit?

Papers: P2 table 6
Claim: they are: BP passes, FA fails by depth utility without Mode 1, DFA fails by both
"""

from __future__ import annotations

from walkback.core.configuration import RunConfig
from walkback.report.study_report import Finding, StudyReport, Table
from walkback_papers.plots import accuracies_with_frozen, accuracy_bars
from walkback_papers.results import Case, Results
from walkback_papers.scale import Scale
from walkback_papers.studies.primary_audit import AUDIT_HEADS, AUDIT_NOTE, audit_row
from walkback_papers.studies.representative import REPRESENTATIVE_METHODS, as_published
from walkback_papers.study import Study
from walkback_papers.tables import caption, check_fails, make_study_report

_CHECKS = ("D1", "D2", "D3")


class Cifar100Study(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return self.judged(scale)

    def judged(self, scale: Scale) -> list[RunConfig]:
        """Runs with ten classes too: one claim compares them."""
        return [
            config
            for place in ("cifar100", "resmlp")
            for config in scale.runs(list(REPRESENTATIVE_METHODS.values()), place=place)
        ]

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        hundred, ten = (
            {name: results.cases(scale.runs([text], place=place)) for name, text in REPRESENTATIVE_METHODS.items()}
            for place in ("cifar100", "resmlp")
        )
        cases = [case for found in hundred.values() for case in found]
        table = Table(
            "audit",
            "Audit with more classes",
            AUDIT_HEADS,
            tuple(audit_row(found) for found in hundred.values()),
            caption(scale, cases, AUDIT_NOTE),
        )
        classes = f"{hundred['BP'][0].resolved.source.classes} and {ten['BP'][0].resolved.source.classes} classes"
        return make_study_report(
            "cifar100",
            "More classes",
            f"Do {classes} get the same verdicts?",
            scale,
            cases,
            [*as_published(hundred), _same(hundred, ten)],
            tables=[table],
            figures=[accuracy_bars(accuracies_with_frozen(hundred), caption(scale, cases), hundred)],
        )


def _same(hundred: dict[str, list[Case]], ten: dict[str, list[Case]]) -> Finding:
    """Whether each check has the same outcome for BP, FA and DFA as with ten classes."""
    known, differ = 0, []
    for name in ("BP", "FA", "DFA"):
        for check in _CHECKS:
            answers = [check_fails(cases[name], check) for cases in (hundred, ten)]
            if None in answers:
                continue
            known += 1
            if answers[0] != answers[1]:
                differ.append(f"{check} of {name}")
    open_ones = 3 * len(_CHECKS) - known
    details = f"{known - len(differ)} of {3 * len(_CHECKS)} checks agree"
    details += f"; they differ in: {', '.join(differ)}" if differ else ""
    details += f"; seeds differ or no value in {open_ones}" if open_ones else ""
    holds = False if differ else None if open_ones else True
    return Finding(
        "same-as-ten-classes",
        "Every check has the same outcome for BP, FA and DFA as with ten classes.",
        holds,
        f"{details}.",
    )


STUDY = Cifar100Study()

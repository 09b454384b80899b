"""The headline: which verdicts change where the claims decide, in place of the papers' rule?

Papers: ours; edition three is the rule of P2
Claim: nothing that edition three walks back becomes trustworthy; some of what it trusts does not stay so
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from walkback.core.configuration import RunConfig
from walkback.judge.audit_table import worst_outcome
from walkback.judge.editions import CLAIMS_EDITION, Outcome
from walkback.report.cells import Cell
from walkback.report.study_report import Finding, StudyReport, Table
from walkback_papers.results import Case, Results
from walkback_papers.scale import Scale
from walkback_papers.studies.complementarity import STUDY as COMPLEMENTARITY
from walkback_papers.study import Study
from walkback_papers.tables import claim_over_seeds, make_study_report, method_label, place_text, verdict_cell

_OUTCOMES: tuple[Outcome, ...] = ("trustworthy", "inconclusive", "walked_back", "cannot_be_judged")


@dataclass(frozen=True)
class _Setting:
    """A method in one setting, over its seeds."""

    cases: Sequence[Case]

    @property
    def outcomes(self) -> tuple[Outcome, Outcome]:
        """The worst verdict of the seeds, by edition three and by the claims."""
        three, claims = (
            worst_outcome([case.report.verdicts[edition].outcome for case in self.cases])
            for edition in ("three", CLAIMS_EDITION)
        )
        return three, claims

    @property
    def words(self) -> str:
        resolved = self.cases[0].resolved
        return f"{place_text(resolved)}, {resolved.config.epochs} epochs, {resolved.config.augment}"


class HeadlineChange(Study):
    def runs(self, scale: Scale) -> list[RunConfig]:
        return COMPLEMENTARITY.runs(scale)

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        cases = [case for case in results.cases(self.runs(scale)) if case.resolved.shared_options.shell == "none"]
        by_setting: dict[str, list[Case]] = {}
        for case in cases:
            by_setting.setdefault(replace(case.resolved.config, seed=0).digest(), []).append(case)
        settings = [_Setting(found) for found in by_setting.values()]
        note = (
            f"The {len(settings)} judged settings of all studies: a method on one network and data set with one "
            "recipe, over its seeds; oracle controls left out. The worst verdict of the seeds, as in an audit of the "
            f"method alone. Scale: {scale.name}."
        )
        return make_study_report(
            "headline-change",
            "The headline",
            "Which verdicts change where the claims decide, in place of the papers' edition three?",
            scale,
            cases,
            _findings(settings),
            tables=[_counts(settings, note), _changed(settings, note)],
        )


def _shown(outcome: Outcome) -> str:
    return outcome.replace("_", " ")


def _counts(settings: Sequence[_Setting], note: str) -> Table:
    counts = Counter(setting.outcomes for setting in settings)
    rows = tuple(
        (
            Cell(_shown(three)),
            *(Cell(str(counts[three, claims]), counts[three, claims]) for claims in _OUTCOMES),
        )
        for three in _OUTCOMES
        if any(key[0] == three for key in counts)
    )
    heads = ("edition three", *(f"claims: {_shown(outcome)}" for outcome in _OUTCOMES))
    return Table("counts", "Settings by both verdicts", heads, rows, note)


def _changed(settings: Sequence[_Setting], note: str) -> Table:
    rows = tuple(
        (
            Cell(method_label(setting.cases[0].method)),
            Cell(setting.words),
            verdict_cell(setting.cases, "three"),
            verdict_cell(setting.cases, CLAIMS_EDITION),
            *(
                Cell(claim.shown, None, claim.reason)
                for claim in (claim_over_seeds(setting.cases, name) for name in ("depth", "alignment"))
            ),
        )
        for setting in settings
        if len(set(setting.outcomes)) > 1
    )
    heads = ("method", "setting", "three", "claims", "depth", "alignment")
    return Table("changed", "Settings whose verdicts differ", heads, rows, note)


def _findings(settings: Sequence[_Setting]) -> list[Finding]:
    upgraded = [each for each in settings if each.outcomes == ("walked_back", "trustworthy")]
    trusted = [each for each in settings if each.outcomes[0] == "trustworthy"]
    lost = Counter(each.outcomes[1] for each in trusted if each.outcomes[1] != "trustworthy")
    details = ", ".join(f"{count} {_shown(outcome)}" for outcome, count in sorted(lost.items())) or "none"
    return [
        Finding(
            "none-gained",
            "No setting that edition three walks back is trustworthy by its claims.",
            not upgraded,
            f"{len(upgraded)} of {sum(each.outcomes[0] == 'walked_back' for each in settings)}.",
        ),
        Finding(
            "some-lost",
            "Some settings that edition three trusts are not trustworthy by their claims.",
            bool(lost),
            f"Of {len(trusted)}: {details}.",
        ),
    ]


STUDY = HeadlineChange()

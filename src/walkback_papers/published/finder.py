"""Find the runs behind a published figure in stored results, and record which were used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from walkback.core.configuration import RunConfig
from walkback.core.errors import InputError, unknown
from walkback.training.resolved_run import ResolvedRun, resolve
from walkback_papers.results import Case, Results
from walkback_papers.run_studies import runs_of_studies, studies_of
from walkback_papers.scale import METHODS, RAW, Scale, scale_of
from walkback_papers.tables import with_penalty

FROZEN_BASELINES = {"BP shell": "bp:shell=bp"} | {
    f"{name} shell": f"{text},shell=method" for name, text in METHODS.items() if ":" in text
}
"""Frozen baselines by name: blocks frozen at random, the rest trained by backprop or by the method's own credit."""

NO_RUN = "no finished"
"""How the reason begins when runs are missing."""


def written_method(name: str) -> str:
    """The method text of a run configuration, given the name that tables show."""
    known = METHODS | {shown: text for text, shown in RAW.items()} | FROZEN_BASELINES
    if name not in known:
        raise unknown("method of a published figure", name, known)
    return known[name]


@cache
def study_runs_at(study: str, scale: str) -> dict[str, ResolvedRun]:
    """Every run of a study at a scale, baselines included, by name."""
    return {resolved.name: resolved for resolved in runs_of_studies(studies_of([study]).values(), scale_of(scale))}


class Finder:
    """Finds runs in the stored results of one study, restricted to the study's own runs."""

    def __init__(self, results: Results, scale: Scale, study: str):
        self.scale, self.study = scale, study
        self.resolved_runs = study_runs_at(study, scale.name)
        self.results = results.limited_to(self.resolved_runs)
        self.used: dict[str, None] = {}
        """Names of the runs that were looked up, in order."""
        self._cases: dict[tuple[str, str, str, float], dict[str, Case | None]] = {}
        """By (method, place, epochs, penalty): the runs, None for those that are not finished."""

    def runs(self, name: str, place: str, epochs: str, penalty: float = 0.0) -> list[RunConfig]:
        """A method's run configurations at a place, one per seed."""
        return self.scale.runs([with_penalty(written_method(name), penalty)], place=place, epochs=epochs)

    def cases(self, name: str, place: str = "resmlp", epochs: str = "full", penalty: float = 0.0) -> list[Case]:
        """The finished runs of a method, one per seed; raises an error that names the unfinished ones."""
        key = (name, place, epochs, penalty)
        if key not in self._cases:
            resolved_runs = [resolve(config) for config in self.runs(*key)]
            self._cases[key] = {resolved.name: self._case(resolved) for resolved in resolved_runs}
        found = self._cases[key]
        self.used |= dict.fromkeys(found)
        not_in_study = [run for run in found if run not in self.resolved_runs]
        if not_in_study:
            raise InputError(f"the study {self.study} has no {_listed(not_in_study)}")
        unfinished = [run for run, case in found.items() if case is None]
        if unfinished:
            raise InputError(f"{NO_RUN} {_listed(unfinished)}")
        return [case for case in found.values() if case is not None]

    def _case(self, resolved: ResolvedRun) -> Case | None:
        return None if self.results.run_index.finished(resolved) is None else self.results.case(resolved.config)


def _listed(names: Sequence[str]) -> str:
    return f"run{'s' if len(names) > 1 else ''} {', '.join(names)}"

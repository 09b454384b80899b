"""Finds the runs behind a figure among stored results, and keeps a note of which they are."""

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

SHELL_METHODS = {"BP shell": "bp:shell=bp"} | {
    f"{name} shell": f"{text},shell=method" for name, text in METHODS.items() if ":" in text
}
"""Frozen blocks: the rest trained by backprop, or by the method's own credit."""

NO_RUN = "no finished"
"""How it is said that runs are not there."""


def written_method(name: str) -> str:
    """A method as a run writes it, by the name that tables show."""
    known = METHODS | {shown: text for text, shown in RAW.items()} | SHELL_METHODS
    if name not in known:
        raise unknown("method of a published figure", name, known)
    return known[name]


@cache
def recipes_at(study: str, scale: str) -> dict[str, ResolvedRun]:
    """Every run of a study at a scale, baselines included, by name."""
    return {resolved.name: resolved for resolved in runs_of_studies(studies_of([study]).values(), scale_of(scale))}


class Finder:
    """The stored results of one study, as its own page sees them."""

    def __init__(self, results: Results, scale: Scale, study: str):
        self.scale, self.study = scale, study
        self.resolved_runs = recipes_at(study, scale.name)
        self.results = results.limited_to(self.resolved_runs)
        self.used: dict[str, None] = {}
        """Names of the runs that were asked for, in order."""
        self._wanted: dict[tuple[str, str, str, float], dict[str, Case | None]] = {}
        """By what is asked for: its runs, and None where one is not finished."""

    def runs(self, name: str, place: str, epochs: str, penalty: float = 0.0) -> list[RunConfig]:
        """A method's runs at a place, one for each seed."""
        return self.scale.runs([with_penalty(written_method(name), penalty)], place=place, epochs=epochs)

    def cases(self, name: str, place: str = "resmlp", epochs: str = "full", penalty: float = 0.0) -> list[Case]:
        """The same, finished; the names of those that are not are said."""
        asked = (name, place, epochs, penalty)
        if asked not in self._wanted:
            resolved_runs = [resolve(config) for config in self.runs(*asked)]
            self._wanted[asked] = {resolved.name: self._case(resolved) for resolved in resolved_runs}
        found = self._wanted[asked]
        self.used |= dict.fromkeys(found)
        foreign = [run for run in found if run not in self.resolved_runs]
        if foreign:
            raise InputError(f"the study {self.study} has no {_listed(foreign)}")
        absent = [run for run, case in found.items() if case is None]
        if absent:
            raise InputError(f"{NO_RUN} {_listed(absent)}")
        return [case for case in found.values() if case is not None]

    def _case(self, resolved: ResolvedRun) -> Case | None:
        return None if self.results.run_index.finished(resolved) is None else self.results.case(resolved.config)


def _listed(names: Sequence[str]) -> str:
    return f"run{'s' if len(names) > 1 else ''} {', '.join(names)}"

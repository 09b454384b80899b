"""What a study is: the runs it needs, what is looked at closely on the way, and what it tells of the stored results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from walkback.core.configuration import RunConfig
from walkback.report.study_report import StudyReport
from walkback_papers.results import Results
from walkback_papers.scale import Scale


class Study(ABC):
    """One experiment. Its file's docstring says which question it asks and where the papers ask it.

    `tell` is a function of stored numbers alone: it runs again, and in other words, without any model.
    """

    @abstractmethod
    def runs(self, scale: Scale) -> list[RunConfig]:
        """The runs whose results it needs; the frozen shells and backprop are added with `judged`."""

    def judged(self, scale: Scale) -> list[RunConfig]:
        """Those of its runs that get a verdict, and so need their baselines: all, unless it says otherwise."""
        return self.runs(scale)

    def epochs_to_measure(self, scale: Scale) -> list[tuple[RunConfig, Sequence[int]]]:
        """Runs, each with the epochs after which it is measured in full while it trains; 0 is before the first."""
        return []

    def functional(self, scale: Scale) -> list[RunConfig]:
        """The runs whose finite-step metrics it needs."""
        return []

    @abstractmethod
    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        """Tables, figures and findings."""

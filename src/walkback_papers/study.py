"""The interface of a study: the runs and measurements it needs, and how it reports the stored results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from walkback.core.configuration import RunConfig
from walkback.report.study_report import StudyReport
from walkback_papers.experiments import Experiment
from walkback_papers.results import Results
from walkback_papers.scale import Scale


class Study(ABC):
    """One experiment. The docstring of its module states the question and where the papers ask it.

    `report_results` reads stored numbers only, so reports can be reworded and written again without any model.
    """

    @abstractmethod
    def runs(self, scale: Scale) -> list[RunConfig]:
        """The runs whose results it needs; baselines (backprop, frozen blocks) are added for the runs in `judged`."""

    def judged(self, scale: Scale) -> list[RunConfig]:
        """The runs that get a verdict and therefore need baselines; by default all of them."""
        return self.runs(scale)

    def epochs_to_measure(self, scale: Scale) -> list[tuple[RunConfig, Sequence[int]]]:
        """Runs with the epochs after which each is measured in full during training; 0 is before the first step."""
        return []

    def functional(self, scale: Scale) -> list[RunConfig]:
        """The runs whose finite-step metrics it needs."""
        return []

    def experiments(self, scale: Scale) -> list[Experiment]:
        """What it measures besides runs; `results.of_experiment` gives each stored result."""
        return []

    @abstractmethod
    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        """Make the tables, figures and findings from stored results."""

"""Puts tests/unit on the path, for made-up measurements, and shares one folder of trained runs between slow tests."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit"))


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """A function that runs a study at smoke scale and returns its report: `smoke("primary-audit")`."""
    from walkback.runs.train_runs import ProgressListener, TrainOptions
    from walkback_papers.run_studies import run_studies, studies_of
    from walkback_papers.scale import SMOKE

    out = tmp_path_factory.mktemp("studies")

    def run_study(name: str):
        done = run_studies(studies_of([name]), SMOKE, TrainOptions(out=out, device="cpu"), ProgressListener())
        assert done.unfinished == 0
        (study_report,) = done.study_reports
        assert (out / name / "index.html").is_file()
        return study_report

    return run_study

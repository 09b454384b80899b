"""Lets studies' tests plant measurements, and shares one folder of real runs between the slow ones."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit"))


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Callable:
    """Carries a study out at smoke scale and returns its story: `story = smoke("primary-audit")`."""
    from walkback.runs.train_runs import ProgressListener, TrainOptions
    from walkback_papers.run_studies import run_studies, studies_of
    from walkback_papers.scale import SMOKE

    out = tmp_path_factory.mktemp("studies")

    def carry_out(name: str):
        done = run_studies(studies_of([name]), SMOKE, TrainOptions(out=out, device="cpu"), ProgressListener())
        assert done.unfinished == 0
        (study_report,) = done.study_reports
        assert (out / name / "index.html").is_file()
        return study_report

    return carry_out

"""The penalty sweep: findings depend on the planted numbers, and it runs at smoke scale."""

import shutil
from pathlib import Path

import pytest
from planted import PlantedRuns, holds

from walkback.report.study_report import StudyReport
from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.penalty_sweep import STUDY, SWEPT_PENALTIES
from walkback_papers.tables import with_penalty

SHRINKING = dict(zip(SWEPT_PENALTIES, (100.0, 5.0, 3.0, 2.0, 1.5), strict=True))
"""DFA's growth by λ: D1 fails only without a penalty."""


def plant(
    planted_runs: PlantedRuns,
    sizes=SWEPT_PENALTIES,
    growth=100.0,
    grad=1e-4,
    cosine=0.0,
    accuracy=0.3,
    fa_growth=None,
    rho=None,
) -> None:
    """Plant DFA at some λ, and FA where its growth is given; `rho` defaults to half the cosine."""
    finite = {"rho": cosine / 2 if rho is None else rho}
    measured = {"grad": grad, "cosines": cosine, "groups": 2}
    for size in sizes:
        dfa, fa = (SMOKE.runs([with_penalty(METHODS[name], size)], epochs="short") for name in ("DFA", "FA"))
        planted_runs.plant(
            dfa, accuracy=[accuracy, accuracy + 0.001], measured=measured | {"growth": growth}, functional=finite
        )
        if fa_growth is not None:
            planted_runs.plant(fa, accuracy=0.4, measured=measured | {"growth": fa_growth})


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """A folder of runs with the published pattern."""
    folder = tmp_path_factory.mktemp("published")
    planted_runs = PlantedRuns(folder)
    for size, growth in SHRINKING.items():
        plant(planted_runs, [size], growth, 1e-9 if size == 0 else 1e-4, 0.2 if size >= 1e-2 else 0.0, fa_growth=2.0)
    # A penalty does not change frozen blocks: all λ share their frozen baselines.
    frozen = [f"{METHODS['DFA']},shell=method", f"{METHODS['FA']},shell=method", "bp:shell=bp"]
    planted_runs.plant(SMOKE.runs(frozen, epochs="short"), accuracy=0.35, measured={"groups": 2})
    backprop = SMOKE.runs([with_penalty("bp", size) for size in SWEPT_PENALTIES], epochs="short")
    planted_runs.plant(backprop, accuracy=0.9, measured={"cosines": 1.0, "groups": 2})
    return folder


def make_report(published: Path, tmp_path: Path, **changes) -> StudyReport:
    """The report of the published pattern with DFA or FA changed at some λ."""
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    planted_runs = PlantedRuns(tmp_path)
    if changes:
        plant(planted_runs, **changes)
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_published_pattern_supports_the_claims(published, tmp_path):
    study_report = make_report(published, tmp_path)
    assert [finding.holds for finding in study_report.findings] == [True] * 8 + [
        False
    ]  # Planted without an aligned h_0.
    table, finite = study_report.tables
    assert [[cell.text for cell in row[:3]] for row in finite.rows][1:4:2] == [
        ["1e-4", "+0.000 ± 0.000", "+0.000 ± 0.000"],
        ["0.01", "+0.200 ± 0.000", "+0.100 ± 0.000"],
    ]
    assert [row[1].value for row in table.rows] == [*SWEPT_PENALTIES] * 3
    backprop = [row for row in table.rows if row[0].text == "BP"]
    assert {row[4].text for row in backprop} == {"NOT MEASURED"}  # Exact at every layer,
    assert {row[5].text for row in backprop} == {"+1.000 ± 0.000"}  # and included in the published mean.


def test_zero_penalty_is_drawn_apart_from_the_logarithmic_axis(published, tmp_path):
    accuracy = make_report(published, tmp_path).figures[0].plots[0]
    assert {tuple(series.x) for series in accuracy.series} == {(0.0,), (2.0, 3.0, 4.0, 5.0)}
    assert accuracy.ticks == ("0", "", "1e-4", "1e-3", "1e-2", "1e-1")
    assert accuracy.breaks == (1.0,)


@pytest.mark.parametrize(
    ("changes", "finding_id", "expected"),
    [
        ({"sizes": [1e-2], "growth": 200.0}, "penalty-shrinks-stream", False),
        ({"sizes": [1e-2], "growth": 4.0}, "larger-penalty-smaller-stream", False),
        ({"sizes": [1e-2], "growth": 4.0}, "penalty-shrinks-stream", True),
        ({"sizes": [0.0], "grad": 1e-4}, "small-penalty-relieves-mode-1", None),  # Nothing to relieve.
        ({"sizes": [1e-4], "growth": 90.0, "grad": 1e-9}, "small-penalty-relieves-mode-1", False),
        (
            {"sizes": [1e-4], "growth": 90.0, "grad": 1e-4},
            "small-penalty-relieves-mode-1",
            True,
        ),  # D1 alone is not Mode 1.
        ({"sizes": [1e-4], "growth": 5.0, "cosine": 0.1}, "small-penalty-cosine-small", False),
        ({"sizes": [1e-2], "growth": 2.0, "cosine": 0.01}, "strong-penalty-cosine-large", False),
        ({"sizes": [1e-4], "growth": 5.0, "rho": 0.2}, "finite-steps-agree", False),
        ({"sizes": [1e-2], "growth": 2.0, "cosine": 0.2, "rho": 0.0}, "finite-steps-agree", False),
        ({"sizes": [1e-2], "growth": 2.0, "cosine": 0.2, "rho": 0.05}, "finite-steps-agree", None),
        ({"sizes": [1e-3], "growth": 3.0, "fa_growth": 100.0, "grad": 1e-9}, "fa-not-mode-1", False),
        ({"sizes": [1e-3], "growth": 3.0, "accuracy": 0.5}, "dfa-never-trustworthy", False),
        ({"sizes": [1e-3], "growth": 3.0, "accuracy": 0.369}, "dfa-never-trustworthy", None),  # 2 pp in its interval.
        ({"sizes": [1e-3], "growth": 90.0, "grad": 1e-9, "accuracy": 0.5}, "dfa-never-trustworthy", True),
        ({"sizes": SWEPT_PENALTIES, "cosine": 0.2}, "first-state-aligned", True),
    ],
)
def test_findings_depend_on_the_planted_numbers(published, tmp_path, changes, finding_id, expected):
    assert holds(make_report(published, tmp_path, **changes), finding_id) is expected


@pytest.mark.slow
def test_at_smoke_scale_the_penalty_shrinks_dfas_stream(smoke):
    study_report: StudyReport = smoke("penalty-sweep")
    assert holds(study_report, "penalty-shrinks-stream") is True
    assert holds(study_report, "fa-not-mode-1") is True
    controls = [row[3].value for row in study_report.tables[1].rows]
    assert len(controls) == len(SWEPT_PENALTIES)
    assert min(controls) > 0.9

"""The penalty sweep's findings follow the planted numbers, and it runs at smoke scale."""

import shutil
from pathlib import Path

import pytest
from planted import Bed, holds

from walkback.report.study_report import StudyReport
from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.penalty_sweep import STUDY, SWEPT_PENALTIES
from walkback_papers.tables import with_penalty

SHRINKING = dict(zip(SWEPT_PENALTIES, (100.0, 5.0, 3.0, 2.0, 1.5), strict=True))
"""DFA's growth by λ: only without a penalty is D1 raised."""


def plant(
    bed: Bed, sizes=SWEPT_PENALTIES, growth=100.0, grad=1e-4, cosine=0.0, accuracy=0.3, fa_growth=None, rho=None
) -> None:
    """DFA's numbers at some λ; and FA's, where its growth is given. ρ is half the cosine, unless given."""
    finite = {"rho": cosine / 2 if rho is None else rho}
    look = {"grad": grad, "cosines": cosine, "groups": 2}
    for size in sizes:
        dfa, fa = (SMOKE.runs([with_penalty(METHODS[name], size)], epochs="short") for name in ("DFA", "FA"))
        bed.plant(dfa, accuracy=[accuracy, accuracy + 0.001], look=look | {"growth": growth}, functional=finite)
        if fa_growth is not None:
            bed.plant(fa, accuracy=0.4, look=look | {"growth": fa_growth})


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """Planted as the papers have it."""
    folder = tmp_path_factory.mktemp("published")
    bed = Bed(folder)
    for size, growth in SHRINKING.items():
        plant(bed, [size], growth, 1e-9 if size == 0 else 1e-4, 0.2 if size >= 1e-2 else 0.0, fa_growth=2.0)
    # A penalty moves no frozen block: all λ share their shells.
    shells = [f"{METHODS['DFA']},shell=method", f"{METHODS['FA']},shell=method", "bp:shell=bp"]
    bed.plant(SMOKE.runs(shells, epochs="short"), accuracy=0.35, look={"groups": 2})
    backprop = SMOKE.runs([with_penalty("bp", size) for size in SWEPT_PENALTIES], epochs="short")
    bed.plant(backprop, accuracy=0.9, look={"cosines": 1.0, "groups": 2})
    return folder


def told(published: Path, tmp_path: Path, **changes) -> StudyReport:
    """The published pattern with DFA or FA changed at some λ."""
    shutil.copytree(published, tmp_path, dirs_exist_ok=True)
    bed = Bed(tmp_path)
    if changes:
        plant(bed, **changes)
    return STUDY.report_results(bed.results(), SMOKE)


def test_as_the_papers_have_it_every_claim_holds(published, tmp_path):
    study_report = told(published, tmp_path)
    assert [finding.holds for finding in study_report.findings] == [True] * 8
    table, finite = study_report.tables
    assert [[cell.text for cell in row[:3]] for row in finite.rows][1:4:2] == [
        ["1e-4", "+0.000 ± 0.000", "+0.000 ± 0.000"],
        ["0.01", "+0.200 ± 0.000", "+0.100 ± 0.000"],
    ]
    assert [row[1].value for row in table.rows] == [*SWEPT_PENALTIES] * 3
    backprop = [row for row in table.rows if row[0].text == "BP"]
    assert {row[4].text for row in backprop} == {"NOT MEASURED"}  # Exact everywhere,
    assert {row[5].text for row in backprop} == {"+1.000 ± 0.000"}  # and counted as published all the same.


def test_no_penalty_stands_apart_from_the_logarithmic_axis(published, tmp_path):
    accuracy = told(published, tmp_path).figures[0].plots[0]
    assert {tuple(series.x) for series in accuracy.series} == {(0.0,), (2.0, 3.0, 4.0, 5.0)}
    assert accuracy.ticks == ("0", "", "0.0001", "0.001", "0.01", "0.1")


@pytest.mark.parametrize(
    ("changes", "words", "expected"),
    [
        ({"sizes": [1e-2], "growth": 200.0}, "contains", False),
        ({"sizes": [1e-2], "growth": 4.0}, "dose by dose", False),
        ({"sizes": [1e-2], "growth": 4.0}, "contains", True),
        ({"sizes": [0.0], "grad": 1e-4}, "relieves", None),  # Nothing to relieve.
        ({"sizes": [1e-4], "growth": 90.0, "grad": 1e-9}, "relieves", False),
        ({"sizes": [1e-4], "growth": 90.0, "grad": 1e-4}, "relieves", True),  # D1 alone is not Mode 1.
        ({"sizes": [1e-4], "growth": 5.0, "cosine": 0.1}, "still under", False),
        ({"sizes": [1e-2], "growth": 2.0, "cosine": 0.01}, "it is above", False),
        ({"sizes": [1e-4], "growth": 5.0, "rho": 0.2}, "Finite steps say the same", False),
        ({"sizes": [1e-2], "growth": 2.0, "cosine": 0.2, "rho": 0.0}, "Finite steps say the same", False),
        ({"sizes": [1e-2], "growth": 2.0, "cosine": 0.2, "rho": 0.05}, "Finite steps say the same", None),
        ({"sizes": [1e-3], "growth": 3.0, "fa_growth": 100.0, "grad": 1e-9}, "FA needs no penalty", False),
        ({"sizes": [1e-3], "growth": 3.0, "accuracy": 0.5}, "No penalty", False),
    ],
)
def test_a_finding_turns_with_its_numbers(published, tmp_path, changes, words, expected):
    assert holds(told(published, tmp_path, **changes), words) is expected


@pytest.mark.slow
def test_at_smoke_scale_the_penalty_contains_dfa(smoke):
    study_report: StudyReport = smoke("penalty-sweep")
    assert holds(study_report, "contains") is True
    assert holds(study_report, "FA needs no penalty") is True
    controls = [row[3].value for row in study_report.tables[1].rows]
    assert len(controls) == len(SWEPT_PENALTIES)
    assert min(controls) > 0.9

"""The fresh-B null: scores are computed from the planted draws."""

import math
from pathlib import Path

import numpy as np
import pytest
from fake_measurements import changed, fake
from planted import PlantedRuns, cells, holds

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.fresh_b_null import NULL_PENALTIES, STUDY
from walkback_papers.tables import with_penalty

WIDTH = 0.01 * math.sqrt(20 / 19)
"""Standard deviation (ddof = 1) of the planted draws: ten at +0.01 and ten at -0.01."""


def make_report(tmp_path: Path, own=(0.2, 0.0), fresh=0.0, drawn=True):
    """The report; `own` is DFA's deep cosine with and without the penalty, `fresh` the mean of the draws."""
    planted_runs = PlantedRuns(tmp_path)
    for size, cosine in zip(NULL_PENALTIES, own, strict=True):
        configs = SMOKE.runs([with_penalty(METHODS["DFA"], size)], epochs="short")
        made = fake(cosines=[0.4, cosine, cosine, cosine, 0.0], fresh=fresh, groups=2)
        planted_runs.plant(configs, shell=0.3, measured=made if drawn else changed(made, null_fresh=None))
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_scores_include_the_uncertainty_of_the_draws(tmp_path):
    (table,) = make_report(tmp_path).tables
    deep = table.rows[0]
    assert [cell.text for cell in deep[2:7]] == ["deep: 0, 1, 2, 3", "+0.250", "+0.000", f"{WIDTH:.3f}", "20"]
    assert deep[7].value == pytest.approx(0.25 / (WIDTH * math.sqrt(1 + 1 / 20)))


def test_the_published_layers_have_a_row_of_their_own(tmp_path):
    (table,) = make_report(tmp_path).tables
    published = table.rows[1]
    assert [published[2].text, published[3].text] == ["published: 1..4", "+0.150"]  # Three at 0.2 and one at 0.


def test_published_pattern_supports_the_claims(tmp_path):
    assert [finding.holds for finding in make_report(tmp_path).findings] == [True] * 4


@pytest.mark.parametrize(
    ("changes", "finding_id", "expected"),
    [
        ({"own": (0.0, 0.0)}, "depends-on-own-b", False),
        ({"own": (2.5 * WIDTH * 4 / 3, 0.0)}, "depends-on-own-b", None),  # Neither among the draws nor outside them.
        ({"own": (-0.2, 0.0)}, "depends-on-own-b", True),
        ({"own": (0.2, -0.2)}, "any-b-without-penalty", False),
        ({"own": (0.2, -0.4 / 3)}, "first-state-depends-on-own-b", False),  # h_0 makes up for the others.
        ({"own": (0.2, 0.2)}, "any-b-without-penalty", False),
        ({"fresh": 0.1}, "fresh-b-gives-zero", False),
        ({"drawn": False}, "depends-on-own-b", None),
        ({"drawn": False}, "fresh-b-gives-zero", None),
    ],
)
def test_findings_depend_on_the_planted_numbers(tmp_path, changes, finding_id, expected):
    assert holds(make_report(tmp_path, **changes), finding_id) is expected


def test_the_figure_has_every_draw(tmp_path):
    plot = make_report(tmp_path).figures[0].plots[0]
    drawn, own = plot.series
    assert len(drawn.y) == 40
    assert sorted(set(np.round(drawn.y, 6))) == [-0.01, 0.01]
    assert own.y == pytest.approx([0.15, 0.15])  # Over l = 1..4, as published.


def test_without_draws_the_score_is_not_measured(tmp_path):
    assert set(cells(make_report(tmp_path, drawn=False), "fresh", "z against fresh").values()) == {"NOT MEASURED"}


@pytest.mark.slow
def test_smoke_makes_twenty_draws(smoke):
    (table,) = smoke("fresh-b-null").tables
    assert {row[6].text for row in table.rows} == {"20"}

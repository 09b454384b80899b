"""The fresh-B null's scores are those of the planted draws."""

import math
from pathlib import Path

import numpy as np
import pytest
from fake_measurements import changed, fake
from planted import Bed, cells, holds

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.fresh_b_null import NULL_PENALTIES, STUDY
from walkback_papers.tables import with_penalty

WIDTH = 0.01 * math.sqrt(20 / 19)
"""Standard deviation (ddof = 1) of the planted draws: ten at +0.01 and ten at -0.01."""


def told(tmp_path: Path, own=(0.2, 0.0), fresh=0.0, drawn=True):
    """`own` is DFA's deep cosine with the penalty and without; `fresh` the mean of the draws."""
    bed = Bed(tmp_path)
    for size, cosine in zip(NULL_PENALTIES, own, strict=True):
        configs = SMOKE.runs([with_penalty(METHODS["DFA"], size)], epochs="short")
        taken = fake(cosines=[0.4, cosine, cosine, cosine, 0.0], fresh=fresh, groups=2)
        bed.plant(configs, shell=0.3, look=taken if drawn else changed(taken, null_fresh=None))
    return STUDY.report_results(bed.results(), SMOKE)


def test_scores_are_taken_with_the_draws_own_uncertainty(tmp_path):
    (table,) = told(tmp_path).tables
    deep = table.rows[0]
    assert [cell.text for cell in deep[2:7]] == ["deep: 1, 2, 3", "+0.200", "+0.000", f"{WIDTH:.3f}", "20"]
    assert deep[7].value == pytest.approx(0.2 / (WIDTH * math.sqrt(1 + 1 / 20)))


def test_the_published_layers_are_counted_apart(tmp_path):
    (table,) = told(tmp_path).tables
    published = table.rows[1]
    assert [published[2].text, published[3].text] == ["published: 1..4", "+0.150"]  # Three at 0.2 and one at 0.


def test_the_published_pattern(tmp_path):
    assert [finding.holds for finding in told(tmp_path).findings] == [True, True, True]


@pytest.mark.parametrize(
    ("changes", "words", "expected"),
    [
        ({"own": (0.0, 0.0)}, "its own B", False),
        ({"own": (2.5 * WIDTH, 0.0)}, "its own B", None),  # Neither among the draws nor outside them.
        ({"own": (0.2, 0.2)}, "any B", False),
        ({"fresh": 0.1}, "give zero", False),
        ({"drawn": False}, "its own B", None),
        ({"drawn": False}, "give zero", None),
    ],
)
def test_a_finding_turns_with_its_numbers(tmp_path, changes, words, expected):
    assert holds(told(tmp_path, **changes), words) is expected


def test_every_draw_is_drawn(tmp_path):
    plot = told(tmp_path).figures[0].plots[0]
    drawn, own = plot.series
    assert len(drawn.y) == 40
    assert sorted(set(np.round(drawn.y, 6))) == [-0.01, 0.01]
    assert own.y == pytest.approx([0.2, 0.2])


def test_without_draws_the_table_says_so(tmp_path):
    assert set(cells(told(tmp_path, drawn=False), "fresh", "z against fresh").values()) == {"NOT MEASURED"}


@pytest.mark.slow
def test_at_smoke_scale_twenty_draws_are_told(smoke):
    (table,) = smoke("fresh-b-null").tables
    assert {row[6].text for row in table.rows} == {"20"}

"""The logs replayed: first epochs, what stopping costs and saves, all from planted logs."""

from __future__ import annotations

import pytest
from planted import Bed, cells, holds, sight

from walkback.studies.catalog.temporal_replay import D1, D2, D2_PAPERS, STUDY, earliest, saved, stays
from walkback.studies.scale import METHODS, SMOKE
from walkback.studies.telling import first_epoch

QUIET = [sight(epoch) for epoch in range(1, 13)]
GRAD = [5e-6, 5e-7, 5e-8, *[1e-9] * 9]
"""Under the papers' floor at epoch 2, under ours at 3."""
GROWTH = [10, 20, 30, *[200] * 9]
"""D1 at epoch 4."""
PUBLISHED = [sight(n + 1, growth=GROWTH[n], grad=GRAD[n], accuracy=0.31 if n else 0.2) for n in range(12)]


def told(tmp_path, dfa=PUBLISHED, bp=QUIET, student=QUIET, accuracy=(0.300, 0.302)):
    bed = Bed(tmp_path)
    others = {"resmlp": {"bp": bp, METHODS["DFA"]: dfa}, "student": {METHODS["DFA"]: student}}
    for config in STUDY.runs(SMOKE):
        place = "student" if config.arch.name == "student_net" else config.arch.name
        log = others.get(place, {}).get(str(config.method), QUIET)
        seed = SMOKE.seeds.index(config.seed)
        bed.plant([config], log=log, accuracy=accuracy[seed] if log is dfa and place == "resmlp" else 0.6)
    return STUDY.tell(bed.results(), SMOKE)


def test_published_pattern(tmp_path):
    story = told(tmp_path)
    for words in ("no detector ever fires", "fires in every seed", "fires before D1", "still to come", "stays raised"):
        assert holds(story, words) is True, words
    assert holds(story, "StudentNet") is True
    rows = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in story.tables[0].rows}
    assert rows["resmlp", "DFA"] == ["4", "3", "2", "to the end"]
    assert rows["resmlp", "BP"] == ["never", "never", "never", "–"]
    stops = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in story.tables[1].rows}
    assert stops["resmlp", "DFA"] == ["2", "0.310 ± 0.000", "0.301 ± 0.001", "-0.9 [-2.2, +0.4]", "83% ± 0%"]
    assert stops["resmlp", "BP"] == ["never", "–", "0.600 ± 0.000", "–", "–"]


def test_share_saved_is_counted_from_the_epochs_left(tmp_path):
    assert holds(told(tmp_path), "saves more than") is False  # 10 of 12
    early = [sight(1, grad=1e-9), *PUBLISHED[1:]]
    assert holds(told(tmp_path, dfa=early), "saves more than") is True  # 11 of 12


def test_findings_flip_with_the_logs(tmp_path):
    fires_late = [*QUIET[:11], sight(12, grad=5e-7)]
    story = told(tmp_path, bp=fires_late, student=fires_late)
    assert holds(story, "no detector ever fires") is False
    assert holds(story, "StudentNet") is False
    grows_first = [sight(n + 1, growth=200, grad=GRAD[n]) for n in range(12)]
    assert holds(told(tmp_path, dfa=grows_first), "fires before D1") is False
    assert holds(told(tmp_path, accuracy=(0.400, 0.402)), "still to come") is False
    recovers = [*PUBLISHED[:6], *QUIET[6:]]
    assert holds(told(tmp_path, dfa=recovers), "stays raised") is False
    silent = told(tmp_path, dfa=QUIET)
    assert holds(silent, "fires in every seed") is False
    for words in ("fires before D1", "still to come", "saves more than", "stays raised"):
        assert holds(silent, words) is None, words


def test_the_parts(tmp_path):
    bed = Bed(tmp_path)
    bed.plant(SMOKE.runs(["bp"], seeds=[1]), log=PUBLISHED)
    (case,) = bed.results().cases(SMOKE.runs(["bp"], seeds=[1]))
    assert [first_epoch(case, detector.is_raised) for detector in (D1, D2, D2_PAPERS)] == [4, 3, 2]
    assert earliest(case, (D1, D2)) == 3
    assert stays(case, D2) is True
    assert saved(case, 3) == 0.75


def test_events_stand_where_dfa_first_fires(tmp_path):
    story = told(tmp_path)
    (figure,) = [figure for figure in story.figures if figure.name == "epochs_resmlp"]
    assert figure.plots[0].events == ((3, "D2 at 1e-7"), (2, "D2 at 8e-7"))
    assert figure.plots[1].events == ((4, "D1"),)
    assert cells(story, "firing", "method")["vit_mini"] == "DFA"


def test_a_number_that_was_not_finite_is_not_drawn_and_fires_nothing(tmp_path):
    broken = [*QUIET[:2], sight(3, grad=None), *QUIET[3:]]
    story = told(tmp_path, bp=broken)
    (figure,) = [figure for figure in story.figures if figure.name == "epochs_resmlp"]
    (drawn,) = [series for series in figure.plots[0].series if series.label == "BP"]
    assert drawn.y[2] is None
    assert drawn.y[3] == pytest.approx(4e-4)
    assert holds(story, "no detector ever fires") is True


@pytest.mark.slow
def test_smoke(smoke):
    story = smoke("temporal-replay")
    assert holds(story, "no detector ever fires") is True
    assert holds(story, "fires in every seed") is True

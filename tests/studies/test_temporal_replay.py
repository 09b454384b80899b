"""The logs replayed: first epochs, what stopping costs and saves, all from planted logs."""

from __future__ import annotations

import pytest
from planted import Bed, cells, holds, reading

from walkback_papers.first_to_last import way_findings
from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.temporal_replay import D1, D2, D2_PAPERS, SEEN_FIRST, STUDY, earliest, epochs_saved, stays
from walkback_papers.tables import first_alarm

QUIET = [reading(epoch) for epoch in range(1, 13)]
GRAD = [5e-6, 5e-7, 5e-8, *[1e-9] * 9]
"""Under the papers' floor at epoch 2, under ours at 3."""
GROWTH = [10, 20, 30, *[200] * 9]
"""D1 at epoch 4."""
PUBLISHED = [reading(n + 1, growth=GROWTH[n], grad=GRAD[n], accuracy=0.31 if n else 0.2) for n in range(12)]


FIRST = {"growth": 1.0, "grad": 8e-3, "branch": [1.0, 1.0, 2.0, 2.0]}
"""Before the first step."""
INFLATED = {"look": {"growth": 10.0, "grad": 1e-6, "branch": 2e7}, "weights": (200.0, 50.0)}
"""‖h_L‖ 10 to 1e5, ‖g_L‖ 8e-3 to 1e-6."""
HEALTHY = {"look": {"growth": 1.3, "grad": 4e-4, "branch": 20.0}, "weights": (2.5, 2.0)}


def told(tmp_path, dfa=PUBLISHED, bp=QUIET, student=QUIET, accuracy=(0.300, 0.302)):
    bed = Bed(tmp_path)
    others = {"resmlp": {"bp": bp, METHODS["DFA"]: dfa}, "student": {METHODS["DFA"]: student}}
    for config in STUDY.runs(SMOKE):
        place = "student" if config.arch.name == "student_net" else config.arch.name
        log = others.get(place, {}).get(str(config.method), QUIET)
        seed = SMOKE.seeds.index(config.seed)
        ends = {"bp": HEALTHY, METHODS["DFA"]: INFLATED}
        seen = (
            {"close": {0: FIRST}, **ends[str(config.method)]}
            if place == "resmlp" and str(config.method) in ends
            else {}
        )
        bed.plant([config], log=log, accuracy=accuracy[seed] if log is dfa and place == "resmlp" else 0.6, **seen)
    return STUDY.report_results(bed.results(), SMOKE)


def test_published_pattern(tmp_path):
    study_report = told(tmp_path)
    for words in ("no detector ever fires", "fires in every seed", "fires before D1", "still to come", "stays raised"):
        assert holds(study_report, words) is True, words
    assert holds(study_report, "StudentNet") is True
    rows = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in study_report.tables[0].rows}
    assert rows["resmlp", "DFA"] == ["4", "3", "2", "to the end"]
    assert rows["resmlp", "BP"] == ["never", "never", "never", "–"]
    stops = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in study_report.tables[1].rows}
    assert stops["resmlp", "DFA"] == ["2", "0.310 ± 0.000", "0.301 ± 0.001", "-0.9 [-2.2, +0.4]", "83% ± 0%"]
    assert stops["resmlp", "BP"] == ["never", "–", "0.600 ± 0.000", "–", "–"]


def test_share_saved_is_counted_from_the_epochs_left(tmp_path):
    assert holds(told(tmp_path), "saves more than") is False  # 10 of 12
    early = [reading(1, grad=1e-9), *PUBLISHED[1:]]
    assert holds(told(tmp_path, dfa=early), "saves more than") is True  # 11 of 12


def test_findings_flip_with_the_logs(tmp_path):
    fires_late = [*QUIET[:11], reading(12, grad=5e-7)]
    study_report = told(tmp_path, bp=fires_late, student=fires_late)
    assert holds(study_report, "no detector ever fires") is False
    assert holds(study_report, "StudentNet") is False
    grows_first = [reading(n + 1, growth=200, grad=GRAD[n]) for n in range(12)]
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
    assert [first_alarm(case, detector.is_raised) for detector in (D1, D2, D2_PAPERS)] == [4, 3, 2]
    assert earliest(case, (D1, D2)) == 3
    assert stays(case, D2) is True
    assert epochs_saved(case, 3) == 0.75


def test_events_stand_where_dfa_first_fires(tmp_path):
    study_report = told(tmp_path)
    (figure,) = [figure for figure in study_report.figures if figure.name == "epochs_resmlp"]
    assert figure.plots[0].events == ((3, "D2 at 1e-7"), (2, "D2 at 8e-7"))
    assert figure.plots[1].events == ((4, "D1"),)
    assert cells(study_report, "firing", "method")["vit_mini"] == "DFA"


def test_a_number_that_was_not_finite_is_not_drawn_and_fires_nothing(tmp_path):
    broken = [*QUIET[:2], reading(3, grad=None), *QUIET[3:]]
    study_report = told(tmp_path, bp=broken)
    (figure,) = [figure for figure in study_report.figures if figure.name == "epochs_resmlp"]
    (drawn,) = [series for series in figure.plots[0].series if series.label == "BP"]
    assert drawn.y[2] is None
    assert drawn.y[3] == pytest.approx(4e-4)
    assert holds(study_report, "no detector ever fires") is True


def test_from_the_first_weights_to_the_last(tmp_path):
    study_report = told(tmp_path)
    rows = {row[0].text: [cell.value for cell in row[1:]] for row in study_report.tables[2].rows}
    assert list(rows) == [*SEEN_FIRST]
    assert rows["DFA"][:4] == pytest.approx([10, 1e5, 8e-3, 1e-6], rel=0.01)
    assert rows["DFA"][4] == pytest.approx(2e7 / 2**0.5)  # Geometric mean over blocks that began at 1 and at 2.
    assert rows["DFA"][5:7] == pytest.approx([200, 200])
    # Of 1024 uniform weights in ±1/√32 and 1024 normal ones of 0.01: norms 3.27 and 0.32.
    assert rows["DFA"][7] == pytest.approx(50**2 * 3.27 * 0.32, rel=0.1)
    assert rows["BP"][4:7] == pytest.approx([20 / 2**0.5, 2.5, 2.5])
    assert holds(study_report, "moves the blocks' weights") is True
    assert holds(study_report, "falls by the factor") is True  # 1e4 and 8e3.


@pytest.mark.parametrize(
    ("changes", "words", "expected"),
    [
        ({"weights": (2.0, 2.0)}, "moves the blocks' weights", False),
        ({"look": INFLATED["look"] | {"branch": 10.0}}, "moves the blocks' weights", False),
        ({"weights": None}, "moves the blocks' weights", None),
        ({"look": INFLATED["look"] | {"branch": None}}, "moves the blocks' weights", None),
        ({"look": INFLATED["look"] | {"grad": 1e-8}}, "falls by the factor", False),
        ({"look": INFLATED["look"] | {"growth": 1.0}}, "falls by the factor", False),
    ],
)
def test_the_way_turns_with_its_numbers(tmp_path, changes, words, expected):
    bed = Bed(tmp_path)
    runs = {name: SMOKE.runs([METHODS[name]]) for name in SEEN_FIRST}
    bed.plant(runs["BP"], close={0: FIRST}, **HEALTHY)
    bed.plant(runs["DFA"], close={0: FIRST}, **INFLATED | changes)
    bp, dfa = (bed.results().cases(found) for found in runs.values())
    (answer,) = [found.holds for found in way_findings(dfa, bp) if words in found.claim]
    assert answer is expected


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("temporal-replay")
    assert holds(study_report, "moves the blocks' weights") is True
    assert holds(study_report, "no detector ever fires") is True
    assert holds(study_report, "fires in every seed") is True

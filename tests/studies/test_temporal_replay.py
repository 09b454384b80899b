"""Replayed logs: first epochs of detectors, and what stopping there costs and saves, with planted logs."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, cells, holds, log_row

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.temporal_replay import (
    D1,
    D2,
    D2_PAPERS,
    MEASURED_AT_START,
    STUDY,
    epochs_saved,
    first_alarm_of_any,
    stays_on,
)
from walkback_papers.tables import first_alarm
from walkback_papers.weight_change import weight_change_findings

QUIET = [log_row(epoch) for epoch in range(1, 13)]
GRAD = [5e-6, 5e-7, 5e-8, *[1e-9] * 9]
"""Under the papers' floor from epoch 2, under ours from epoch 3."""
GROWTH = [10, 20, 30, *[200] * 9]
"""D1 fires from epoch 4."""
PUBLISHED = [log_row(n + 1, growth=GROWTH[n], grad=GRAD[n], accuracy=0.31 if n else 0.2) for n in range(12)]


FIRST = {"growth": 1.0, "grad": 8e-3, "branch": [1.0, 1.0, 2.0, 2.0]}
"""Measurements before the first step."""
INFLATED = {"measured": {"growth": 10.0, "grad": 1e-6, "branch": 2e7}, "weights": (200.0, 50.0)}
"""‖h_L‖ grows from 10 to 1e5, ‖g_L‖ falls from 8e-3 to 1e-6."""
HEALTHY = {"measured": {"growth": 1.3, "grad": 4e-4, "branch": 20.0}, "weights": (2.5, 2.0)}


def make_report(tmp_path, dfa=PUBLISHED, bp=QUIET, student=QUIET, accuracy=(0.300, 0.302)):
    planted_runs = PlantedRuns(tmp_path)
    others = {"resmlp": {"bp": bp, METHODS["DFA"]: dfa}, "student": {METHODS["DFA"]: student}}
    for config in STUDY.runs(SMOKE):
        place = "student" if config.arch.name == "student_net" else config.arch.name
        log = others.get(place, {}).get(str(config.method), QUIET)
        seed = SMOKE.seeds.index(config.seed)
        ends = {"bp": HEALTHY, METHODS["DFA"]: INFLATED}
        seen = (
            {"measured_after": {0: FIRST}, **ends[str(config.method)]}
            if place == "resmlp" and str(config.method) in ends
            else {}
        )
        planted_runs.plant(
            [config], log=log, accuracy=accuracy[seed] if log is dfa and place == "resmlp" else 0.6, **seen
        )
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_published_pattern_supports_the_claims(tmp_path):
    study_report = make_report(tmp_path)
    for finding_id in ("bp-never-fires", "dfa-always-fires", "d2-before-d1", "stopping-loses-little", "alarms-last"):
        assert holds(study_report, finding_id) is True, finding_id
    assert holds(study_report, "student-d2-never-fires") is True
    rows = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in study_report.tables[0].rows}
    assert rows["resmlp", "DFA"] == ["4", "3", "2", "to the end"]
    assert rows["resmlp", "BP"] == ["never", "never", "never", "–"]
    stops = {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in study_report.tables[1].rows}
    assert stops["resmlp", "DFA"] == ["2", "0.310 ± 0.000", "0.301 ± 0.001", "-0.9 [-2.2, +0.4]", "83% ± 0%"]
    assert stops["resmlp", "BP"] == ["never", "–", "0.600 ± 0.000", "–", "–"]


def test_share_saved_is_the_share_of_epochs_left(tmp_path):
    assert holds(make_report(tmp_path), "stopping-saves-most") is False  # 10 of 12.
    early = [log_row(1, grad=1e-9), *PUBLISHED[1:]]
    assert holds(make_report(tmp_path, dfa=early), "stopping-saves-most") is True  # 11 of 12.


def test_findings_depend_on_the_logs(tmp_path):
    fires_late = [*QUIET[:11], log_row(12, grad=5e-7)]
    study_report = make_report(tmp_path, bp=fires_late, student=fires_late)
    assert holds(study_report, "bp-never-fires") is False
    assert holds(study_report, "student-d2-never-fires") is False
    grows_first = [log_row(n + 1, growth=200, grad=GRAD[n]) for n in range(12)]
    assert holds(make_report(tmp_path, dfa=grows_first), "d2-before-d1") is False
    assert holds(make_report(tmp_path, accuracy=(0.400, 0.402)), "stopping-loses-little") is False
    recovers = [*PUBLISHED[:6], *QUIET[6:]]
    assert holds(make_report(tmp_path, dfa=recovers), "alarms-last") is False
    silent = make_report(tmp_path, dfa=QUIET)
    assert holds(silent, "dfa-always-fires") is False
    for finding_id in ("d2-before-d1", "stopping-loses-little", "stopping-saves-most", "alarms-last"):
        assert holds(silent, finding_id) is None, finding_id


def test_first_alarms_and_epochs_saved(tmp_path):
    planted_runs = PlantedRuns(tmp_path)
    planted_runs.plant(SMOKE.runs(["bp"], seeds=[1]), log=PUBLISHED)
    (case,) = planted_runs.results().cases(SMOKE.runs(["bp"], seeds=[1]))
    assert [first_alarm(case, detector.is_raised) for detector in (D1, D2, D2_PAPERS)] == [4, 3, 2]
    assert first_alarm_of_any(case, (D1, D2)) == 3
    assert stays_on(case, D2) is True
    assert epochs_saved(case, 3) == 0.75


def test_the_figure_marks_the_first_alarms_under_dfa(tmp_path):
    study_report = make_report(tmp_path)
    (figure,) = [figure for figure in study_report.figures if figure.name == "epochs_resmlp"]
    assert figure.plots[0].events == ((3, "D2 at 1e-7"), (2, "D2 at 8e-7"))
    assert figure.plots[1].events == ((4, "D1"),)
    assert cells(study_report, "firing", "method")["vit_mini"] == "DFA"


def test_a_missing_number_is_not_drawn_and_gives_no_alarm(tmp_path):
    broken = [*QUIET[:2], log_row(3, grad=None), *QUIET[3:]]
    study_report = make_report(tmp_path, bp=broken)
    (figure,) = [figure for figure in study_report.figures if figure.name == "epochs_resmlp"]
    (drawn,) = [series for series in figure.plots[0].series if series.label == "BP"]
    assert drawn.y[2] is None
    assert drawn.y[3] == pytest.approx(4e-4)
    assert holds(study_report, "bp-never-fires") is True


def test_weight_changes_from_first_to_last(tmp_path):
    study_report = make_report(tmp_path)
    rows = {row[0].text: [cell.value for cell in row[1:]] for row in study_report.tables[2].rows}
    assert list(rows) == [*MEASURED_AT_START]
    assert rows["DFA"][:4] == pytest.approx([10, 1e5, 8e-3, 1e-6], rel=0.01)
    assert rows["DFA"][4] == pytest.approx(2e7 / 2**0.5)  # Geometric mean over blocks that start at 1 and at 2.
    assert rows["DFA"][5:7] == pytest.approx([200, 200])
    # 1024 uniform weights in ±1/√32 and 1024 normal ones of std 0.01 have norms of 3.27 and 0.32.
    assert rows["DFA"][7] == pytest.approx(50**2 * 3.27 * 0.32, rel=0.1)
    assert rows["BP"][4:7] == pytest.approx([20 / 2**0.5, 2.5, 2.5])
    assert holds(study_report, "dfa-moves-weights-more") is True
    assert holds(study_report, "gradient-falls-as-stream-grows") is True  # 1e4 and 8e3.


@pytest.mark.parametrize(
    ("changes", "finding_id", "expected"),
    [
        ({"weights": (2.0, 2.0)}, "dfa-moves-weights-more", False),
        ({"measured": INFLATED["measured"] | {"branch": 10.0}}, "dfa-moves-weights-more", False),
        ({"weights": None}, "dfa-moves-weights-more", None),
        ({"measured": INFLATED["measured"] | {"branch": None}}, "dfa-moves-weights-more", None),
        ({"measured": INFLATED["measured"] | {"grad": 1e-8}}, "gradient-falls-as-stream-grows", False),
        ({"measured": INFLATED["measured"] | {"growth": 1.0}}, "gradient-falls-as-stream-grows", False),
    ],
)
def test_findings_on_weight_changes_depend_on_the_planted_numbers(tmp_path, changes, finding_id, expected):
    planted_runs = PlantedRuns(tmp_path)
    runs = {name: SMOKE.runs([METHODS[name]]) for name in MEASURED_AT_START}
    planted_runs.plant(runs["BP"], measured_after={0: FIRST}, **HEALTHY)
    planted_runs.plant(runs["DFA"], measured_after={0: FIRST}, **INFLATED | changes)
    bp, dfa = (planted_runs.results().cases(found) for found in runs.values())
    (answer,) = [found.holds for found in weight_change_findings(dfa, bp) if found.id == finding_id]
    assert answer is expected


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("temporal-replay")
    assert holds(study_report, "dfa-moves-weights-more") is True
    assert holds(study_report, "bp-never-fires") is True
    assert holds(study_report, "dfa-always-fires") is True

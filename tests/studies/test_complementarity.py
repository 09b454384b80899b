"""Complementarity: counts over the judged runs of all studies."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, holds

from walkback.training.resolved_run import resolve
from walkback_papers.run_studies import all_studies
from walkback_papers.scale import PAPER, SMOKE
from walkback_papers.studies.complementarity import STUDY

HEALTHY, EXPLODED = {"growth": 1.3, "grad": 1e-4, "groups": 2}, {"growth": 200.0, "grad": 1e-9, "groups": 2}


@pytest.mark.parametrize("scale", [SMOKE, PAPER], ids=lambda scale: scale.name)
def test_it_has_every_judged_run_of_every_study_once(scale):
    names = [resolve(config).name for config in STUDY.runs(scale)]
    assert len(names) == len(set(names))
    judged = [resolve(config) for study in all_studies().values() for config in study.judged(scale)]
    assert set(names) == {resolved.name for resolved in judged if resolved.shared_options.credit == "own"}


def make_report(tmp_path, monkeypatch, **dfa):
    """The report over backprop, which passes, and DFA as given."""
    configs = SMOKE.runs(["bp", "dfa"])
    monkeypatch.setattr(type(STUDY), "runs", lambda self, scale: configs)
    planted = PlantedRuns(tmp_path)
    for config in configs:
        given = {"accuracy": 0.9, "measured": HEALTHY} if str(config.method) == "bp" else dfa
        planted.plant([config], shell=0.5, **given)
    return STUDY.report_results(planted.results(), SMOKE)


@pytest.mark.parametrize(
    ("accuracy", "measured", "depth_needed", "mode_1_needed", "counts"),
    [
        (0.4, EXPLODED, False, False, ["2", "2", "0", "0", "0"]),
        (0.4, HEALTHY, True, False, ["2", "0", "2", "0", "0"]),
        (0.9, EXPLODED, False, True, ["0", "0", "0", "2", "0"]),
        (0.9, HEALTHY, False, False, ["0", "0", "0", "0", "2"]),
    ],
)
def test_what_each_check_finds_alone(tmp_path, monkeypatch, accuracy, measured, depth_needed, mode_1_needed, counts):
    report = make_report(tmp_path, monkeypatch, accuracy=accuracy, measured=measured)
    assert holds(report, "depth-needed") is depth_needed
    assert holds(report, "mode-1-needed") is mode_1_needed
    (table,) = report.tables
    assert [[cell.text for cell in row[2:]] for row in table.rows if row[0].text == "dfa"] == [counts]
    assert [row[1].text for row in table.rows] == ["2", "2", "4"]

"""The terminal norm: slopes over epochs and checks with and without it, with planted numbers."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, cells, holds, log_row, plant_all

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.cross_architecture import runs_at
from walkback_papers.studies.terminal_norm import FLAT, STEEP, STUDY, slope


def grown_log(power, last=1e6):
    """A log in which ‖h_L‖ grows from 1 to `last` and ‖g_L‖ is proportional to this power of it."""
    sizes = [last ** (step / 5) for step in range(6)]
    return [log_row(1 + i, grad=1e-2 * size**power, hidden=[1.0] * 4 + [size]) for i, size in enumerate(sizes)]


HEALTHY = {"accuracy": 0.6, "shell": 0.4, "measured": {"cosines": 1.0}, "log": grown_log(0.0, last=5.0)}
COLLAPSED = {"accuracy": 0.3, "shell": 0.35, "measured": {"growth": 200.0, "grad": 1e-9}, "log": grown_log(-1.0)}
GROWN = {"accuracy": 0.3, "shell": 0.35, "measured": {"growth": 200.0, "grad": 1e-3}, "log": grown_log(0.1)}


def make_report(tmp_path, with_norm, without):
    planted_runs = PlantedRuns(tmp_path)
    plant_all(planted_runs, runs_at("resmlp", SMOKE), {"BP": HEALTHY, "other": with_norm})
    plant_all(planted_runs, runs_at("no_norm", SMOKE), {"BP": HEALTHY, "other": without})
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_slope_is_the_planted_power(tmp_path):
    planted_runs = PlantedRuns(tmp_path)
    for power in (-1.0, -0.4, 0.5):
        configs = SMOKE.runs([METHODS["DFA"]], seeds=[1])
        planted_runs.plant(configs, log=grown_log(power))
        assert slope(planted_runs.results().case(configs[0])) == pytest.approx(power)
        planted_runs.plant(configs, log=grown_log(power, last=9.0))  # Too little growth for a slope.
        assert slope(planted_runs.results().case(configs[0])) is None


def test_published_pattern_supports_the_claims(tmp_path):
    study_report = make_report(tmp_path, COLLAPSED, GROWN)
    assert [each.id for each in study_report.findings if each.holds is not True] == []
    modes = cells(study_report, "flags", "modes")
    assert modes["DFA, with"] == "1a, 1b"
    assert modes["DFA, without"] == "1a"
    assert modes["BP, with"] == modes["BP, without"] == "none"
    assert cells(study_report, "norm", "slope")["FA, with"] == "-1.00 ± 0.00"
    assert cells(study_report, "norm", "slope")["BP, with"] == "NOT MEASURED"


def test_a_collapse_without_the_norm_refutes_the_claims(tmp_path):
    study_report = make_report(tmp_path, COLLAPSED, COLLAPSED)
    assert holds(study_report, "no-collapse-without-norm") is False
    assert holds(study_report, "mode-1a-without-1b") is False
    assert holds(study_report, "gradient-steady-without-norm") is False
    assert holds(study_report, "gradient-falls-with-norm") is True


def test_claims_are_open_where_nothing_happens_with_the_norm(tmp_path):
    study_report = make_report(tmp_path, HEALTHY, HEALTHY)
    assert {each.holds for each in study_report.findings} == {None}


def test_growth_only_with_the_norm_refutes_the_first_claim(tmp_path):
    study_report = make_report(tmp_path, COLLAPSED, HEALTHY)
    assert holds(study_report, "grows-without-norm") is False
    assert holds(study_report, "no-collapse-without-norm") is True
    assert holds(study_report, "mode-1a-without-1b") is None


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("terminal-norm")
    slopes = cells(study_report, "norm", "slope")
    assert float(slopes["DFA, with"].split()[0]) < STEEP
    assert float(slopes["DFA, without"].split()[0]) > FLAT

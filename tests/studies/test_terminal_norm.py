"""With and without the terminal norm: slopes over epochs, and what the flags then say."""

from __future__ import annotations

import pytest
from planted import Bed, cells, holds, plant_all, reading

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.cross_architecture import runs_at
from walkback_papers.studies.terminal_norm import FLAT, STEEP, STUDY, slope


def path(power, last=1e6):
    """Epochs over which the stream grows to `last` while the gradient goes as its power."""
    sizes = [last ** (step / 5) for step in range(6)]
    return [reading(1 + i, grad=1e-2 * size**power, hidden=[1.0] * 4 + [size]) for i, size in enumerate(sizes)]


CALM = {"accuracy": 0.6, "shell": 0.4, "look": {"cosines": 1.0}, "log": path(0.0, last=5.0)}
LOST = {"accuracy": 0.3, "shell": 0.35, "look": {"growth": 200.0, "grad": 1e-9}, "log": path(-1.0)}
GROWN = {"accuracy": 0.3, "shell": 0.35, "look": {"growth": 200.0, "grad": 1e-3}, "log": path(0.1)}


def told(tmp_path, with_norm, without):
    bed = Bed(tmp_path)
    plant_all(bed, runs_at("resmlp", SMOKE), {"BP": CALM, "other": with_norm})
    plant_all(bed, runs_at("no_norm", SMOKE), {"BP": CALM, "other": without})
    return STUDY.report_results(bed.results(), SMOKE)


def test_the_slope_is_that_of_the_planted_law(tmp_path):
    bed = Bed(tmp_path)
    for power in (-1.0, -0.4, 0.5):
        configs = SMOKE.runs([METHODS["DFA"]], seeds=[1])
        bed.plant(configs, log=path(power))
        assert slope(bed.results().case(configs[0])) == pytest.approx(power)
        bed.plant(configs, log=path(power, last=9.0))  # Too little growth to say.
        assert slope(bed.results().case(configs[0])) is None


def test_published_pattern(tmp_path):
    study_report = told(tmp_path, LOST, GROWN)
    assert [each.claim for each in study_report.findings if each.holds is not True] == []
    modes = cells(study_report, "flags", "modes")
    assert modes["DFA, with"] == "1a, 1b"
    assert modes["DFA, without"] == "1a"
    assert modes["BP, with"] == modes["BP, without"] == "none"
    assert cells(study_report, "norm", "slope")["FA, with"] == "-1.00 ± 0.00"
    assert cells(study_report, "norm", "slope")["BP, with"] == "NOT MEASURED"


def test_a_collapse_without_the_norm_refutes_it(tmp_path):
    study_report = told(tmp_path, LOST, LOST)
    assert holds(study_report, "A reference that collapses") is False
    assert holds(study_report, "Mode 1a comes without") is False
    assert holds(study_report, "Without the norm it does not fall") is False
    assert holds(study_report, "With the norm") is True


def test_what_never_happens_with_the_norm_is_not_tested(tmp_path):
    study_report = told(tmp_path, CALM, CALM)
    assert {each.holds for each in study_report.findings} == {None}


def test_growth_that_needs_the_norm_refutes_the_first_claim(tmp_path):
    study_report = told(tmp_path, LOST, CALM)
    assert holds(study_report, "Scale that grows") is False
    assert holds(study_report, "A reference that collapses") is True
    assert holds(study_report, "Mode 1a comes without") is None


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("terminal-norm")
    slopes = cells(study_report, "norm", "slope")
    assert float(slopes["DFA, with"].split()[0]) < STEEP
    assert float(slopes["DFA, without"].split()[0]) > FLAT

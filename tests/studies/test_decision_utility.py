"""Decision utility: strategies on the published audits, and on audits with one case changed."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, cells, holds, plant_all

from walkback.judge.threshold_sweep import STRATEGIES
from walkback.training.resolved_run import resolve
from walkback_papers.scale import SMOKE
from walkback_papers.studies.decision_utility import FOUR_METHODS, STUDY, THREE
from walkback_papers.tables import method_label


def case(accuracy, growth, grad, drift, shell=0.349):
    return {"accuracy": accuracy, "shell": shell, "measured": {"growth": growth, "grad": grad, "group_cos": drift}}


BP = case(0.615, 1.3, 4e-4, 0.099)
RESMLP = {
    "BP": BP,
    "EP": case(0.316, 11.6, 1.3e-4, 0.02),
    "DFA": case(0.306, 237.0, 4.2e-9, 0.16),
    "State Bridge": case(0.205, 12000.0, 1e-9, 0.53),
    "Credit Bridge": case(0.289, 96.0, 1e-9, 0.37),
    "other": case(0.41, 8.0, 1e-6, 0.1),
}
WIDE = {"BP": BP, "FA": case(0.345, 10.0, 1e-6, 0.1), "DFA": RESMLP["DFA"]}
VIT = {"BP": BP, "other": case(0.2, 1e4, 1e-9, 0.1)}


GIVEN = {"resmlp": RESMLP, "wide": WIDE, "vit": VIT}


def runs(place, method=None):
    """The study's runs at a place, of one method if it is given."""
    found = [c for c in STUDY.runs(SMOKE) if str(c.arch) == SMOKE.places[place].arch]
    return [c for c in found if method in (None, method_label(resolve(c).method))]


@pytest.fixture(scope="module")
def planted_runs(tmp_path_factory):
    """Runs that give the published cases."""
    made = PlantedRuns(tmp_path_factory.mktemp("cases"))
    for place, given in GIVEN.items():
        plant_all(made, runs(place), given)
    return made


@pytest.fixture(scope="module")
def published(planted_runs):
    return STUDY.report_results(planted_runs.results(), SMOKE)


def changed(planted_runs, place, method, given):
    """The report with one case changed; the runs are restored afterwards."""
    planted_runs.plant(runs(place, method), **given)
    study_report = STUDY.report_results(planted_runs.results(), SMOKE)
    plant_all(planted_runs, runs(place), GIVEN[place])
    return study_report


def test_published_figures_support_all_claims_but_that_mode_1_is_needed(published):
    study_report = published
    assert [each.id for each in study_report.findings if each.holds is not True] == ["both-needed"]
    assert cells(study_report, "three", "S2")["FA wide"] == "trustworthy"
    assert cells(study_report, "three", "S3")["FA wide"] == "walked back"
    assert cells(study_report, "four", "+(c)")["DFA"] == "trustworthy"
    assert cells(study_report, "four", "full")["EP"] == "walked back"


def test_grids_and_tables_have_the_same_verdicts(published):
    drawn = {}
    for grid in published.figures[0].plots:
        for row, words in zip(grid.rows, grid.cells, strict=True):
            strategy, _, meaning = row.partition(": ")
            assert meaning == STRATEGIES[strategy].summary
            for name, word in zip(grid.columns, words, strict=True):
                drawn.setdefault(strategy, {})[name] = word.replace("_", " ")
    for strategy in STRATEGIES:
        assert drawn[strategy] == cells(published, "three" if strategy in THREE else "four", strategy)
    assert (*THREE, *FOUR_METHODS) == tuple(STRATEGIES)


@pytest.mark.parametrize(
    ("place", "method", "given", "finding_id"),
    [
        ("resmlp", "DFA", case(0.306, 20.0, 4.2e-9, 0.16), "mode-1-finds-dfa"),
        ("resmlp", "DFA", case(0.40, 20.0, 4.2e-9, 0.16), "s3-finds-all"),
        ("resmlp", "BP", case(0.615, 60.0, 4e-4, 0.099), "bp-passes"),
        ("resmlp", "Credit Bridge", case(0.289, 40.0, 1e-9, 0.37), "a-finds-degenerate"),
        ("resmlp", "Credit Bridge", case(0.289, 96.0, 1e-6, 0.37), "b-finds-degenerate"),
        ("resmlp", "Credit Bridge", case(0.389, 96.0, 1e-9, 0.37), "d-finds-degenerate"),
        ("resmlp", "DFA", case(0.306, 237.0, 4.2e-9, 0.46), "c-misses-dfa"),
        ("wide", "FA", case(0.345, 100.0, 1e-9, 0.1), "wide-fa-needs-depth-utility"),
    ],
)
def test_one_changed_case_refutes_a_claim(planted_runs, place, method, given, finding_id):
    assert holds(changed(planted_runs, place, method, given), finding_id) is False


def test_a_degenerate_network_with_useful_depth_shows_that_mode_1_is_needed(planted_runs):
    useful = case(0.40, 237.0, 4.2e-9, 0.16)
    assert holds(changed(planted_runs, "resmlp", "DFA", useful), "both-needed") is True


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("decision-utility")
    assert holds(study_report, "accuracy-finds-nothing") is True
    assert set(cells(study_report, "three", "S0").values()) == {"trustworthy"}

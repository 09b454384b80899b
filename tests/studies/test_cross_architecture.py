"""Mode 1 across networks: findings depend on the checks of each network and rule."""

from __future__ import annotations

import pytest
from planted import PlantedRuns, cells, holds, plant_all

from walkback.training.resolved_run import resolve
from walkback_papers.scale import SMOKE
from walkback_papers.studies.cross_architecture import NETWORKS, STUDY, runs_at
from walkback_papers.tables import method_label

HEALTHY = {"accuracy": 0.6, "shell": 0.4, "measured": {"cosines": 1.0}}
GROWN = {"accuracy": [0.30, 0.31], "shell": 0.35, "bp_shell": 0.57, "measured": {"growth": 200.0, "grad": 1e-5}}
COLLAPSED = GROWN | {"measured": {"growth": 200.0, "grad": 1e-9}}
PUBLISHED = {
    "resmlp": {"BP": HEALTHY, "FA": GROWN, "DFA": COLLAPSED},
    "no_norm": {"BP": HEALTHY, "FA": GROWN, "DFA": GROWN},
    "vit": {"BP": HEALTHY, "FA": COLLAPSED, "DFA": COLLAPSED},
    "student": {"BP": HEALTHY | {"accuracy": 0.796, "shell": 0.908}, "other": GROWN | {"shell": 0.908}},
    "cnn": {"BP": HEALTHY, "FA": GROWN, "DFA": GROWN},
}


@pytest.fixture(scope="module")
def planted_runs(tmp_path_factory):
    """Runs that give the published table."""
    made = PlantedRuns(tmp_path_factory.mktemp("networks"))
    for place, given in PUBLISHED.items():
        plant_all(made, runs_at(place, SMOKE), given)
    return made


def make_report(planted_runs, place=None, method="", given=None, seeds=SMOKE.seeds):
    """The report with one method on one network changed, in some seeds; the runs are restored afterwards."""
    if place is None:
        return STUDY.report_results(planted_runs.results(), SMOKE)
    own = [c for c in runs_at(place, SMOKE) if method_label(resolve(c).method) == method and c.seed in seeds]
    plant_all(planted_runs, own, {method: given})
    study_report = STUDY.report_results(planted_runs.results(), SMOKE)
    plant_all(planted_runs, runs_at(place, SMOKE), PUBLISHED[place])
    return study_report


def test_the_published_table_supports_every_claim(planted_runs):
    study_report = make_report(planted_runs)
    assert [each.id for each in study_report.findings if each.holds is not True] == []
    assert cells(study_report, "mode-1", "reference valid") == {
        "ResMLP": "yes / yes / no",
        "ResMLP, no norm": "yes / yes / yes",
        "ViT-Mini": "yes / no / no",
        "StudentNet": "yes / yes / yes",
        "CNN, BatchNorm": "yes / yes / yes",
    }
    assert set(cells(study_report, "mode-1", "scale stable").values()) == {"yes / no / no"}
    assert cells(study_report, "flags", "three")["ResMLP: DFA"] == "walked back (D1, D2, D3)"
    assert cells(study_report, "flags", "depth useful")["StudentNet: DFA"] == "NOT INFORMATIVE"


@pytest.mark.parametrize(
    ("place", "method", "given", "finding_id"),
    [
        ("no_norm", "DFA", COLLAPSED, "no-collapse-without-norm"),
        ("student", "FA", HEALTHY, "fa-dfa-grow"),
        ("resmlp", "DFA", GROWN, "dfa-collapses-with-norm"),
        ("resmlp", "FA", COLLAPSED, "fa-mode-depends-on-network"),
        ("cnn", "DFA", COLLAPSED, "cnn-grows-without-collapse"),
        ("cnn", "BP", GROWN, "bp-passes"),
        ("vit", "FA", COLLAPSED | {"accuracy": 0.61}, "vit-worse-than-bp-baseline"),
        ("student", "BP", HEALTHY | {"accuracy": 0.95, "shell": 0.908}, "student-depth-not-informative"),
    ],
)
def test_one_planted_exception_refutes_a_claim_and_is_named(planted_runs, place, method, given, finding_id):
    study_report = make_report(planted_runs, place, method, given)
    assert holds(study_report, finding_id) is False
    if finding_id not in ("fa-mode-depends-on-network", "cnn-grows-without-collapse", "student-depth-not-informative"):
        assert method in study_report.finding(finding_id).details.partition("against it")[2]


def test_seeds_that_differ_leave_a_claim_open(planted_runs):
    study_report = make_report(planted_runs, "resmlp", "DFA", GROWN, seeds=SMOKE.seeds[:1])
    assert holds(study_report, "dfa-collapses-with-norm") is None
    assert cells(study_report, "mode-1", "reference valid")["ResMLP"] == "yes / yes / no in 1 of 2"


def test_has_terminal_norm_matches_the_networks_parameters():
    for place, network in NETWORKS.items():
        resolved = resolve(runs_at(place, SMOKE)[0])
        assert ("head.norm.weight" in resolved.params()) is network.has_terminal_norm


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("cross-architecture")
    assert holds(study_report, "bp-passes") is True
    assert holds(study_report, "no-collapse-without-norm") is True

"""Mode 1 across networks: the findings follow the flags of each network and rule."""

from __future__ import annotations

import pytest
from planted import Bed, cells, finding, holds, plant_all

from walkback.training.resolved_run import resolve
from walkback_papers.scale import SMOKE
from walkback_papers.studies.cross_architecture import NETWORKS, STUDY, runs_at
from walkback_papers.tables import method_label

CALM = {"accuracy": 0.6, "shell": 0.4, "look": {"cosines": 1.0}}
GROWN = {"accuracy": [0.30, 0.31], "shell": 0.35, "bp_shell": 0.57, "look": {"growth": 200.0, "grad": 1e-5}}
LOST = GROWN | {"look": {"growth": 200.0, "grad": 1e-9}}
PUBLISHED = {
    "resmlp": {"BP": CALM, "FA": GROWN, "DFA": LOST},
    "no_norm": {"BP": CALM, "FA": GROWN, "DFA": GROWN},
    "vit": {"BP": CALM, "FA": LOST, "DFA": LOST},
    "student": {"BP": CALM | {"accuracy": 0.796, "shell": 0.908}, "other": GROWN | {"shell": 0.908}},
    "cnn": {"BP": CALM, "FA": GROWN, "DFA": GROWN},
}


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    """The published table, planted once."""
    made = Bed(tmp_path_factory.mktemp("networks"))
    for place, given in PUBLISHED.items():
        plant_all(made, runs_at(place, SMOKE), given)
    return made


def told(bed, place=None, method="", given=None, seeds=SMOKE.seeds):
    """What is said where one method on one network is changed, in some seeds; afterwards all is as it was."""
    if place is None:
        return STUDY.report_results(bed.results(), SMOKE)
    own = [c for c in runs_at(place, SMOKE) if method_label(resolve(c).method) == method and c.seed in seeds]
    plant_all(bed, own, {method: given})
    study_report = STUDY.report_results(bed.results(), SMOKE)
    plant_all(bed, runs_at(place, SMOKE), PUBLISHED[place])
    return study_report


def test_the_published_table_bears_out_every_claim(bed):
    study_report = told(bed)
    assert [each.claim for each in study_report.findings if each.holds is not True] == []
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
    ("place", "method", "given", "claim"),
    [
        ("no_norm", "DFA", LOST, "Without a terminal norm"),
        ("student", "FA", CALM, "Scale growth"),
        ("resmlp", "DFA", GROWN, "With a terminal norm"),
        ("resmlp", "FA", LOST, "Modes belong"),
        ("cnn", "DFA", LOST, "On the CNN"),
        ("cnn", "BP", GROWN, "Backprop raises neither"),
        ("vit", "FA", LOST | {"accuracy": 0.61}, "On the ViT"),
        ("student", "BP", CALM | {"accuracy": 0.95, "shell": 0.908}, "On StudentNet"),
    ],
)
def test_one_planted_exception_refutes_a_claim_by_name(bed, place, method, given, claim):
    study_report = told(bed, place, method, given)
    assert holds(study_report, claim) is False
    if claim not in ("Modes belong", "On the CNN", "On StudentNet"):
        assert method in finding(study_report, claim).said.partition("against it")[2]


def test_seeds_that_differ_leave_a_claim_open(bed):
    study_report = told(bed, "resmlp", "DFA", GROWN, seeds=SMOKE.seeds[:1])
    assert holds(study_report, "With a terminal norm") is None
    assert cells(study_report, "mode-1", "reference valid")["ResMLP"] == "yes / yes / no in 1 of 2"


def test_it_says_rightly_which_networks_have_a_terminal_norm():
    for place, where in NETWORKS.items():
        resolved = resolve(runs_at(place, SMOKE)[0])
        assert ("head.norm.weight" in resolved.params()) is where.normed


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("cross-architecture")
    assert holds(study_report, "Backprop raises neither") is True
    assert holds(study_report, "Without a terminal norm") is True

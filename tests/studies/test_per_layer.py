"""Layer by layer: which layer has the alignment, with planted cosines."""

from __future__ import annotations

import re

import pytest
from planted import PlantedRuns, cells, holds

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.per_layer import PER_LAYER_METHODS, STUDY

FLAT = [0.3, 0.3, 0.3, 0.3, 0.3]
PUBLISHED = {
    METHODS["FA"]: [0.01, 0.2, 0.4, 0.6, 1.0],
    METHODS["DFA"]: [0.4, 0.0, 0.01, -0.01, 0.0],
    METHODS["State Bridge"]: FLAT,
    METHODS["Credit Bridge"]: FLAT,
    "dfa:site=input": FLAT,
}


def make_report(tmp_path, changes=(), **measured):
    planted_runs = PlantedRuns(tmp_path)
    for method, cosines in {**PUBLISHED, **dict(changes)}.items():
        planted_runs.plant(SMOKE.runs([method]), measured={"cosines": cosines, **measured})
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_published_pattern_supports_the_claims(tmp_path):
    study_report = make_report(tmp_path)
    assert set(PUBLISHED) == set(PER_LAYER_METHODS)
    assert holds(study_report, "fa-rises-by-layer") is True
    assert holds(study_report, "fa-mean-includes-exact-layer") is True
    details = study_report.finding("fa-mean-includes-exact-layer").details
    assert [float(text) for text in re.findall(r"[+-]\d\.\d+", details)] == [0.55, 0.4]
    assert holds(study_report, "dfa-aligned-only-in-layer-0") is True
    assert holds(study_report, "dfa-in-one-layer") is True
    assert holds(study_report, "credit-bridge-in-one-layer") is False
    assert cells(study_report, "cosines", "l = 0")["DFA"] == "+0.40 ± 0.00"
    assert cells(study_report, "cosines", "l = 4")["FA"] == "+1.00 ± 0.00 exact"
    assert cells(study_report, "cosines", "κ")["DFA"] == "100% ± 0% at l = 0"


@pytest.mark.parametrize("cosines", [[0.4, 0.0, 0.2, 0.0, 0.0], [0.01, 0.0, 0.0, 0.0, 0.0]])
def test_deeper_alignment_or_none_in_layer_0_refutes_the_claim_about_dfa(tmp_path, cosines):
    assert holds(make_report(tmp_path, {METHODS["DFA"]: cosines}), "dfa-aligned-only-in-layer-0") is False


def test_a_falling_cosine_refutes_the_claim_about_fa(tmp_path):
    study_report = make_report(tmp_path, {METHODS["FA"]: [0.5, 0.4, 0.3, 0.2, 1.0]})
    assert holds(study_report, "fa-rises-by-layer") is False
    assert holds(study_report, "fa-mean-includes-exact-layer") is True


def test_a_noisy_reference_leaves_claims_open_and_is_not_drawn(tmp_path):
    study_report = make_report(tmp_path, replay_cos=[1, 1, 1, 0.2, 0.1])
    assert holds(study_report, "dfa-aligned-only-in-layer-0") is None
    assert holds(study_report, "fa-rises-by-layer") is None
    assert cells(study_report, "cosines", "l = 3")["DFA"] == "INVALID"
    assert cells(study_report, "cosines", "deep")["DFA"] == "INVALID"
    (drawn,) = [figure for figure in study_report.figures if figure.name == "cosines"]
    assert drawn.plots[1].series[0].y[3] is None


@pytest.mark.slow
def test_smoke(smoke):
    assert holds(smoke("per-layer"), "fa-mean-includes-exact-layer") is True

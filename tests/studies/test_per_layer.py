"""Layer by layer: which layer carries the alignment follows from the planted cosines."""

from __future__ import annotations

import pytest
from planted import Bed, cells, finding, holds

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


def told(tmp_path, changes=(), **look):
    bed = Bed(tmp_path)
    for method, cosines in {**PUBLISHED, **dict(changes)}.items():
        bed.plant(SMOKE.runs([method]), look={"cosines": cosines, **look})
    return STUDY.report_results(bed.results(), SMOKE)


def test_published_pattern(tmp_path):
    study_report = told(tmp_path)
    assert set(PUBLISHED) == set(PER_LAYER_METHODS)
    assert holds(study_report, "FA's cosine rises") is True
    assert holds(study_report, "lifted by the layer") is True
    assert "Counting it +0.550 ± 0.000, without it +0.400 ± 0.000" in finding(study_report, "lifted by").said
    assert holds(study_report, "DFA is aligned in layer 0") is True
    assert holds(study_report, "One layer carries DFA's") is True
    assert holds(study_report, "One layer carries Credit Bridge's") is False
    assert cells(study_report, "cosines", "l = 0")["DFA"] == "+0.40 ± 0.00"
    assert cells(study_report, "cosines", "l = 4")["FA"] == "+1.00 ± 0.00 exact"
    assert cells(study_report, "cosines", "κ")["DFA"] == "100% ± 0% at l = 0"


@pytest.mark.parametrize("cosines", [[0.4, 0.0, 0.2, 0.0, 0.0], [0.01, 0.0, 0.0, 0.0, 0.0]])
def test_a_deeper_alignment_or_none_in_layer_0_flips_dfa(tmp_path, cosines):
    assert holds(told(tmp_path, {METHODS["DFA"]: cosines}), "DFA is aligned in layer 0") is False


def test_a_falling_cosine_flips_fa(tmp_path):
    study_report = told(tmp_path, {METHODS["FA"]: [0.5, 0.4, 0.3, 0.2, 1.0]})
    assert holds(study_report, "FA's cosine rises") is False
    assert holds(study_report, "lifted by the layer") is True


def test_noise_decides_nothing_and_is_not_shown(tmp_path):
    study_report = told(tmp_path, replay_cos=[1, 1, 1, 0.2, 0.1])
    assert holds(study_report, "DFA is aligned in layer 0") is None
    assert holds(study_report, "FA's cosine rises") is None
    assert cells(study_report, "cosines", "l = 3")["DFA"] == "INVALID"
    assert cells(study_report, "cosines", "deep")["DFA"] == "INVALID"
    (drawn,) = [figure for figure in study_report.figures if figure.name == "cosines"]
    assert drawn.plots[1].series[0].y[3] is None


@pytest.mark.slow
def test_smoke(smoke):
    assert holds(smoke("per-layer"), "lifted by the layer") is True

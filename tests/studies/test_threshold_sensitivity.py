"""Sweeps of planted audits: gaps, flips, and who belongs to which group."""

from __future__ import annotations

import pytest
from planted import Bed, cells, holds, plant_all

from walkback.report.cells import tidy
from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.threshold_sensitivity import STUDY, group


def case(accuracy, growth, grad, shell=0.349):
    return {"accuracy": accuracy, "shell": shell, "look": {"growth": growth, "grad": grad, "groups": 2}}


AUDIT = {
    "BP": case(0.615, 1.3, 4e-4),
    "EP": case(0.75, 2.0, 1.3e-4),
    "DFA": case(0.306, 700.0, 4.2e-9),
    "State Bridge": case(0.205, 12000.0, 1e-9),
    "Credit Bridge": case(0.289, 900.0, 1e-9),
    "other": case(0.41, 8.0, 1e-5),
}


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    made = Bed(tmp_path_factory.mktemp("audit"))
    plant_all(made, STUDY.runs(SMOKE), AUDIT)
    return made


def test_an_audit_with_wide_gaps(bed):
    study_report = STUDY.report_results(bed.results(), SMOKE)
    assert [each.claim for each in study_report.findings if each.holds is not True] == []
    gaps = cells(study_report, "gaps", "gap")
    assert gaps["(a) growth"] == f"{700 / 2:.3g}x"
    assert gaps["(b) floor"] == tidy(f"{1.3e-4 / 4.2e-9:.3g}x")
    assert gaps["(d) margin, pp"] == f"{61.5 - 30.6:+.1f} pp"
    # FA, DFA raw and EP short lie 6.1 pp above their shell: of all cases only they change, by (d), in both editions.
    assert cells(study_report, "gaps", "flips, three")["(d) margin, pp"] == "6 of 16"
    assert cells(study_report, "gaps", "flips, four")["(d) margin, pp"] == "6 of 16"
    assert cells(study_report, "gaps", "flips, four")["(b) floor"] == "0 of 16"
    assert cells(study_report, "flips", "(d) margin, pp")["FA s1"] == "+6.1"
    assert cells(study_report, "flips", "(d) margin, pp")["BP s1"] == "–"


@pytest.mark.parametrize(
    ("method", "given", "claim"),
    [
        ("DFA", case(0.306, 1.9, 4.2e-9), "(a) growth: one threshold separates"),
        pytest.param("EP", case(0.75, 2.0, 4e-9), "(b) floor: one threshold separates", marks=pytest.mark.slow),
        pytest.param("EP", case(0.75, 40.0, 1.3e-4), "(a) growth flags the same", marks=pytest.mark.slow),
        # Its verdict rests on D3 as well.
        ("State Bridge", case(0.205, 12000.0, 2e-8), "(b) floor flags the same"),
        pytest.param("EP", case(0.75, 2.0, 5e-7), "(b) floor flags the same", marks=pytest.mark.slow),
    ],
)
def test_a_case_near_a_threshold_refutes_its_robustness(bed, method, given, claim):
    bed.plant(SMOKE.runs([METHODS[method]]), **given)
    study_report = STUDY.report_results(bed.results(), SMOKE)
    bed.plant(SMOKE.runs([METHODS[method]]), **AUDIT[method])
    assert holds(study_report, claim) is False


def test_margins_far_from_the_line_are_robust(tmp_path):
    bed = Bed(tmp_path)
    plant_all(bed, STUDY.runs(SMOKE), AUDIT | {"other": case(0.75, 8.0, 1e-5)})
    assert holds(STUDY.report_results(bed.results(), SMOKE), "(d) is not robust") is False


def test_groups_are_those_of_the_papers():
    assert [group(f"{name} s1") for name in ("BP", "EP", "EP short", "FA", "DFA raw", "DFA", "Credit Bridge")] == [
        "healthy", "healthy", None, None, None, "degenerate", "degenerate",
    ]  # fmt: skip


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("threshold-sensitivity")
    assert holds(study_report, "(d) is not robust") is True

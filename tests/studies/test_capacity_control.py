"""The capacity control's differences are paired, and its findings follow the planted numbers."""

from pathlib import Path

import pytest
from planted import Bed, cells, holds

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.studies.capacity_control import CONTROL_PENALTY, STUDY
from walkback_papers.tables import with_penalty

PUBLISHED = {"bp": [0.60, 0.61], "bp_pen": [0.53, 0.541], "dfa": [0.30, 0.31], "dfa_pen": [0.36, 0.371]}
"""With the published pattern: backprop loses 7 pp, DFA gains 6."""


def told(tmp_path: Path, shell=0.35, **changes):
    found = PUBLISHED | changes
    bed = Bed(tmp_path)
    for name, method in (("bp", "BP"), ("dfa", "DFA")):
        for key, size in ((name, 0.0), (f"{name}_pen", CONTROL_PENALTY)):
            configs = SMOKE.runs([with_penalty(METHODS[method], size)], epochs="short")
            look = {"cosines": 1.0 if method == "BP" else 0.1, "groups": 2}
            bed.plant(configs, accuracy=found[key], shell=shell, look=look)
    return STUDY.report_results(bed.results(), SMOKE)


def test_differences_are_paired_by_seed(tmp_path):
    # Seeds differ by 1 and 1.1 pp, so the paired differences by 0.1: t(0.975, 1) = 12.706 times 0.1 / 2.
    shown = cells(told(tmp_path), "differences", "accuracy, pp")
    assert shown["penalty on BP"] == "-7.0 [-7.6, -6.3]"
    assert shown["penalty on DFA"] == "+6.0 [+5.4, +6.7]"
    assert shown["BP over DFA, without"] == "+30.0 [+30.0, +30.0]"
    assert shown["BP over DFA, with"] == "+17.0 [+17.0, +17.0]"


def test_the_published_pattern(tmp_path):
    study_report = told(tmp_path)
    assert holds(study_report, "costs backprop") is True
    assert holds(study_report, "gives DFA") is True
    assert holds(study_report, "Backprop's depth") is True
    assert holds(study_report, "DFA's depth") is None  # 2 pp lie inside the interval of +1.6.
    assert holds(study_report, "Capacity is not") is True
    assert holds(study_report, "cosine at 1") is True


@pytest.mark.parametrize(
    ("changes", "words", "expected"),
    [
        ({"bp_pen": [0.62, 0.631]}, "costs backprop", False),
        ({"bp_pen": [0.55, 0.65]}, "costs backprop", None),
        ({"dfa_pen": [0.25, 0.261]}, "gives DFA", False),
        ({"dfa_pen": [0.25, 0.251], "shell": 0.35}, "DFA's depth", False),
        ({"dfa_pen": [0.42, 0.421], "shell": 0.35}, "DFA's depth", True),
        ({"bp_pen": [0.35, 0.351], "shell": 0.35}, "Backprop's depth", False),
        ({"bp_pen": [0.35, 0.361]}, "Capacity is not", False),
    ],
)
def test_a_finding_turns_with_its_numbers(tmp_path, changes, words, expected):
    assert holds(told(tmp_path, **changes), words) is expected


@pytest.mark.slow
def test_at_smoke_scale_backprop_keeps_its_depth(smoke):
    study_report = smoke("capacity-control")
    assert holds(study_report, "Backprop's depth") is True
    assert holds(study_report, "Capacity is not") is True

"""Exact credit: the oracles of each training, and findings that depend on the planted numbers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_measurements import changed, fake, without_blocks
from planted import PlantedRuns, cells, holds

from walkback.core.configuration import RunConfig
from walkback.report.study_report import StudyReport
from walkback.training.resolved_run import resolve
from walkback_papers.run_studies import runs_of_studies
from walkback_papers.scale import PAPER, SMOKE
from walkback_papers.studies.exact_credit import STUDY

SCALE = replace(PAPER, seeds=(42, 123))
"""Paper scale has both bridges; nothing is trained, so no data are read."""
BRIDGES = {"state_bridge": "State Bridge", "credit_bridge": "Credit Bridge"}


def plant(
    planted_runs: PlantedRuns,
    methods,
    epochs="short",
    accuracy=0.55,
    growth=1.2,
    grad=4e-4,
    cosine=1.0,
    used=1.0,
    update=1.0,
    ratio=1.0,
    shell=0.39,
) -> None:
    """Plant methods; `used` and `update` are those of block 0, the other blocks' are 1."""
    measured = fake(groups=2, growth=growth, grad=grad, cosines=[cosine] * 5)
    first = np.array([1.0, 0.0, 0.0, 0.0])[:, None]
    measured = changed(
        measured,
        used_cos=np.ones((4, 256)) + (used - 1) * first,
        update_cos=np.ones((4, 2)) + (update - 1) * first,
        credit_ratio=np.full((4, 256), ratio),
    )
    for method in methods:
        configs = SCALE.runs([method], epochs=epochs)
        planted_runs.plant(configs, accuracy=[accuracy, accuracy + 0.001], shell=shell, measured=measured)


EXPLODED = {"accuracy": 0.2, "growth": 4000.0, "grad": 2e-9, "used": 0.3, "update": 0.01, "ratio": 30.0}
WEAK = {"accuracy": 0.395, "cosine": 0.5, "used": 0.4, "update": 0.3, "ratio": 0.2}


@pytest.fixture(scope="module")
def expected_pattern(tmp_path_factory) -> Path:
    """Runs that support every finding."""
    planted_runs = PlantedRuns(tmp_path_factory.mktemp("exact"))
    for epochs in ("short", "full"):
        plant(planted_runs, ["bp"], epochs, accuracy=0.6)
        plant(planted_runs, ["bp:site=input"], epochs, **EXPLODED)
        plant(planted_runs, ["bp:penalty=0.01", "bp:site=input,penalty=0.01"], epochs)
    for rule in BRIDGES:
        plant(planted_runs, [f"{rule}:site=input"], **EXPLODED | {"cosine": 0.4})
        plant(planted_runs, [rule], accuracy=0.5, cosine=0.6)
        plant(planted_runs, [f"{rule}:penalty=0.01", f"{rule}:site=input,penalty=0.01"], **WEAK)
        for place in ("", "site=input,", "penalty=0.01,", "site=input,penalty=0.01,"):
            plant(planted_runs, [f"{rule}:{place}credit=direction"], accuracy=0.5, ratio=0.2)
    return planted_runs.folder.parent


def make_report(folder: Path, tmp_path: Path, *changes) -> StudyReport:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    planted_runs = PlantedRuns(tmp_path)
    for methods, given in changes:
        plant(planted_runs, methods, **given)
    return STUDY.report_results(planted_runs.results(), SCALE)


def names(configs: list[RunConfig]) -> list[str]:
    return [resolve(config).name for config in configs]


def test_every_oracle_of_a_bridge_is_among_the_runs_with_its_frozen_baseline():
    bridges = [resolve(config) for config in STUDY.runs(SCALE) if config.method.name in BRIDGES]
    own = [each for each in bridges if each.shared_options.credit == "own"]
    assert len(own) == 2 * 2 * 2 * len(SCALE.seeds)
    trained = {each.name for each in runs_of_studies([STUDY], SCALE)}
    for bridge in own:
        assert bridge.oracles.keys() == {"exact", "input", "direction"}
        for oracle in bridge.oracles.values():
            assert {oracle.name, oracle.frozen_baseline.name} <= trained


def test_runs_are_named_once_and_the_scales_have_the_papers_lengths():
    assert len(names(STUDY.runs(SCALE))) == len(set(names(STUDY.runs(SCALE))))
    lengths = {config.epochs for config in STUDY.runs(SCALE) if config.method.name == "bp"}
    assert lengths == {30, 100}
    assert {config.method.name for config in STUDY.runs(SMOKE)} == {"bp", "state_bridge"}


def test_the_expected_pattern_supports_every_finding(expected_pattern, tmp_path):
    report = make_report(expected_pattern, tmp_path)
    assert [finding.id for finding in report.findings if finding.holds is not True] == []
    assert cells(report, "short", "smallest used cosine")["BP at input"] == "+0.300 ± 0.000"
    assert cells(report, "full", "smallest update cosine")["BP at input"] == "+0.010 ± 0.000"
    assert cells(report, "short", "credit ratio")["Credit Bridge at input with λ"] == "0.2"
    assert cells(report, "short", "three")["BP at input"] == "walked back (D1, D2, D3)"
    assert cells(report, "used-cosines", "block 0")["State Bridge at input"] == "+0.300 ± 0.000"
    assert cells(report, "used-cosines", "block 3")["State Bridge at input"] == "+1.000 ± 0.000"
    assert cells(report, "credit-ratios", "block 0")["BP at input"] == "30"
    assert list(cells(report, "full", "accuracy")) == [
        "BP at output", "BP at input", "BP at output with λ", "BP at input with λ",
    ]  # fmt: skip
    by_method = {series.label: list(series.y) for series in report.figures[0].plots[0].series}
    assert by_method["BP"] == pytest.approx([0.3, 1, 1, 1])


def test_a_bridge_is_compared_with_each_oracle(expected_pattern, tmp_path):
    report = make_report(expected_pattern, tmp_path)
    row = "Credit Bridge at input with λ"
    found = {head: cells(report, "oracles", head)[row] for head in report.tables[2].heads[1:]}
    assert found == {
        "over frozen, pp": "+0.6 [-0.1, +1.2]",
        "O1 over frozen, pp": "+16.1 [+15.4, +16.7]",
        "O3 over frozen, pp": "+11.1 [+10.4, +11.7]",
        "minus O1, pp": "-15.5 [-15.5, -15.5]",
        "minus O2, pp": "-15.5 [-15.5, -15.5]",
        "minus O3, pp": "-10.5 [-10.5, -10.5]",
    }
    assert cells(report, "oracles", "minus O1, pp")["Credit Bridge at input"].startswith("-40.0")
    assert cells(report, "oracles", "minus O2, pp")["Credit Bridge at input"].startswith("+0.0")


FREE, PENALISED = ["bp:site=input"], ["bp:site=input,penalty=0.01"]


@pytest.mark.parametrize(
    ("methods", "given", "finding_id", "expected", "named"),
    [
        (FREE, {}, "exact-input-no-penalty-fails", False, "30 epochs"),
        (FREE, {"epochs": "full"}, "exact-input-no-penalty-fails", False, "100 epochs"),
        (FREE, EXPLODED | {"update": 0.5}, "exact-input-update-not-aligned", False, "30 epochs"),
        (FREE, EXPLODED | {"update": np.nan}, "exact-input-update-not-aligned", None, "30 epochs"),
        (FREE, EXPLODED | {"cosine": 0.9}, "exact-input-update-not-aligned", None, "30 epochs"),
        (FREE, {}, "bridge-input-no-penalty-not-attributable", False, "Credit Bridge at input"),
        (["state_bridge:site=input"], {}, "bridge-input-no-penalty-not-attributable", None, "State Bridge at input"),
        (PENALISED, {"accuracy": 0.5}, "exact-input-penalty-same-accuracy", False, "30 epochs"),
        (PENALISED, EXPLODED, "exact-input-penalty-stands", False, "30 epochs"),
        (["bp:penalty=0.01"], WEAK, "bridge-failure-is-the-credit", False, "Credit Bridge at output with λ"),
        (
            ["credit_bridge:penalty=0.01"],
            {"accuracy": 0.54},
            "bridge-failure-is-the-credit",
            False,
            "Credit Bridge at output with λ",
        ),
        (
            ["state_bridge:penalty=0.01,credit=direction"],
            WEAK | {"accuracy": 0.37},
            "bridge-direction-costs",
            False,
            "State Bridge at output with λ",
        ),
        (
            ["state_bridge:penalty=0.01,credit=direction"],
            {"accuracy": 0.58},
            "bridge-size-costs",
            False,
            "State Bridge at output with λ",
        ),
    ],
)  # fmt: skip
def test_findings_depend_on_the_planted_numbers(
    expected_pattern, tmp_path, methods, given, finding_id, expected, named
):
    report = make_report(expected_pattern, tmp_path, (methods, given))
    assert holds(report, finding_id) is expected
    assert named in report.finding(finding_id).details


def test_seeds_that_differ_leave_a_finding_open(expected_pattern, tmp_path):
    shutil.copytree(expected_pattern, tmp_path, dirs_exist_ok=True)
    planted_runs = PlantedRuns(tmp_path)
    config = SCALE.runs(["bp:site=input"], epochs="short")[0]
    planted_runs.plant([config], accuracy=0.9, measured=without_blocks(fake(groups=2, cosines=[1.0] * 5)))
    report = STUDY.report_results(planted_runs.results(), SCALE)
    assert holds(report, "exact-input-no-penalty-fails") is None
    assert cells(report, "short", "three")["BP at input"].endswith("in 1 of 2")
    assert cells(report, "short", "credit ratio")["BP at input"] == "NOT MEASURED"


def test_measurements_of_older_versions_are_shown_as_not_measured(expected_pattern, tmp_path):
    shutil.copytree(expected_pattern, tmp_path, dirs_exist_ok=True)
    planted_runs = PlantedRuns(tmp_path)
    configs = SCALE.runs(["bp:site=input"], epochs="short")
    older = without_blocks(fake(groups=2, growth=4000, grad=2e-9, cosines=[1.0] * 5))
    planted_runs.plant(configs, accuracy=0.2, measured=older)
    report = STUDY.report_results(planted_runs.results(), SCALE)
    for head in ("smallest used cosine", "credit ratio", "smallest update cosine"):
        assert cells(report, "short", head)["BP at input"] == "NOT MEASURED"
    assert cells(report, "used-cosines", "block 0")["BP at input"] == "NOT MEASURED"
    assert holds(report, "exact-input-update-not-aligned") is None


@pytest.mark.slow
def test_at_smoke_scale_the_study_runs_and_oracles_are_aligned_where_they_are_used(smoke):
    report: StudyReport = smoke("exact-credit")
    used = cells(report, "short", "smallest used cosine")
    assert {used[name] for name in used if "(O3)" in name or name.startswith("BP at output")} == {"+1.000 ± 0.000"}
    assert used["BP at input"] != "+1.000 ± 0.000"
    assert holds(report, "exact-input-penalty-same-accuracy") is True

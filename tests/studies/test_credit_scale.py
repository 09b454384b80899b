"""The size of the credit: which rules are in Mode 1, and whose credit shrinks, with planted numbers."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from fake_measurements import changed, fake
from planted import PlantedRuns, cells, holds, log_row

from walkback_papers.scale import METHODS, PAPER, RAW, SMOKE
from walkback_papers.studies.credit_scale import LABEL_ONLY, STUDY, measured_epochs

EPOCHS = measured_epochs(SMOKE)
EXPLODED = {"growth": 200.0, "grad": 1e-9}
QUIET = {"growth": 2.0, "grad": 1e-4}
(RAW_DFA,) = RAW


def with_sizes(error: float, credit: float, **measured):
    """Measurements with these norms of error and credit."""
    made = fake(cosines=[0.1] * 5, groups=2, **measured)
    return changed(
        made,
        error_norm=np.full(256, error),
        credit_norm=np.full((5, 256), credit),
    )


def plant(
    planted_runs: PlantedRuns, method: str, state: dict[str, float], shrinks: float = 1.0, data: str | None = None
) -> None:
    """Plant a rule whose error and credit are `shrinks` times their first size at the last epoch."""
    configs = SMOKE.runs([method], data=data)
    measured_after = {epoch: with_sizes(0.8, 4.0, **QUIET) for epoch in EPOCHS[:-1]}
    measured_after[EPOCHS[-1]] = with_sizes(0.8 * shrinks, 4.0 * shrinks, **state)
    log = [log_row(epoch, **(QUIET if epoch < 3 else state)) for epoch in range(1, EPOCHS[-1] + 1)]
    shell = 0.3 if data is None else None
    planted_runs.plant(
        configs, shell=shell, measured=measured_after[EPOCHS[-1]], log=log, measured_after=measured_after
    )


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Path:
    """A folder of runs planted as the study's claim says."""
    folder = tmp_path_factory.mktemp("planted")
    planted_runs = PlantedRuns(folder)
    plant(planted_runs, METHODS["DFA"], EXPLODED)
    plant(planted_runs, RAW_DFA, QUIET, shrinks=0.25)
    for method in LABEL_ONLY:
        plant(planted_runs, method, EXPLODED)
    plant(planted_runs, RAW_DFA, EXPLODED, data=shuffled())
    return folder


def shuffled() -> str:
    return f"{SMOKE.places['resmlp'].data},shuffled=true"


def make_report(planted: Path, tmp_path: Path, *change):
    shutil.copytree(planted, tmp_path, dirs_exist_ok=True)
    planted_runs = PlantedRuns(tmp_path)
    if change:
        plant(planted_runs, *change)
    return STUDY.report_results(planted_runs.results(), SMOKE)


def test_the_claimed_pattern(planted, tmp_path):
    study_report = make_report(planted, tmp_path)
    # On random labels raw DFA's error keeps its size and raw DFA is in Mode 1, which refutes "only".
    assert [found.holds for found in study_report.findings] == [True, True, True, False, True, True]
    assert cells(study_report, "sizes", "‖a‖, last over first")["DFA raw"] == "0.25"
    assert cells(study_report, "sizes", "‖e‖, last")["DFA raw"] == "0.200 ± 0.000"
    assert cells(study_report, "marks", "D1 from epoch") == {
        "DFA": "3, 3", "DFA raw": "–, –", "sDFA": "3, 3", "DRTP": "3, 3", "DFA raw, random labels": "3, 3",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "finding_id", "expected"),
    [
        ((METHODS["DFA"], QUIET), "unit-error-mode-1", False),
        ((METHODS["DFA"], QUIET), "constant-credit-suffices", False),
        ((METHODS["DFA"], {"growth": 200.0, "grad": 1e-4}), "unit-error-mode-1", False),  # D1 alone is not Mode 1.
        ((RAW_DFA, EXPLODED), "raw-error-not-mode-1", False),
        ((RAW_DFA, QUIET, 1.5), "raw-error-shrinks", False),
        ((RAW_DFA, QUIET, 0.95), "raw-error-shrinks", False),
        ((RAW_DFA, QUIET, 1.0, shuffled()), "constant-error-suffices", False),
        ((RAW_DFA, QUIET, 1.0, shuffled()), "mode-1-needs-constant-credit", True),
    ],
)
def test_findings_depend_on_the_planted_numbers(planted, tmp_path, change, finding_id, expected):
    assert holds(make_report(planted, tmp_path, *change), finding_id) is expected


def test_measured_epochs_double_and_include_the_last():
    assert measured_epochs(SMOKE) == (1, 2, 4, 8, 12)
    assert measured_epochs(PAPER) == (1, 2, 4, 8, 16, 32, 64, 100)


def test_random_labels_get_no_verdict_and_no_baseline():
    judged = STUDY.judged(SMOKE)
    rest = [config for config in STUDY.runs(SMOKE) if config not in judged]
    assert {config.data.settings["shuffled"] for config in rest} == {"true"}
    assert len(rest) == len(SMOKE.seeds)


@pytest.mark.slow
def test_at_smoke_scale_credit_that_never_shrinks_explodes(smoke):
    study_report = smoke("credit-scale")
    growth = {row[0].text: row[2].value for row in study_report.tables[1].rows}
    assert growth["sDFA"] > 50 > growth["DFA raw"]
    assert growth["DRTP"] > 50
    assert holds(study_report, "raw-error-shrinks") is True

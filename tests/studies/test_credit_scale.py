"""Which rules raise Mode 1, and whose credit shrinks: decided by the planted numbers."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from fake_measurements import changed, fake
from planted import Bed, cells, holds, reading

from walkback_papers.scale import METHODS, PAPER, RAW, SMOKE
from walkback_papers.studies.credit_scale import LABEL_ONLY, STUDY, looked_at

EPOCHS = looked_at(SMOKE)
EXPLODED = {"growth": 200.0, "grad": 1e-9}
QUIET = {"growth": 2.0, "grad": 1e-4}
(RAW_DFA,) = RAW


def seen(error: float, credit: float, **look):
    taken = fake(cosines=[0.1] * 5, groups=2, **look)
    return changed(
        taken,
        error_norm=np.full(256, error),
        credit_norm=np.full((5, 256), credit),
    )


def plant(bed: Bed, method: str, state: dict[str, float], shrinks: float = 1.0, data: str | None = None) -> None:
    """A rule whose error and credit fall to `shrinks` of what they were by the last epoch."""
    configs = SMOKE.runs([method], data=data)
    close = {epoch: seen(0.8, 4.0, **QUIET) for epoch in EPOCHS[:-1]}
    close[EPOCHS[-1]] = seen(0.8 * shrinks, 4.0 * shrinks, **state)
    log = [reading(epoch, **(QUIET if epoch < 3 else state)) for epoch in range(1, EPOCHS[-1] + 1)]
    shell = 0.3 if data is None else None
    bed.plant(configs, shell=shell, look=close[EPOCHS[-1]], log=log, close=close)


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> Path:
    """As our claim has it."""
    folder = tmp_path_factory.mktemp("planted")
    bed = Bed(folder)
    plant(bed, METHODS["DFA"], EXPLODED)
    plant(bed, RAW_DFA, QUIET, shrinks=0.25)
    for method in LABEL_ONLY:
        plant(bed, method, EXPLODED)
    plant(bed, RAW_DFA, EXPLODED, data=shuffled())
    return folder


def shuffled() -> str:
    return f"{SMOKE.places['resmlp'].data},shuffled=true"


def told(planted: Path, tmp_path: Path, *change):
    shutil.copytree(planted, tmp_path, dirs_exist_ok=True)
    bed = Bed(tmp_path)
    if change:
        plant(bed, *change)
    return STUDY.report_results(bed.results(), SMOKE)


def test_as_our_claim_has_it(planted, tmp_path):
    study_report = told(planted, tmp_path)
    # Random labels leave raw DFA's error as large as it was: that it then explodes contradicts "only".
    assert [found.holds for found in study_report.findings] == [True, True, True, False, True, True]
    assert cells(study_report, "sizes", "‖a‖, last over first")["DFA raw"] == "0.25"
    assert cells(study_report, "sizes", "‖e‖, last")["DFA raw"] == "0.200 ± 0.000"
    assert cells(study_report, "marks", "D1 from epoch") == {
        "DFA": "3, 3", "DFA raw": "–, –", "sDFA": "3, 3", "DRTP": "3, 3", "DFA raw, random labels": "3, 3",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words", "expected"),
    [
        ((METHODS["DFA"], QUIET), "length 1", False),
        ((METHODS["DFA"], QUIET), "keeps its size is enough", False),
        ((METHODS["DFA"], {"growth": 200.0, "grad": 1e-4}), "length 1", False),  # D1 alone is not Mode 1.
        ((RAW_DFA, EXPLODED), "as it is does not", False),
        ((RAW_DFA, QUIET, 1.5), "error shrinks", False),
        ((RAW_DFA, QUIET, 0.95), "error shrinks", False),
        ((RAW_DFA, QUIET, 1.0, shuffled()), "cannot shrink is enough", False),
        ((RAW_DFA, QUIET, 1.0, shuffled()), "only by rules", True),
    ],
)
def test_a_finding_turns_with_its_numbers(planted, tmp_path, change, words, expected):
    assert holds(told(planted, tmp_path, *change), words) is expected


def test_looks_double_and_end_with_the_last_epoch():
    assert looked_at(SMOKE) == (1, 2, 4, 8, 12)
    assert looked_at(PAPER) == (1, 2, 4, 8, 16, 32, 64, 100)


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
    assert holds(study_report, "error shrinks") is True

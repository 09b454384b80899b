"""The committed results: pages, tables, figures and quotations are what the committed measurements give."""

from __future__ import annotations

import filecmp
import json
import shutil
from pathlib import Path

import pytest

from committed import RESULTS, ROOT, needs_results
from drawn_text import faults_of, unexplained_codes
from walkback.cli.main import main
from walkback.report.study_pages import STUDY_FILE
from walkback_papers import run_studies
from walkback_papers.experiments import EXPERIMENTS
from walkback_papers.results import Results
from walkback_papers.scale import PAPER

pytestmark = needs_results
PAGES = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("findings", "findings-details", "calibration")),
]
STUDY_NAMES = sorted(path.parent.name for path in RESULTS.glob(f"*/{STUDY_FILE}"))
QUICK = ["primary-audit"]
PERFORMED = ["calibration"]
"""Studies whose results are those of experiments, not of runs."""


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch):
    """Run from the root: the commands on the pages contain paths relative to it."""
    monkeypatch.chdir(ROOT)


def differing(left: Path, right: Path) -> list[str]:
    """Names of files that differ between the two folders or exist in only one."""
    names = {path.relative_to(top) for top in (left, right) for path in top.rglob("*") if path.is_file()}
    return [str(name) for name in sorted(names) if not are_same(left / name, right / name)]


def are_same(left: Path, right: Path) -> bool:
    if not (left.is_file() and right.is_file()):
        return False
    if left.name == STUDY_FILE:
        # Another processor may sum in another order; the displayed digits are the same.
        return nearly(json.loads(left.read_text("utf-8"))) == json.loads(right.read_text("utf-8"))
    return filecmp.cmp(left, right, shallow=False)


def nearly(value):
    """A value that compares equal up to rounding of its numbers."""
    if isinstance(value, dict):
        return {name: nearly(each) for name, each in value.items()}
    if isinstance(value, list):
        return [nearly(each) for each in value]
    return pytest.approx(value, rel=1e-9, abs=1e-15) if isinstance(value, float) else value


def render(names: list[str], out: Path) -> None:
    (out / "runs").symlink_to(RESULTS / "runs")
    for name in names:
        if (RESULTS / name / EXPERIMENTS).is_dir():
            shutil.copytree(RESULTS / name / EXPERIMENTS, out / name / EXPERIMENTS)
    assert main(["study", *names, "--scale", "paper", "--out", str(out), "--render", "--quiet"]) == 0


def test_rendering_a_study_gives_the_committed_bytes(tmp_path):
    render(QUICK, tmp_path)
    for name in QUICK:
        assert differing(RESULTS / name, tmp_path / name) == []


def test_rendering_a_study_of_experiments_gives_the_committed_bytes(tmp_path):
    render(PERFORMED, tmp_path)
    for name in PERFORMED:
        assert differing(RESULTS / name, tmp_path / name) == []


@pytest.mark.slow
def test_rendering_every_study_gives_the_committed_bytes(tmp_path):
    render(STUDY_NAMES, tmp_path)
    for name in STUDY_NAMES:
        assert differing(RESULTS / name, tmp_path / name) == []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in STUDY_NAMES]
)
def test_texts_of_figures_are_readable(name):
    """No text covers another or is cut off, and each code in a label is explained."""
    study = run_studies.all_studies()[name]
    own = {resolved.name for resolved in run_studies.runs_of_studies([study], PAPER)}
    results = Results(RESULTS / "runs").limited_to(own, RESULTS / name)
    for figure in study.report_results(results, PAPER).figures:
        assert faults_of(figure) == [], figure.name
        assert unexplained_codes(figure) == set(), figure.name


def test_a_number_changed_by_hand_is_detected(tmp_path):
    shutil.copytree(RESULTS / QUICK[0], tmp_path / "changed")
    page, stored = tmp_path / "changed" / "study.md", tmp_path / "changed" / STUDY_FILE
    page.write_text(page.read_text("utf-8").replace("trustworthy", "walked back", 1), encoding="utf-8")
    study = json.loads(stored.read_text("utf-8"))
    cell = next(cell for row in study["tables"][0]["rows"] for cell in row if cell["value"])
    cell["value"] *= 1 + 1e-6
    stored.write_text(json.dumps(study), encoding="utf-8")
    assert differing(RESULTS / QUICK[0], tmp_path / "changed") == [STUDY_FILE, "study.md"]


def test_quotations_match_the_results():
    assert main(["quote", *map(str, PAGES), "--results", "results/paper", "--check"]) == 0


def test_the_reproduction_page_is_up_to_date():
    page = ["--out", "docs/reproduction.md"]
    assert main(["reproduction", "--results", "results/paper", *page, "--check"]) == 0


def test_every_run_is_needed_by_a_study_and_has_no_weights():
    studies = run_studies.studies_of(STUDY_NAMES)
    needed = {resolved.name for resolved in run_studies.runs_of_studies(studies.values(), PAPER)}
    runs = {path.name: path for path in (RESULTS / "runs").iterdir()}
    assert runs.keys() == needed
    for path in runs.values():
        record = json.loads((path / "run.json").read_text(encoding="utf-8"))
        assert record["status"] == "done"
        assert not list(path.glob("*.safetensors"))

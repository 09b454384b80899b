"""The committed results: pages, tables and figures are what the committed measurements give, and quotations too."""

from __future__ import annotations

import filecmp
import json
import shutil
from pathlib import Path

import pytest

from walkback.cli.main import main
from walkback.report.study_pages import STUDY_FILE
from walkback_papers import run_studies
from walkback_papers.scale import PAPER

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "paper"
PAGES = [ROOT / "README.md", ROOT / "docs" / "findings.md"]
TOLD = sorted(path.parent.name for path in RESULTS.glob(f"*/{STUDY_FILE}"))
QUICK = ["primary-audit", "decision-utility"]


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch):
    """Commands on the pages name folders as seen from there."""
    monkeypatch.chdir(ROOT)


def differing(left: Path, right: Path) -> list[str]:
    """Names of files that are not the same below both, or below one alone."""
    names = {path.relative_to(top) for top in (left, right) for path in top.rglob("*") if path.is_file()}
    return [str(name) for name in sorted(names) if not are_same(left / name, right / name)]


def are_same(left: Path, right: Path) -> bool:
    if not (left.is_file() and right.is_file()):
        return False
    if left.name == STUDY_FILE:
        # Another processor may add up in another order; what it shows of a number is the same.
        return nearly(json.loads(left.read_text("utf-8"))) == json.loads(right.read_text("utf-8"))
    return filecmp.cmp(left, right, shallow=False)


def nearly(value):
    """Equal to the same with numbers off by rounding."""
    if isinstance(value, dict):
        return {name: nearly(each) for name, each in value.items()}
    if isinstance(value, list):
        return [nearly(each) for each in value]
    return pytest.approx(value, rel=1e-9, abs=1e-15) if isinstance(value, float) else value


def tell_again(names: list[str], out: Path) -> None:
    (out / "runs").symlink_to(RESULTS / "runs")
    assert main(["study", *names, "--scale", "paper", "--out", str(out), "--render", "--quiet"]) == 0


def test_two_studies_told_again_are_the_same_bytes(tmp_path):
    tell_again(QUICK, tmp_path)
    for name in QUICK:
        assert differing(RESULTS / name, tmp_path / name) == []


@pytest.mark.slow
def test_every_study_told_again_is_the_same_bytes(tmp_path):
    tell_again(TOLD, tmp_path)
    for name in TOLD:
        assert differing(RESULTS / name, tmp_path / name) == []


def test_a_number_that_is_changed_by_hand_is_found(tmp_path):
    shutil.copytree(RESULTS / QUICK[0], tmp_path / "changed")
    page, stored = tmp_path / "changed" / "study.md", tmp_path / "changed" / STUDY_FILE
    page.write_text(page.read_text("utf-8").replace("trustworthy", "walked back", 1), encoding="utf-8")
    told = json.loads(stored.read_text("utf-8"))
    cell = next(cell for row in told["tables"][0]["rows"] for cell in row if cell["value"])
    cell["value"] *= 1 + 1e-6
    stored.write_text(json.dumps(told), encoding="utf-8")
    assert differing(RESULTS / QUICK[0], tmp_path / "changed") == [STUDY_FILE, "study.md"]


def test_what_the_pages_quote_is_what_the_results_say():
    assert main(["quote", *map(str, PAGES), "--results", "results/paper", "--check"]) == 0


def test_the_reproduction_is_what_the_generator_writes():
    page = ["--out", "docs/reproduction.md"]
    assert main(["reproduction", "--results", "results/paper", *page, "--check"]) == 0


def test_every_run_is_needed_by_a_study_and_has_no_weights():
    studies = run_studies.studies_of(TOLD)
    needed = {resolved.name for resolved in run_studies.runs_of_studies(studies.values(), PAPER)}
    runs = {path.name: path for path in (RESULTS / "runs").iterdir()}
    assert runs.keys() == needed
    for path in runs.values():
        record = json.loads((path / "run.json").read_text(encoding="utf-8"))
        assert record["status"] == "done"
        assert not list(path.glob("*.safetensors"))

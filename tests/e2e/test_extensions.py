"""Another package adds a rule, a network, a data set, a check and a study: one file each, nothing else is edited.

The package is tests/fixtures/scratch_package. The contract tests run on it as they are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SCRATCH = TESTS / "fixtures" / "scratch_package"


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python with the scratch package installed."""
    paths = [str(SCRATCH), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> dict:
    words = ("--arch", "scratch_mlp:d=8,depth=2", "--data", "stripes", "--epochs", "2", "--set", "batch=64", "lr=0.01")
    folder = tmp_path_factory.mktemp("audit")
    done = run("-m", "walkback", "audit", "--methods", "half_bp", *words, "--json", cwd=folder)
    assert done.returncode in (0, 1, 2), done.stderr
    return json.loads(done.stdout) | {"folder": folder}


def test_all_of_them_are_used_in_an_audit(audited: dict) -> None:
    (row,) = audited["rows"]
    assert (row["method"], row["data"]) == ("half_bp", "stripes")
    checks = {check["id"]: check for check in row["cards"][0]["checks"]}
    assert checks["depth_counted"]["status"] == "clear"
    assert checks["depth_counted"]["value"] == 2


def test_a_card_with_the_new_check_is_rendered_and_verified(audited: dict) -> None:
    folder = audited["folder"]
    (card,) = folder.glob("runs/half_bp_*/report.json")
    assert (
        "depth counted" in run("-m", "walkback", "render", str(card), "--format", "md", "--stdout", cwd=folder).stdout
    )
    done = run("-m", "walkback", "verify", str(card), str(card.parent), cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_card_with_the_new_check_is_readable_without_the_package(audited: dict) -> None:
    (card,) = audited["folder"].glob("runs/half_bp_*/report.json")
    words = ["-m", "walkback", "render", str(card), "--format", "md", "--stdout"]
    done = subprocess.run([sys.executable, *words], cwd=audited["folder"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "depth counted" in done.stdout


@pytest.mark.parametrize(
    ("what", "name"),
    [("methods", "half_bp"), ("archs", "scratch_mlp"), ("data", "stripes"), ("diagnostics", "depth_counted"),
     ("studies", "scratch-study")],
)  # fmt: skip
def test_it_is_listed(what: str, name: str, tmp_path: Path) -> None:
    done = run("-m", "walkback", "ls", what, "--json", cwd=tmp_path)
    assert name in [json.loads(line)["name"] for line in done.stdout.splitlines()]


def test_the_check_is_explained(tmp_path: Path) -> None:
    assert "at least two blocks" in run("-m", "walkback", "explain", "depth_counted", cwd=tmp_path).stdout


def test_the_study_runs_and_its_finding_has_an_id(tmp_path: Path) -> None:
    words = ("study", "scratch-study", "--scale", "smoke", "--out", "s", "--processes", "1", "--device", "cpu")
    done = run("-m", "walkback", *words, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["id"] == "learns"
    assert (tmp_path / "s" / "scratch-study" / "index.html").is_file()


@pytest.mark.slow
def test_the_contracts_hold_for_the_rule_and_the_network(tmp_path: Path) -> None:
    chosen = "half_bp or scratch_mlp"
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS / "contracts"), "-k", chosen, "-m", "")
    done = run(*words, cwd=TESTS.parent)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout

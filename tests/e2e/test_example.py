"""A rule and a network of another package, installed as a user would, are methods and networks like all others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # test_extensions.py tests the same path with a package that needs no installing.

EXAMPLE = Path(__file__).parents[2] / "examples" / "orthogonal-dfa"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The example in a folder of its own, built from a copy so that the checkout stays clean."""
    import shutil

    source, target = tmp_path_factory.mktemp("source") / "package", tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, source)
    words = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [sys.executable, *words, "--disable-pip-version-check", "--target", str(target), str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


def walkback(installed, cwd, *words):
    environment = os.environ | {"PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, "-m", "walkback", *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_they_are_listed_trained_and_judged(installed, tmp_path):
    listed = walkback(installed, tmp_path, "ls", "methods", "--json")
    (row,) = [row for row in map(json.loads, listed.stdout.splitlines()) if row["name"] == "orthogonal_dfa"]
    assert row["state"] == "Q_0..Q_L"
    words = ["--arch", "tanh_mlp:d=16,depth=2", "--data", "prototypes:train=640,test=1024", "--epochs", "2"]
    methods = ["orthogonal_dfa", "orthogonal_dfa:gain=10"]
    done = walkback(installed, tmp_path, "audit", "--methods", *methods, *words, "--json")
    assert done.returncode in (0, 1, 2), done.stderr
    table = json.loads(done.stdout)
    assert [row["method"] for row in table["rows"]] == ["orthogonal_dfa", "orthogonal_dfa:gain=10"]
    for row in table["rows"]:
        assert row["claims"]["alignment"]["outcome"] != "not_made"
        assert set(row["cards"][0]["claim"]["frozen"]) == {"method_shell", "bp_shell"}


def test_what_it_does_not_define_is_refused_with_its_reason(installed, tmp_path):
    done = walkback(installed, tmp_path, "train", "--method", "orthogonal_dfa", "--arch", "tanh_mlp:d=4")
    assert done.returncode == 3
    assert "10 orthonormal rows do not fit into 4 features" in done.stderr


def test_without_the_package_the_name_is_unknown(tmp_path):
    done = walkback(tmp_path, tmp_path, "train", "--method", "orthogonal_dfa")
    assert done.returncode == 3
    assert "Unknown method 'orthogonal_dfa'" in done.stderr

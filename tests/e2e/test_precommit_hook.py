"""`walkback lint` as a pre-commit hook, in a scratch repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
HOOKS = ROOT / ".pre-commit-hooks.yaml"
WRONG = "import torch\n\n\ndef f(h):\n    return h.norm(-1)\n"


def test_both_hooks_run_the_same_command_on_the_files_that_lint_reads():
    own, installed = yaml.safe_load(HOOKS.read_text())
    assert (own["language"], installed["language"]) == ("python", "system")
    assert own["entry"] == installed["entry"] == "walkback lint"
    assert own["files"] == installed["files"]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
def test_a_commit_with_a_finding_is_refused_and_a_clean_one_is_made(tmp_path):
    pytest.importorskip("pre_commit", reason="pre-commit is not installed: make test-all installs it")
    who = {f"GIT_{role}_{what}": "nobody@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = os.environ | who | {"HOME": str(tmp_path), "PRE_COMMIT_HOME": str(tmp_path / "cache")}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])

    def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)

    hook, user = tmp_path / "hook", tmp_path / "user"
    for folder in (hook, user):
        folder.mkdir()
        assert run("git", "init", "-q", cwd=folder).returncode == 0
    shutil.copy(HOOKS, hook)
    run("git", "add", "-A", cwd=hook)
    assert run("git", "commit", "-q", "-m", "hooks", cwd=hook).returncode == 0
    rev = run("git", "rev-parse", "HEAD", cwd=hook).stdout.strip()
    config = {"repos": [{"repo": str(hook), "rev": rev, "hooks": [{"id": "walkback-lint-installed"}]}]}
    (user / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    (user / "notes.txt").write_text("no code")
    (user / "evaluate.py").write_text(WRONG)
    assert run(sys.executable, "-m", "pre_commit", "install", cwd=user).returncode == 0
    run("git", "add", "-A", cwd=user)
    refused = run("git", "commit", "-q", "-m", "wrong", cwd=user)
    assert refused.returncode != 0
    assert "evaluate.py:5:12 WB001" in refused.stdout + refused.stderr
    (user / "evaluate.py").write_text(WRONG.replace("norm(-1)", "norm(dim=-1)"))
    run("git", "add", "-A", cwd=user)
    made = run("git", "commit", "-q", "-m", "right", cwd=user)
    assert made.returncode == 0, made.stdout + made.stderr

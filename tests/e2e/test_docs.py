"""What the README and the documentation say must run and be true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from walkback.cli.commands.demo import METHODS
from walkback.cli.main import COMMANDS
from walkback.core.version import __version__
from walkback.credit import RULES
from walkback.studies import STUDIES

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    (page.name, code) for page in PAGES for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]


@pytest.mark.parametrize(("page", "code"), BLOCKS, ids=[page for page, _ in BLOCKS])
def test_python_on_the_pages_runs(page, code, tmp_path):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_readme_lists_every_method_with_its_citation_and_file():
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \| \[(\w+\.py)\]\((.*)\) \|$", text, re.MULTILINE)
    listed = {name: (citation, file, path) for name, citation, file, path in rows}
    assert sorted(listed) == RULES.names()
    for entry in RULES.entries():
        citation, file, path = listed[entry.name]
        assert citation == entry.facts["Citation"]
        assert file == f"{entry.name}.py"
        assert (ROOT / path).is_file()


def test_commands_on_the_pages_exist():
    for page in PAGES:
        for name in re.findall(r"`(?:\.venv/bin/)?walkback (\w+)", page.read_text()):
            assert name in COMMANDS.names(), f"{page.name} names `walkback {name}`"


def test_the_studies_page_lists_every_study():
    text = (ROOT / "docs" / "studies.md").read_text()
    listed = re.findall(r"^\| `([\w-]+)` \| (.*) \| (.*) \|$", text, re.MULTILINE)
    expected = [(e.name.replace("_", "-"), e.summary, e.facts.get("Papers", "")) for e in STUDIES.entries()]
    assert listed == expected


def test_the_version_is_the_same_everywhere():
    assert f"version: {__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {__version__} (" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.slow
def test_the_readme_shows_the_table_the_demo_prints(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "walkback", "demo", "--quiet"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    text = (ROOT / "README.md").read_text()
    for method in METHODS:
        shown, printed = (
            " ".join(line for line in page.splitlines() if line.startswith(f"{method} ")).split()
            for page in (text, done.stdout)
        )
        assert len(shown) == len(printed) > 12
        for left, right in zip(shown, printed, strict=True):
            number = re.fullmatch(r"[[(]?[-+]?[\d.]+(e[-+]\d+)?[]),]*", left)
            # The last digits may differ between processors: sums are taken in another order. Words may not.
            if number:
                bare = [float(word.strip("[](),")) for word in (left, right)]
                assert bare[0] == pytest.approx(bare[1], rel=0.2, abs=2 if "," in left or "]" in left else 0.02)
            else:
                assert left == right

"""Test that the README and the documentation are true: their code runs and prints what they show.

Blocks on the pages are executed: `python` each in its own folder, `console` line by line, all of a page in one folder.
A block must print what the page shows: the same words, and numbers to a few percent, since another processor sums in
another order. `bash` is for commands that take hours or need data: only their options are checked.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import walkback as wb
from walkback.cli.main import COMMANDS, Parser
from walkback.core.version import __version__
from walkback.credit import RULES
from walkback.judge.checks import CHECKS
from walkback.judge.finite_steps import CONTROL
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.measure.finite_steps import DIRECTIONS, NUDGE, STEP
from walkback.measure.snapshot import FRESH_DRAWS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)]
PYTHON = r"```python\n(.*?)```(?:\n\nprints\n\n```text\n(.*?)```)?"
NUMBER = re.compile(r"[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


BLOCKS = [(_name(page), *found) for page in PAGES for found in re.findall(PYTHON, page.read_text(), re.DOTALL)]
LONG = ("docs/diagnostics/direction.md", "docs/diagnostics/functional.md")
"""Pages whose code takes long to train."""
CONSOLES = [page for page in PAGES if page.parent != ROOT and "```console\n" in page.read_text()]


def same(shown: str, printed: str) -> bool:
    """Whether the shown text agrees with the printed one: the same words, and nearly the same numbers."""
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", printed).split():
        return False
    return all(map(_near, NUMBER.findall(shown), NUMBER.findall(printed)))


def _near(shown: str, printed: str) -> bool:
    # A cosine near zero is shown with two decimals, a number with an exponent with all its significant digits.
    slack = 0.0 if "e" in shown else 0.02
    left, right = (float(word.replace(",", "")) for word in (shown, printed))
    return left == pytest.approx(right, rel=0.05, abs=slack)


@pytest.mark.parametrize(
    ("page", "code", "shown"),
    [pytest.param(*each, marks=pytest.mark.slow if each[0] in LONG else (), id=each[0]) for each in BLOCKS],
)
def test_python_on_the_pages_runs(page, code, shown, tmp_path, monkeypatch, capsys):
    """Runs in this process, which has imported torch already: twenty imports of it would take most of the time."""
    monkeypatch.chdir(tmp_path)
    exec(compile(code, page, "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert printed
    assert not shown or same(shown, printed), printed


@pytest.mark.slow
@pytest.mark.parametrize("page", CONSOLES, ids=_name)
def test_console_on_the_pages_runs(page, tmp_path):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
        for command, shown in _steps(block):
            done = subprocess.run(
                ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            # 1 and 2 are exit codes of verdicts and findings.
            assert done.returncode in (0, 1, 2), f"{command}: {done.stderr}"
            assert "Traceback" not in done.stderr
            assert not shown or same(shown, done.stdout), f"{command}: {done.stdout}"


def _steps(block: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with the output shown below it."""
    for step in block.removeprefix("$ ").split("\n$ "):
        command, _, shown = step.replace("\\\n", " ").partition("\n")
        yield command, shown


def test_commands_that_are_not_run_have_options_that_exist():
    checked = 0
    for page in PAGES:
        for block in re.findall(r"```(?:bash|console)\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True)
                if words and words[0].removeprefix(".venv/bin/") == "walkback":
                    _parse(words[1:])
                    checked += 1
    assert checked > 15


def _parse(words: list[str]) -> argparse.Namespace:
    module = COMMANDS.module(words[0])
    parser = Parser(prog=words[0])
    module.add_arguments(parser)
    return parser.parse_args(words[1:])


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_link_targets_of_a_page_exist(page):
    for target in re.findall(r"\]\(([\w./-]+)\)|\{(?:figure|literalinclude)\} ([\w./-]+)", page.read_text()):
        assert (page.parent / "".join(target)).exists(), f"{page.name} links to {''.join(target)}"


def test_the_pages_of_diagnostics_have_all_their_parts():
    pages = sorted(page for page in (DOCS / "diagnostics").glob("*.md") if page.name != "index.md")
    for page in pages:
        assert set(re.findall(r"\{\{ explain\.(\w+) \}\}", page.read_text())) <= set(CHECKS.names())
        for part in ("$$", "```{figure}", "## Where the threshold", "mislead", "## An example", "prints"):
            assert part in page.read_text(), f"{page.name} lacks {part}"
        assert f"diagnostics/{page.stem}\n" in (DOCS / "index.md").read_text()


def test_threshold_texts_of_checks_name_the_default():
    """The pages and `walkback explain` show these texts of the checks, which name a field and its default."""
    thresholds = DiagnosticThresholds()
    for entry in CHECKS.entries():
        for field, default in re.findall(r"(?:under|above) (\w+) \(([\d.e-]+)", entry.facts["Threshold"]):
            assert float(default) == getattr(thresholds, field)


def test_the_tables_of_diagnose_have_the_thresholds_of_the_code():
    t = DiagnosticThresholds()
    limits = re.findall(r"^\|[^|]*\|.*\| [<>] ([\d.e-]+)", (DOCS / "diagnose.md").read_text(), re.MULTILINE)
    expected = [t.h_norm_explosion_ratio, t.g_norm_floor, t.stability_drift_ceiling, t.frozen_acc_margin_pp]
    assert [float(limit) for limit in limits] == [*expected, t.concentration]


def test_numbers_in_formulas_are_those_of_the_code():
    page = (DOCS / "diagnostics" / "functional.md").read_text()
    for text in (
        f"K = {DIRECTIONS}",
        rf"10^{{{round(_power(STEP))}}}",
        f"{NUDGE:.0%} of",
        f"{NUDGE} \\lVert",
        f"under {CONTROL}",
    ):
        assert text in page
    assert f"drawn anew {FRESH_DRAWS} times" in (DOCS / "diagnostics" / "alignment.md").read_text()
    assert f"z_l \\ge {DiagnosticThresholds.null_z:g}" in (DOCS / "diagnostics" / "concentration.md").read_text()


def _power(value: float) -> float:
    from math import log10

    return log10(value)


def test_the_api_page_has_every_public_name():
    page = (DOCS / "api.md").read_text()
    for name in wb.__all__:
        kind = "autoclass" if inspect.isclass(getattr(wb, name)) else "autofunction"
        if not name.startswith("__") and not name.endswith("Error"):
            assert f".. {kind}:: walkback.{name}\n" in page
            assert f"`wb.{name}`" in page


def _pictures() -> dict[str, dict]:
    return json.loads((DOCS / "pictures" / "pictures.json").read_text())


def test_pictures_show_what_is_stored_beside_them():
    for name, figure in _pictures().items():
        drawn = (DOCS / "pictures" / f"{name}.svg").read_text()
        for plot in figure["plots"]:
            # An SVG escapes & and <; no title contains them.
            assert plot["title"] in drawn
            assert all(series["label"] in drawn for series in plot["series"])
            assert all(level in drawn for level in plot["levels"])
    assert {path.stem for path in (DOCS / "pictures").glob("*.svg")} == set(_pictures())


@pytest.mark.slow
def test_pictures_can_be_computed_again():
    spec = importlib.util.spec_from_file_location("draw", DOCS / "draw.py")
    draw = importlib.util.module_from_spec(spec)
    sys.modules["draw"] = draw
    spec.loader.exec_module(draw)
    again, stored = {figure.name: figure.to_json() for figure in draw.figures()}, _pictures()
    assert again.keys() == stored.keys()
    for name, figure in stored.items():
        assert NUMBER.sub("#", again[name]["caption"]) == NUMBER.sub("#", figure["caption"])
        for plot, other in zip(figure["plots"], again[name]["plots"], strict=True):
            assert {**plot, "series": ()} == {**json.loads(json.dumps(other)), "series": ()}
            for series, same_series in zip(plot["series"], other["series"], strict=True):
                _compare(series, same_series)


def _compare(stored: dict, again: dict) -> None:
    # At this learning rate backprop is chaotic: different rounding leads to a different network, whose curves are near
    # but not the same. Direct feedback alignment, whose weights follow fixed directions, is reproduced closely.
    ratio, cosine = (0.3, 0.25) if stored["label"] == "BP" else (0.02, 0.01)
    assert stored["label"] == again["label"]
    for name in ("x", "y", "low", "high"):
        # A cosine near zero has no relative error; a series of tiny norms has no absolute one.
        slack = cosine if max(map(abs, stored[name]), default=0) > 0.01 else 0.0
        assert again[name] == pytest.approx(stored[name], rel=ratio, abs=slack)


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_loads_nothing_from_the_network(tmp_path):
    words = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(tmp_path / "trees")]
    done = subprocess.run(
        [sys.executable, *words, str(DOCS), str(tmp_path / "html")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "html").rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        text = page.read_text()
        assert not re.search(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//', text), page
        assert not re.search(r'<link[^>]* rel="stylesheet"[^>]* href="(?:https?:)?//', text), page
        assert "{{" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL), page


def test_the_methods_in_the_readme_have_their_citation_and_file():
    text = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*) \| \[(\w+\.py)\]\((.*)\) \|$", text, re.MULTILINE)
    assert rows
    entries = {entry.name: entry for entry in RULES.entries()}
    for name, citation, file, path in rows:
        assert citation == entries[name].facts["Citation"]
        assert file == f"{name}.py"
        assert (ROOT / path).is_file()


def test_commands_on_the_pages_exist():
    for page in PAGES:
        for name in re.findall(r"`(?:\.venv/bin/)?walkback (\w+)", page.read_text()):
            assert name in COMMANDS.names(), f"{page.name} names `walkback {name}`"


def test_the_version_is_the_same_everywhere():
    assert f"version: {__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {__version__} (" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.slow
def test_the_readme_shows_the_table_the_demo_prints(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "walkback", "demo", "--quiet"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    # In every digit: the demo shows only what is the same on every processor.
    assert f"```text\n{done.stdout}```" in (ROOT / "README.md").read_text()

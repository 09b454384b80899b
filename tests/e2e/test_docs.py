"""Test that the README and the documentation are true: their code runs and prints what they show.

Blocks on the pages are executed: `python` each in its own folder, `console` line by line, all of a page in one folder.
A block must print what the page shows: the same words, and numbers to a few percent, since another processor sums in
another order. `bash` is for commands that take hours or need data: only their options are checked.
"""

from __future__ import annotations

import argparse
import html
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
from types import ModuleType

import pytest

import walkback as wb
from committed import RESULTS
from walkback.cli.main import COMMANDS, Parser
from walkback.core.version import __version__
from walkback.judge.alignment_claim import ALIGNMENT_TABLE
from walkback.judge.alignment_facts import AlignmentFacts
from walkback.judge.checks import CHECKS
from walkback.judge.decision_table import matching_row
from walkback.judge.depth_claim import DEPTH_TABLE, DepthFacts
from walkback.judge.finite_steps import CONTROL
from walkback.judge.glossary import GLOSSARY
from walkback.judge.headline import HEADLINE_TABLE
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.measure.finite_steps import DIRECTIONS, NUDGE, STEP
from walkback.measure.snapshot import FRESH_DRAWS
from walkback.report.figure_text import typeset

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)]
PYTHON = r"(?:<!-- before\n((?:(?!-->).)*?)-->\n)?```python\n(.*?)```(?:\n\nprints\n\n```text\n(.*?)```)?"
"""What a page's code needs and does not show stands in a comment before it, which begins with `before`."""
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
    ("page", "before", "code", "shown"),
    [pytest.param(*each, marks=pytest.mark.slow if each[0] in LONG else (), id=each[0]) for each in BLOCKS],
)
def test_python_on_the_pages_runs(page, before, code, shown, tmp_path, monkeypatch, capsys):
    """Runs in this process, which has imported torch already: twenty imports of it would take most of the time."""
    monkeypatch.chdir(tmp_path)
    exec(compile(before + code, page, "exec"), {"__name__": "__main__"})
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
    found = re.findall(r"\]\(([\w./-]+)\)|\{(?:figure|literalinclude)\} ([\w./-]+)", page.read_text())
    targets = [page.parent / "".join(each) for each in found]
    missing = [os.path.relpath(target, ROOT) for target in targets if not target.exists()]
    absent = [] if RESULTS.is_dir() else [name for name in missing if Path(name).parts[0] == RESULTS.parent.name]
    assert sorted(missing) == sorted(absent), f"{page.name} links to what does not exist"


def _anchors(page: Path) -> list[str]:
    """The anchors of a page's headings, as GitHub and the site write them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_into_a_page_name_one_of_its_headings(page):
    for target, anchor in re.findall(r"\]\(([\w./-]*\.md)#([\w-]+)\)", page.read_text()):
        assert anchor in _anchors(page.parent / target), f"{page.name} links to {target}#{anchor}"


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
            texts = (plot["title"], *(series["label"] for series in plot["series"]), *plot["levels"], *plot["ticks"])
            assert all(typeset(text) in drawn for text in texts)
    assert {path.stem for path in (DOCS / "pictures").glob("*.svg")} == set(_pictures())


def _script(name: str) -> ModuleType:
    """A program of docs/, imported."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def test_flow_charts_have_every_row_of_the_judges_tables():
    charts = {chart.name: chart for chart in _script("draw_verdicts").CHARTS}
    tables = {"headline": HEADLINE_TABLE, "depth": DEPTH_TABLE, "alignment": ALIGNMENT_TABLE}
    for name, table in tables.items():
        assert sorted(charts[name].rows) == sorted(row.id for row in table)
    facts = {"depth": DepthFacts(frozen=True), "alignment": AlignmentFacts(frozen=True)}
    for name, fact in facts.items():
        first = charts[name].steps[0]
        assert matching_row(tables[name], fact).id == first.rows[0]
        assert matching_row(tables[name], fact).result(fact).shown == first.answers[0].outcome


def test_drawn_flow_charts_are_those_of_the_script():
    draw = _script("draw_verdicts")
    for chart in draw.CHARTS:
        assert (DOCS / "static" / f"verdict-{chart.name}.svg").read_text("utf-8") == draw.draw(chart)


def _cells() -> list[dict]:
    notebook = json.loads((DOCS / "tutorial.ipynb").read_text("utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _printed(outputs: list[dict]) -> str:
    return "".join("".join(each["text"]) for each in outputs if each["output_type"] == "stream")


def test_the_tutorial_compiles_and_has_its_outputs():
    cells = _cells()
    for cell in cells:
        code = "".join(line for line in cell["source"] if not line.startswith("%"))
        compile(code, "tutorial", "exec")
        assert not [each for each in cell["outputs"] if each["output_type"] == "error"]
        for path in (str(ROOT), str(Path.home()), str(Path(sys.prefix)), "site-packages", "/tmp/"):
            assert path not in json.dumps(cell["outputs"])
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    shown = {kind for cell in cells for each in cell["outputs"] for kind in each.get("data", {})}
    assert {"image/png", "text/html"} <= shown


@pytest.mark.slow
def test_the_tutorial_runs_and_prints_what_it_stores():
    program = (
        "import json, sys, nbformat; from run_tutorial import TUTORIAL, executed; "
        "json.dump(executed(nbformat.read(TUTORIAL, 4)), sys.stdout)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=DOCS, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    again = [cell for cell in json.loads(done.stdout)["cells"] if cell["cell_type"] == "code"]
    for cell, other in zip(_cells(), again, strict=True):
        assert same(_printed(cell["outputs"]), _printed(other["outputs"])), _printed(other["outputs"])


@pytest.mark.slow
def test_pictures_can_be_computed_again():
    draw = _script("draw")
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
    glossary, gallery = (
        html.unescape((tmp_path / "html" / f"{name}.html").read_text("utf-8")) for name in ("glossary", "gallery")
    )
    assert all(f"<strong>{term}</strong>" in glossary for term in GLOSSARY)
    assert all(path.name in gallery for path in (ROOT / "results" / "paper").glob("*/*.svg"))
    for page in pages:
        text = page.read_text()
        assert not re.search(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//', text), page
        assert not re.search(r'<link[^>]* rel="stylesheet"[^>]* href="(?:https?:)?//', text), page
        assert "{{" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL), page


def test_commands_on_the_pages_exist():
    for page in PAGES:
        for name in re.findall(r"`(?:\.venv/bin/)?walkback (\w+)", page.read_text()):
            assert name in COMMANDS.names(), f"{page.name} names `walkback {name}`"


def test_the_architecture_page_names_files_that_exist():
    files = [path.as_posix() for folder in ("src", "docs", "tests") for path in (ROOT / folder).rglob("*.py")]
    named = set(re.findall(r"[\w/]+\.py\b", (DOCS / "architecture.md").read_text()))
    assert len(named) > 40
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []


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

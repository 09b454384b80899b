"""A study's files: distinguishable drawings, the same cells in every format, a page that fits the screen."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import page_tables
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import browser
from walkback.report.cells import Cell
from walkback.report.columns import LINE, fitting
from walkback.report.figure_styles import LINE_STYLES, line_styles_of
from walkback.report.figures import draw
from walkback.report.study_pages import save_study_report, study_page, table_latex, table_markdown
from walkback.report.study_report import CellGrid, Figure, Finding, Plot, Series, StudyReport, Table

NAN, INF = float("nan"), float("inf")
NASTY = "<b>a_b</b> 50% & #1 {x} \\y $z$ ~^ |h| [i] --é"


def curve(label, values=(0.1, 0.2, 0.4), **given):
    return Series(label, range(len(values)), values, **given)


def figure(*plots, **given):
    return Figure(given.pop("name", "curves"), "Curves", plots, "n = 2 seeds, ddof = 1", **given)


def plot(*series, **given):
    return Plot("Title", "epoch", "accuracy", series, **given)


MANY = figure(
    plot(*(curve(name) for name in LINE_STYLES), *(curve(f"other {n}", mark="both") for n in range(20))),
    plot(curve("other 3"), curve("DFA", (1e-9, 1e-3, 2.0)), y_log=True, levels={"floor": 1e-7}, events=((1.0, "D1"),)),
    plot(*(curve(f"bar {n}", mark="bars", low=(0, 0, 0), high=(1, 1, 1)) for n in range(3)), ticks=("a", "b", "c")),
    CellGrid("Verdicts", ("S0", "S1"), ("BP", "DFA"), (("trustworthy", "walked_back"), ("inconclusive", "stop"))),
)
ROWS = (
    (
        Cell("DFA"),
        Cell("0.31 ± 0.02", 0.31),
        Cell("INVALID", None, "the reference is noise"),
        Cell("walked back (D1, D2)"),
    ),
    (Cell(NASTY), Cell("1e-9", 1e-9), Cell("+0.12", 0.12), Cell("‖g_L‖ ≥ 5 × Γ → ρ")),
)
NARROW = Table(
    "narrow",
    "A small table",
    ("method", "accuracy", "aggregate cosine Γ", "verdict"),
    ROWS,
    "n = 2, ddof = 1",
    ("Note.",),
)
WIDE = Table(
    "wide",
    "A table with many columns",
    tuple(f"column {n} ‖h‖" for n in range(22)),
    tuple(
        tuple(Cell(f"word{n} {'of several words ' * (n % 3)}{row}.{n:03d}e-10") for n in range(22)) for row in range(3)
    ),
    "n = 2, ddof = 1",
)
LONG = Table(
    "long",
    "A table with sentences",
    ("method", "why"),
    ((Cell("dfa:scale=unit_error,site=input,penalty=0.01,penalty_reduction=mean"), Cell("because of this " * 30)),),
    "n = 2, ddof = 1",
)
REPORT = StudyReport(
    "mini",
    f"Title {NASTY}",
    "Which question?",
    (
        Finding("holds", "It holds.", True, "Yes."),
        Finding("open", "It is open.", None, "Who knows."),
        Finding("fails", NASTY, False, "No."),
    ),
    (NARROW, WIDE, LONG),
    (MANY, figure(plot(curve("BP")), name="second")),
    ("Scale smoke.",),
    ("run_a", "dfa-scale=unit_error+site=input_<i>_s1"),
    ("walkback study mini --scale smoke",),
)


class TestDrawings:
    @pytest.mark.parametrize("form", ["svg", "pdf"])
    def test_the_same_values_give_the_same_bytes(self, form):
        assert draw(MANY, form) == draw(MANY, form)
        other = figure(plot(curve("BP", (0.1, 0.2, 0.41))))
        assert draw(other, form) != draw(figure(plot(curve("BP"))), form)

    def test_a_drawing_is_self_contained(self):
        text = draw(MANY, "svg").decode()
        root = ElementTree.fromstring(text)
        spaces = re.findall(r'xmlns(?::\w+)?="[^"]+"', text)
        for space in spaces:
            text = text.replace(space, "")
        assert "http" not in text
        assert "DOCTYPE" not in text
        references = [value for element in root.iter() for key, value in element.items() if key.endswith("href")]
        assert references
        assert all(value.startswith("#") for value in references)
        assert not [element for element in root.iter() if element.tag.endswith(("image", "script"))]
        assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", text))

    def test_text_is_stored_as_text_and_large_enough(self):
        texts = [e for e in ElementTree.fromstring(draw(MANY, "svg")).iter() if e.tag.endswith("}text")]
        words = {element.text for element in texts}
        assert {"Title", "epoch", "accuracy", "floor", "D1", "DFA", "✗ walked back"} <= words
        texts = [inner for element in texts for inner in (list(element) or [element])]
        sizes = [float(re.search(r"font(?:-size)?:[^;]*?([\d.]+)px", element.get("style"))[1]) for element in texts]
        assert len(sizes) > 40
        assert min(sizes) >= 6

    def test_series_are_distinguishable_without_colour(self):
        styles = line_styles_of(MANY)
        assert len(styles) == len(LINE_STYLES) + 20 + 3
        assert len({(style.dash, style.marker) for style in styles.values()}) == len(styles)
        bars = [styles[f"bar {n}"].hatch for n in range(3)]
        assert len(set(bars)) == 3

    def test_a_method_has_the_same_style_in_every_figure(self):
        alone, last = line_styles_of(figure(plot(curve("DFA")))), line_styles_of(figure(plot(curve("x"), curve("DFA"))))
        assert (alone["DFA"].colour, alone["DFA"].dash, alone["DFA"].marker) == LINE_STYLES["DFA"]
        assert (last["DFA"].colour, last["DFA"].dash, last["DFA"].marker) == LINE_STYLES["DFA"]
        shared = line_styles_of(figure(plot(curve("DFA"), curve("DFA, λ = 1", style="DFA"))))
        assert shared["DFA"].colour == shared["DFA, λ = 1"].colour
        assert (shared["DFA"].dash, shared["DFA"].marker) != (shared["DFA, λ = 1"].dash, shared["DFA, λ = 1"].marker)

    def test_a_label_has_one_style_in_all_plots(self):
        """The legend shows it once."""
        both = figure(plot(curve("a"), curve("b")), plot(curve("b"), curve("a")))
        strokes = re.findall(r"stroke: (#\w{6})", draw(both, "svg").decode())
        styles = line_styles_of(both)
        assert {styles["a"].colour.lower(), styles["b"].colour.lower()} <= set(strokes)
        assert styles == line_styles_of(figure(plot(curve("a"), curve("b"))))

    @pytest.mark.parametrize("log", [False, True])
    @pytest.mark.parametrize(
        "values",
        [(), (None, None), (NAN, INF, -INF), (0.0, -1.0), (None, 0.5, NAN), (1e-300, 1e300)],
        ids=["empty", "none", "not finite", "not positive", "one", "far apart"],
    )
    def test_a_plot_without_values_is_drawn_with_a_note(self, values, log):
        marks = ("line", "points", "both", "bars")
        drawn = [curve("DFA", values, mark=mark, low=values, high=values) for mark in marks]
        lines = {"levels": {"zero": 0.0, "none": NAN}, "events": ((0.0, "start"), (NAN, "x"))}
        plots = [plot(series, y_log=log, x_log=log, **lines) for series in drawn]
        assert b"nothing to draw" in draw(figure(*plots, plot()), "svg")

    def test_no_plots_at_all(self):
        assert draw(figure(), "svg").startswith(b"<?xml")
        assert draw(figure(CellGrid("empty", (), (), ())), "pdf").startswith(b"%PDF")


class TestTables:
    @pytest.mark.parametrize("table", [NARROW, WIDE, LONG], ids=lambda table: table.name)
    def test_every_format_holds_the_same_cells(self, table):
        wanted = [[cell.text for cell in row] for row in table.rows]
        page = study_page(StudyReport("s", "t", "q", (), (table,), ()), {})
        squeezed = [[" ".join(text.split()) for text in row] for row in wanted]
        assert self.rows("md", f"## {table.title}\n{table_markdown(table)}", table) == squeezed
        assert self.rows("html", page, table) == wanted
        assert self.rows("tex", table_latex(table), table) == squeezed
        study_report = json.loads(json.dumps(StudyReport("s", "t", "q", (), (table,), ()).to_json(), allow_nan=False))
        assert [[cell["text"] for cell in row] for row in study_report["tables"][0]["rows"]] == wanted
        assert [[cell["value"] for cell in row] for row in study_report["tables"][0]["rows"]] == [
            [cell.value for cell in row] for row in table.rows
        ]

    def rows(self, form, source, table):
        found = [rows for title, rows in page_tables.read(form, source).items() if title.startswith(table.title)]
        # Each piece of a split table begins with the first column.
        return [[*first, *(cell for piece in rest for cell in piece[1:])] for first, *rest in zip(*found, strict=True)]

    def test_reasons_and_notes_are_in_every_format(self):
        page = study_page(StudyReport("s", "t", "q", (), (NARROW,), ()), {})
        for text in (page, table_markdown(NARROW), table_latex(NARROW)):
            assert "the reference is noise" in text
            assert "Note." in text
            assert "n = 2, ddof = 1" in text

    def test_numbers_that_are_not_finite_are_null(self):
        table = Table("t", "T", ("a",), ((Cell("inf", INF),),), "c")
        drawn = figure(plot(curve("DFA", (NAN, 1.0, None))))
        stored = json.dumps(StudyReport("s", "t", "q", (), (table,), (drawn,)).to_json(), allow_nan=False)
        assert json.loads(stored)["tables"][0]["rows"][0][0]["value"] is None
        assert json.loads(stored)["figures"][0]["plots"][0]["series"][0]["y"] == [None, 1.0, None]

    @settings(max_examples=60, deadline=None)
    @given(
        st.integers(1, 18).flatmap(
            lambda n: st.lists(st.lists(st.text("ab 0.", max_size=60), min_size=n, max_size=n), min_size=1, max_size=4)
        )
    )
    def test_every_column_occurs_once_and_fits(self, table):
        heads, *rows = table
        pieces = fitting(heads, rows)
        assert [column for columns, _ in pieces for column in columns[1:]] == list(range(1, len(heads)))
        assert all(columns[0] == 0 for columns, _ in pieces)
        for columns, layout in pieces:
            widths = [float(width) for width in re.findall(r"p\{([\d.]+)\\linewidth\}", layout)]
            assert len(widths) in (0, len(columns))
            words = [max((len(word) for row in table for word in row[c].split()), default=0) for c in columns]
            if sum(words) + 2 * len(words) <= LINE:
                assert sum(widths) <= 1

    def test_latex_compiles_and_fits_the_page(self, tmp_path):
        if shutil.which("pdflatex") is None:
            pytest.skip("no pdflatex on this machine, so no table was compiled")
        head = "\\documentclass{article}\\usepackage{array,booktabs}\\usepackage[T1]{fontenc}\\begin{document}\n"
        body = "\n".join(table_latex(table) for table in (NARROW, WIDE, LONG))
        (tmp_path / "paper.tex").write_text(f"{head}{body}\\end{{document}}\n")
        line = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull" not in done.stdout, re.findall(r"Overfull.*", done.stdout)
        assert "U+" not in body


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    written = save_study_report(REPORT, folder)
    assert all(path.is_file() for path in written)
    return folder / "index.html"


@pytest.fixture(scope="module")
def chromium():
    program = browser.browser_path()
    if program is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(browser.NAMES)} was found")
    with browser.Browser(program) as opened:
        yield opened


class TestPage:
    def test_ids_are_unique(self, page):
        ids = re.findall(r'\sid="([^"]+)"', page.read_text())
        assert len(ids) > 20
        assert len(set(ids)) == len(ids)
        used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', page.read_text()))
        assert used <= set(ids)

    def test_runs_with_special_characters_are_linked(self, page):
        link = "../runs/dfa-scale%3Dunit_error%2Bsite%3Dinput_%3Ci%3E_s1/run.json"
        assert f'<a href="{link}">dfa-scale=unit_error+site=input_&lt;i&gt;_s1</a>' in page.read_text()
        shown = r"dfa-scale=unit\_error+site=input\_\<i\>\_s1"
        assert f"- [{shown}]({link})" in page.with_name("study.md").read_text().splitlines()

    def test_markup_is_escaped(self, page):
        assert "<b>a_b</b>" not in page.read_text()
        assert page.with_name("study.md").read_text().count("\\<b\\>") >= 2

    @pytest.mark.parametrize("width", [1280, 375])
    def test_it_logs_nothing_requests_nothing_and_fits(self, chromium, page, width):
        chromium.open(page, width=width)
        assert chromium.events_of("Runtime.consoleAPICalled") == []
        assert chromium.events_of("Runtime.exceptionThrown") == []
        assert chromium.events_of("Log.entryAdded") == []
        assert [asked["request"]["url"] for asked in chromium.events_of("Network.requestWillBeSent")] == [page.as_uri()]
        assert chromium.js("document.documentElement.scrollWidth") == width
        # Text stays readable: a drawing too wide for the window is scrolled, not shrunk.
        smallest = chromium.js(
            "Math.min(...[...document.querySelectorAll('svg text')].map(t => parseFloat(getComputedStyle(t).fontSize)"
            " * t.ownerSVGElement.getBoundingClientRect().width / t.ownerSVGElement.viewBox.baseVal.width))"
        )
        assert smallest >= 6

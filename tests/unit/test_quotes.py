"""Quotations: between two marks of a page stands what a stored study says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkback.cli.main import main
from walkback.core.errors import InputError
from walkback_papers.quotes import fill


def cell(text):
    return {"text": text, "value": None, "reason": ""}


ROWS = [["BP", "0.58", "trustworthy"], ["DFA", "0.31 ± 0.02", "walked back"], ["DFA", "0.40", "trustworthy"]]
STORY = {
    "name": "audit",
    "findings": [
        {"claim": "DFA is walked back.", "holds": True, "said": "Verdict: D1."},
        {"claim": "FA_x passes.", "holds": None, "said": "One seed."},
    ],
    "tables": [
        {
            "name": "all",
            "heads": ["method", "accuracy", "three"],
            "rows": [[cell(text) for text in row] for row in ROWS],
            "caption": "n = 3.",
        }
    ],
    "figures": [{"name": "layers", "title": "Every layer"}],
}


def study_report_of(name):
    assert name == "audit"
    return STORY


def quoted(what, old=""):
    page = fill(f"before <!-- quote {what} -->{old}<!-- /quote --> after", study_report_of, "../results")
    assert page.startswith(f"before <!-- quote {what} -->")
    assert page.endswith("<!-- /quote --> after")
    return page.partition("-->")[2].partition("<!-- /quote")[0]


@pytest.mark.parametrize("old", ["", "0.99", "\nseveral\n\nlines | of -- <b>things</b>\n"])
def test_a_cell(old):
    assert quoted('audit/all row="BP" column="accuracy"', old) == "0.58"


def test_a_table_and_a_part_of_it():
    whole = quoted("audit/all").strip().splitlines()
    assert whole[0] == "| method | accuracy | three |"
    assert len(whole) == 2 + len(ROWS) + 2
    assert whole[-1] == "n = 3."
    part = quoted('audit/all rows="DFA" columns="three; method"').strip().splitlines()
    assert part[0] == "| three | method |"
    assert part[2:4] == ["| walked back | DFA |", "| trustworthy | DFA |"]


def test_a_finding_says_whether_it_holds_and_nothing_in_it_becomes_markup():
    assert quoted("audit#1") == "\n  DFA is walked back. **Holds**: Verdict: D1."
    assert quoted("audit#2") == "\n  FA\\_x passes. **Not decided here**: One seed."


@pytest.mark.parametrize("before", ["", "words\n", "- ", "* ", "> "])
def test_a_cell_that_would_make_html_of_its_line_is_refused(before):
    cell = '<!-- quote audit/all row="BP" column="accuracy" --><!-- /quote -->'
    with pytest.raises(InputError, match=r"begins a line.*Write a word before it"):
        fill(before + cell, study_report_of, "r")
    assert fill(f"{before}It is {cell}", study_report_of, "r").count("0.58") == 1


@pytest.mark.parametrize("what", ["audit#1", "audit/all"])
def test_a_finding_and_a_table_are_markdown_where_they_begin_a_line(what):
    """With the parser of the documentation."""
    from markdown_it import MarkdownIt

    shown = MarkdownIt().enable("table").render(fill(f"- <!-- quote {what} --><!-- /quote -->", study_report_of, "r"))
    assert "<strong>Holds</strong>" in shown if what == "audit#1" else "<td>BP</td>" in shown


def test_rows_and_columns_are_asked_of_the_table_where_a_figure_has_its_name():
    study_report = {**STORY, "figures": [{"name": "all", "title": "All of them"}]}
    said = fill('<!-- quote audit/all columns="method" --><!-- /quote -->', lambda name: study_report, "out")
    assert "| BP |" in said
    assert "![All of them]" in fill("<!-- quote audit/all --><!-- /quote -->", lambda name: study_report, "out")


def test_a_figure_is_linked_below_the_results():
    assert quoted("audit/layers").strip() == "![Every layer](../results/audit/layers.svg)"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ('audit/all row="BP" column="acuracy"', "Unknown column 'acuracy'. Did you mean 'accuracy'?"),
        ('audit/all row="BQ" column="three"', "Unknown row 'BQ'"),
        ('audit/all row="DFA" column="three"', "means 2 rows"),
        ('audit/all rows="XX"', "Unknown row 'XX'"),
        ('audit/all row="BP" columns="three"', "Unknown setting of the quotation"),
        ("audit/al", "Unknown table or figure 'al'. Did you mean 'all'?"),
        ("audit#3", "has 2 findings; there is no number 3"),
        ("audit", "cannot be read. Write STUDY/TABLE"),
        ("audit/all rows", "cannot be read. Write STUDY/TABLE"),
        ('audit/all rows="a', "cannot be read: No closing quotation"),
    ],
)
def test_mistakes_get_a_sentence(what, said):
    with pytest.raises(InputError, match=said.replace(".", r"\.").replace("(", r"\(")):
        quoted(what)


def test_a_quotation_without_an_end_is_refused():
    with pytest.raises(InputError, match="has no end"):
        fill("a <!-- quote audit#1 --> b", study_report_of, "r")


@given(st.text(), st.text())
def test_what_is_not_quoted_stays_and_filling_again_changes_nothing(before, after):
    page = f"{before}<!-- quote audit#1 --><!-- /quote -->{after}"
    if page.count("<!--") != 2:
        return
    once = fill(page, study_report_of, "r")
    assert once.startswith(before)
    assert once.endswith(after)
    assert fill(once, study_report_of, "r") == once


class TestCommand:
    @pytest.fixture
    def results(self, tmp_path):
        (tmp_path / "results" / "audit").mkdir(parents=True)
        (tmp_path / "results" / "audit" / "study.json").write_text(json.dumps(STORY))
        return tmp_path / "results"

    def test_it_writes_checks_and_leaves_alone(self, results, tmp_path, capsys):
        page = tmp_path / "docs" / "page.md"
        page.parent.mkdir()
        page.write_text("see <!-- quote audit/layers --><!-- /quote -->\n")
        line = ["quote", str(page), "--results", str(results)]
        assert main([*line, "--check"]) == 1
        assert "not what the stored results give" in capsys.readouterr().err
        assert main(line) == 0
        assert "![Every layer](../results/audit/layers.svg)" in page.read_text()
        assert main([*line, "--check"]) == 0
        assert main(line) == 0
        assert "up to date" in capsys.readouterr().out

    def test_one_bad_page_and_none_is_written(self, results, tmp_path, capsys):
        good, bad = tmp_path / "good.md", tmp_path / "bad.md"
        good.write_text("<!-- quote audit#1 --><!-- /quote -->")
        bad.write_text("<!-- quote audt#1 --><!-- /quote -->")
        assert main(["quote", str(good), str(bad), "--results", str(results)]) == 3
        assert "bad.md: Unknown study 'audt'. Did you mean 'audit'?" in capsys.readouterr().err
        assert good.read_text() == "<!-- quote audit#1 --><!-- /quote -->"

    def test_no_results(self, tmp_path, capsys):
        page = tmp_path / "page.md"
        page.write_text("<!-- quote audit#1 --><!-- /quote -->")
        assert main(["quote", str(page), "--results", str(tmp_path)]) == 3
        assert "There are no studies in" in capsys.readouterr().err


def test_a_page_that_is_no_text_gets_a_sentence_and_stays(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_bytes(b"caf\xe9")
    assert main(["quote", str(page), "--results", str(tmp_path)]) == 3
    assert "not UTF-8 text" in capsys.readouterr().err
    assert page.read_bytes() == b"caf\xe9"

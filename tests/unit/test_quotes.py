"""Quotations: the text between two marks of a page is copied from a stored study."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkback.cli.main import main
from walkback.core.errors import InputError
from walkback_papers.quotes import fill_quotations


def cell(text):
    return {"text": text, "value": None, "reason": ""}


ROWS = [["BP", "0.58", "trustworthy"], ["DFA", "0.31 ± 0.02", "walked back"], ["DFA", "0.40", "trustworthy"]]
STUDY = {
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


def load_study(name):
    assert name == "audit"
    return STUDY


def quoted(what, old=""):
    page = fill_quotations(f"before <!-- quote {what} -->{old}<!-- /quote --> after", load_study, "../results")
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


def test_a_finding_states_whether_it_holds_and_its_markup_is_escaped():
    assert quoted("audit#1") == "\n  DFA is walked back. **Holds**: Verdict: D1."
    assert quoted("audit#2") == "\n  FA\\_x passes. **Not decided here**: One seed."


@pytest.mark.parametrize("before", ["", "words\n", "- ", "* ", "> "])
def test_a_cell_at_the_start_of_a_line_is_refused(before):
    cell = '<!-- quote audit/all row="BP" column="accuracy" --><!-- /quote -->'
    with pytest.raises(InputError, match=r"audit/all.*begins a line"):
        fill_quotations(before + cell, load_study, "r")
    assert fill_quotations(f"{before}It is {cell}", load_study, "r").count("0.58") == 1


@pytest.mark.parametrize("what", ["audit#1", "audit/all"])
def test_a_finding_and_a_table_render_at_the_start_of_a_line(what):
    """With the Markdown parser of the documentation."""
    from markdown_it import MarkdownIt

    shown = (
        MarkdownIt().enable("table").render(fill_quotations(f"- <!-- quote {what} --><!-- /quote -->", load_study, "r"))
    )
    assert "<strong>Holds</strong>" in shown if what == "audit#1" else "<td>BP</td>" in shown


def test_rows_and_columns_select_the_table_if_a_figure_has_the_same_name():
    study = {**STUDY, "figures": [{"name": "all", "title": "All of them"}]}
    filled = fill_quotations('<!-- quote audit/all columns="method" --><!-- /quote -->', lambda name: study, "out")
    assert "| BP |" in filled
    assert "![All of them]" in fill_quotations("<!-- quote audit/all --><!-- /quote -->", lambda name: study, "out")


def test_a_figure_is_linked_below_the_results():
    assert quoted("audit/layers").strip() == "![Every layer](../results/audit/layers.svg)"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ('audit/all row="BP" column="acuracy"', "column 'acuracy'.*'accuracy'"),
        ('audit/all row="BQ" column="three"', "row 'BQ'"),
        ('audit/all row="DFA" column="three"', "2 rows"),
        ('audit/all rows="XX"', "row 'XX'"),
        ('audit/all row="BP" columns="three"', "columns"),
        ("audit/al", "table or figure 'al'.*'all'"),
        ("audit#3", "2 findings.*3"),
        ("audit", "'audit'.*STUDY/TABLE"),
        ("audit/all rows", "'audit/all rows'.*STUDY/TABLE"),
        ('audit/all rows="a', "No closing quotation"),
    ],
)
def test_mistakes_are_input_errors(what, message):
    with pytest.raises(InputError, match=message):
        quoted(what)


def test_a_quotation_without_an_end_is_refused():
    with pytest.raises(InputError, match="<!-- /quote -->"):
        fill_quotations("a <!-- quote audit#1 --> b", load_study, "r")


@given(st.text(), st.text())
def test_text_outside_quotations_is_kept_and_filling_again_changes_nothing(before, after):
    page = f"{before}<!-- quote audit#1 --><!-- /quote -->{after}"
    if page.count("<!--") != 2:
        return
    once = fill_quotations(page, load_study, "r")
    assert once.startswith(before)
    assert once.endswith(after)
    assert fill_quotations(once, load_study, "r") == once


class TestCommand:
    @pytest.fixture
    def results(self, tmp_path):
        (tmp_path / "results" / "audit").mkdir(parents=True)
        (tmp_path / "results" / "audit" / "study.json").write_text(json.dumps(STUDY))
        return tmp_path / "results"

    def test_it_writes_and_checks_pages(self, results, tmp_path, capsys):
        page = tmp_path / "docs" / "page.md"
        page.parent.mkdir()
        page.write_text("see <!-- quote audit/layers --><!-- /quote -->\n")
        line = ["quote", str(page), "--results", str(results)]
        assert main([*line, "--check"]) == 1
        assert str(page) in capsys.readouterr().err
        assert main(line) == 0
        assert "![Every layer](../results/audit/layers.svg)" in page.read_text()
        assert main([*line, "--check"]) == 0
        assert main(line) == 0
        assert "up to date" in capsys.readouterr().out

    def test_if_one_page_is_bad_none_is_written(self, results, tmp_path, capsys):
        good, bad = tmp_path / "good.md", tmp_path / "bad.md"
        good.write_text("<!-- quote audit#1 --><!-- /quote -->")
        bad.write_text("<!-- quote audt#1 --><!-- /quote -->")
        assert main(["quote", str(good), str(bad), "--results", str(results)]) == 3
        message = capsys.readouterr().err
        assert all(part in message for part in ("bad.md", "'audt'", "'audit'"))
        assert good.read_text() == "<!-- quote audit#1 --><!-- /quote -->"

    def test_no_results(self, tmp_path, capsys):
        page = tmp_path / "page.md"
        page.write_text("<!-- quote audit#1 --><!-- /quote -->")
        assert main(["quote", str(page), "--results", str(tmp_path)]) == 3
        assert f"`walkback study all --out {tmp_path}`" in capsys.readouterr().err


def test_a_page_that_is_not_utf_8_is_refused_and_kept(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_bytes(b"caf\xe9")
    assert main(["quote", str(page), "--results", str(tmp_path)]) == 3
    assert "not UTF-8 text" in capsys.readouterr().err
    assert page.read_bytes() == b"caf\xe9"

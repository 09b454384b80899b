"""The index of a folder: every card and audit in it, verdict first, written by `walkback render`."""

from __future__ import annotations

import json

import fake_audit
import page_tables
import pytest
from fake_measurements import ALL

from walkback.auditing.audit_files import write_overview
from walkback.cli.main import main
from walkback.judge.audit_table import make_audit_table
from walkback.judge.report import judge
from walkback.report.index_page import GENERATOR

WORDS = {"walked_back": "✗ needs walk-back", "trustworthy": "✓ trustworthy", "inconclusive": "? inconclusive"}
ORDER = ["walked_back", "inconclusive", "trustworthy"]


def write_card(folder, report):
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(report.to_json()))
    return report


@pytest.fixture
def runs(tmp_path):
    """A folder of three runs whose methods have markup in their names and links."""
    cases = {"a&b": "healthy", "<i>c": "exploded", "d": "no credit"}
    for name, case in cases.items():
        evidence = fake_audit.BAD if case == "exploded" else fake_audit.GOOD
        claimed = ("depth",) if case == "healthy" else ("alignment", "depth")
        write_card(
            tmp_path / "runs" / name.strip("<>"),
            judge(ALL[case](), evidence, method_name=name, context={"seed": 1}, claimed=claimed),
        )
    return tmp_path / "runs"


def rows_of(page):
    return page_tables.read("html", page.read_text())[""]


def test_runs_are_listed_worst_first_with_links_to_their_pages(runs, capsys):
    assert main(["render", str(runs)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(runs / "index.html")
    rows = rows_of(runs / "index.html")
    cards = [json.loads(path.read_text()) for path in runs.glob("*/report.json")]
    found = {card["claim"]["method"]: card for card in cards}
    assert {row[1] for row in rows} == set(found)
    ranks = [ORDER.index(found[row[1]]["verdict"]) for row in rows]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) > 1
    for verdict, method, seed, place, accuracy, margin in rows:
        card = found[method]
        assert verdict == WORDS[card["verdict"]]
        assert seed == "1"
        assert " on " in place
        mean = 100 * sum(card["claim"]["headline_acc"]) / len(card["claim"]["headline_acc"])
        assert accuracy == f"{mean:.1f} %"
        assert margin.startswith(f"{card['statistics']['mean']:+.1f} pp [")
    for name in runs.iterdir():
        if name.is_dir():
            assert (
                f'href="{name.name.replace("&", "%26")}/report.html"'.replace("<", "%3C").replace(">", "%3E")
                in (runs / "index.html").read_text()
            )


def test_an_index_is_written_again_but_no_foreign_page_is_replaced(runs, capsys):
    assert main(["render", str(runs)]) == 0
    assert main(["render", str(runs)]) == 0
    (runs / "index.html").write_text("<h1>mine</h1>")
    assert main(["render", str(runs)]) == 3
    assert str(runs / "index.html") in capsys.readouterr().err
    assert (runs / "index.html").read_text() == "<h1>mine</h1>"


@pytest.mark.parametrize("words", [["--format", "md"], ["--out", "elsewhere"]])
def test_no_index_is_written_without_pages_to_link_to(runs, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["render", str(runs), *words]) == 0
    assert not (runs / "index.html").exists()


def test_a_folder_of_audits_and_studies_lists_their_methods_and_pages(tmp_path, capsys):
    audit = tmp_path / "all" / "first audit"
    audit.mkdir(parents=True)
    table = make_audit_table([report.to_json() for report in fake_audit.reports(3)])
    write_overview(table, audit, audit)
    (tmp_path / "all" / "a study").mkdir()
    (tmp_path / "all" / "a study" / "index.html").write_text("<h1>A study</h1>")
    assert main(["render", str(tmp_path / "all")]) == 0
    index = tmp_path / "all" / "index.html"
    assert GENERATOR in index.read_text()
    verdicts = {row[1]: row[0] for row in rows_of(index)}
    assert verdicts == {row.method: WORDS[row.rulings["claims"].outcome] for row in table.rows}
    assert all("first audit" in row[3] for row in rows_of(index))
    assert 'href="first%20audit/audit.html"' in index.read_text()
    assert 'href="a%20study/index.html"' in index.read_text()
    # An audit has its own page and gets no index.
    assert not (audit / "index.html").exists()

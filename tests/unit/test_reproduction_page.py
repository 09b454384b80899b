"""The reproduction page, which compares ours with every published figure, and the command that writes it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from planted import PlantedRuns

from walkback.cli.main import main
from walkback.report.markdown import markdown_escape
from walkback.training.resolved_run import resolve
from walkback_papers.published.figure import figures
from walkback_papers.published.page import page, row_ranges, summary
from walkback_papers.published.reproduce import OUTCOMES, Reproduced, reproduce_figures
from walkback_papers.results import Results
from walkback_papers.run_studies import studies_of
from walkback_papers.scale import METHODS, PAPER, SMOKE


@pytest.fixture(scope="module")
def whole(planted_runs):
    return reproduce_figures(planted_runs.results(), SMOKE)


# The page


def table_rows(text: str) -> dict[str, list[str]]:
    """Cells of the page's rows by their number."""
    lines = [line for line in text.splitlines() if re.match(r"\| \d+\.\d+ \|", line)]
    return {
        cells[0]: cells[1:] for cells in ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
    }


def test_the_page_states_the_training_time(planted_runs, whole):
    text = page(whole, planted_runs.folder.parent, planted_runs.folder.parent / "page.md")
    runs = len(list(planted_runs.folder.iterdir()))  # A second each.
    assert re.search(rf"Training took.*: {runs} runs {runs / 60:.0f} minutes on cpu: planted", text)
    without_runs = replace(whole, training={})
    assert "Training took" not in page(without_runs, planted_runs.folder.parent, planted_runs.folder.parent / "page.md")


def test_the_page_shows_the_stored_numbers(planted_runs, whole):
    rows = table_rows(page(whole, planted_runs.folder.parent, planted_runs.folder.parent / "page.md"))
    numbered = {f"{n}.{m}": r for n, part in enumerate(whole.parts, 1) for m, r in enumerate(part.rows, 1)}
    assert list(rows) == list(numbered)
    for name, found in numbered.items():
        what, published, ours, off, outcome, study = rows[name]
        assert what == markdown_escape(found.figure.what)
        assert published.startswith(markdown_escape(found.figure.text))
        assert published.endswith(markdown_escape(f"[{found.figure.source}]"))
        assert ours == (markdown_escape(found.found.ours) or "–")
        assert found.outcome in outcome
        assert ("calibration" in outcome) == (bool(found.figure.calibration) and found.figure.kind != "setting")
        assert ("×8" in off) == (found.figure.batch == 1024 and bool(found.found.off))
        assert study == f'<a href="{found.figure.study}/study.md">{found.figure.study}</a>'
    # Read directly from the runs' records, bypassing the code under test.
    seeds = [json.loads(path.read_text())["result"]["test_acc"] for path in _records(planted_runs, METHODS["DFA"])]
    shown = f"{np.mean(seeds):.3f} ± {np.std(seeds, ddof=1):.3f}"
    assert ["DFA, test accuracy", r"0.306 ± 0.006 \[P1\]", shown] in [cells[:3] for cells in rows.values()]


def _records(planted_runs: PlantedRuns, method: str) -> list[Path]:
    return [planted_runs.folder / resolve(config).name / "run.json" for config in SMOKE.runs([method])]


def test_the_counts_in_the_summary_add_up(whole):
    rows = whole.rows
    total, *parts, fitted, taken, neither, distinct, always, ever, rest = map(int, re.findall(r"\d+", summary(rows)))
    assert total == len(rows) == sum(parts)
    assert parts == [sum(r.outcome == word for r in rows) for word in OUTCOMES]
    assert distinct == always + ever + rest < total
    assert distinct == len({r.figure.quantity for r in rows})
    agreeing = [r.figure for r in rows if r.outcome == "agrees"]
    assert taken == sum(figure.kind == "setting" for figure in agreeing) > 0
    assert fitted == sum(figure.kind != "setting" and bool(figure.calibration) for figure in agreeing) > 0
    assert fitted + taken + neither == parts[0]
    assert min(parts) > 0


def test_every_row_is_not_measured_without_runs(tmp_path):
    (tmp_path / "runs").mkdir()
    whole = reproduce_figures(Results(tmp_path / "runs"), PAPER)
    assert {found.outcome for found in whole.rows} == {"not measured"}
    assert all(found.found.reason for found in whole.rows)
    text = page(whole, tmp_path, tmp_path / "page.md")
    assert len(table_rows(text)) == len(figures())
    assert "`walkback study penalty-sweep --scale paper --out" in text
    assert "no finished runs bp\\_resmlp\\_cifar10\\_s42" in text
    for run in whole.runs:
        assert f"`{run}`" in text


def test_markup_in_cells_is_escaped(whole):
    """In the figure, in our value and in the results' folder."""
    (part, *_), wild = whole.parts, "a|b *c* [d] <e>"
    (first, *_) = part.rows
    figure = replace(first.figure, what=wild, text=wild, calibration=wild, kind="setting", note="")
    row = replace(first, figure=figure, found=Reproduced("agrees", ours=wild, off=wild), trials=())
    small = replace(whole, parts=(replace(part, rows=(row,)),))
    (line,) = [line for line in page(small, Path("my | results"), Path("page.md")).splitlines() if "| 1.1 |" in line]
    plain = markdown_escape(wild)
    assert plain == r"a\|b \*c\* \[d\] \<e\>"
    what, published, ours, off, outcome, study = re.split(r"(?<!\\) \| ", line.removesuffix(" |"))[1:]
    assert (what, ours, off, outcome) == (plain, plain, plain, f"agrees ({plain})")
    assert published.startswith(plain)
    assert study == f'<a href="my%20%7C%20results/{figure.study}/study.md">{figure.study}</a>'


def test_rows_that_differ_list_what_was_tested(planted_runs, whole):
    text = page(whole, planted_runs.folder.parent, planted_runs.folder.parent / "page.md")
    assert re.search(r"\n- 2\.\d+: The error's scale, the size of B, .* Fitted to it: the recipe's error scale", text)
    assert "  - sensitivity, raw error: not run" in text
    assert re.search(r"\n- [\d., to]+: Nothing has been tested to explain it\.", text)
    assert row_ranges(["2.1", "2.4", "2.5", "2.6", "2.9", "2.10"]) == "2.1, 2.4 to 2.6, 2.9, 2.10"


# The command


@pytest.fixture
def here(planted_runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(planted_runs.folder.parent)
    return ["reproduction", "--results", "results", "--scale", "smoke", "--out", "docs/reproduction.md"]


def test_the_command_writes_the_page_and_checks_whether_it_is_up_to_date(here, capsys, tmp_path):
    out = tmp_path / "docs" / "reproduction.md"
    assert main(here) == 0
    text = out.read_text()
    status, counts = capsys.readouterr().out.splitlines()
    assert status == "docs/reproduction.md: written"
    assert f"**{counts}**" in text
    assert '<a href="../results/primary-audit/study.md">' in text
    assert str(tmp_path) not in text
    assert main([*here, "--check"]) == 0  # A second page is byte-identical.
    other = text.replace("0.320", "0.306")
    assert other != text
    out.write_text(other)
    capsys.readouterr()
    assert main([*here, "--check"]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert out.read_text() == other


def test_the_command_prints_rows_as_json(here, capsys, tmp_path):
    assert main([*here, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [found["id"] for found in rows] == list(figures())
    by = {found["id"]: found for found in rows}
    assert by["primary-audit/dfa-accuracy@P1"]["values"] == pytest.approx([0.30, 0.34])
    assert not (tmp_path / "docs").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--results", "nowhere"],
            r"nowhere/runs.*`walkback study all --scale smoke --out nowhere`",
        ),
        (["--check"], r"docs/reproduction\.md.*--check"),
        (["--check", "--json"], r"--check and --json"),
        (["--scale", "large"], r"argument --scale: invalid choice: 'large'"),
        (["--out", "mine.txt/page.md"], r"Could not create mine\.txt"),
    ],
)
def test_the_command_refuses_bad_input(here, capsys, tmp_path, words, sentence):
    (tmp_path / "mine.txt").write_text("mine")
    assert main([*here, *words]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.search(sentence, printed.err)
    assert not (tmp_path / "docs").exists()


@pytest.mark.slow
def test_a_page_of_real_runs_is_reproducible(tmp_path, monkeypatch):
    """Runs are trained and measured at smoke scale, then the page is made twice."""
    from walkback.runs.train_runs import ProgressListener, TrainOptions
    from walkback_papers.run_studies import run_studies

    monkeypatch.chdir(tmp_path)
    done = run_studies(
        studies_of(["fresh-b-null"]), SMOKE, TrainOptions(out=Path("results"), device="cpu"), ProgressListener()
    )
    assert done.unfinished == 0
    words = ["reproduction", "--results", "results", "--scale", "smoke", "--out", "docs/reproduction.md"]
    assert main(words) == 0
    assert main([*words, "--check"]) == 0
    rows = {found.figure.id: found for found in reproduce_figures(Results(Path("results/runs")), SMOKE).rows}
    study_report = json.loads(Path("results/fresh-b-null/study.json").read_text())
    published = [
        r for r in study_report["tables"][0]["rows"] if r[0]["text"] == "0.01" and r[2]["text"].startswith("published")
    ]
    own = rows["penalty/fresh-own@P2"].found
    assert own.outcome != "not measured"
    assert [f"{value:+.3f}" for value in own.values] == [r[3]["text"] for r in published]
    fresh = rows["penalty/fresh@P1"].found
    assert [f"{value:+.3f}" for value in fresh.values] == [r[4]["text"] for r in published]

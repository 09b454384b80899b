"""What a notebook shows of a report and of an audit, and the rows of their data frames."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import fake_audit
import pytest
from fake_measurements import ALL

import walkback
from walkback.auditing.audit import Audit
from walkback.core.errors import InputError
from walkback.judge.audit_table import make_audit_table
from walkback.judge.report import judge
from walkback.report.audit_page.sentence import audit_sentence
from walkback.report.notebook import layer_rows, method_rows
from walkback.runs.store import Run


class Texts(HTMLParser):
    """The texts of a page, and whether it has a script."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.texts.append(data.strip())


def parsed(page: str) -> Texts:
    found = Texts()
    found.feed(page)
    return found


@pytest.fixture(scope="module")
def audit() -> Audit:
    table = make_audit_table([report.to_json() for report in fake_audit.reports()])
    return Audit(Path("out"), (), table)


@pytest.mark.parametrize("method", list(fake_audit.MADE))
def test_a_report_shows_its_verdict_its_claims_and_a_picture(method):
    report = fake_audit.report(method, 1)
    shown = parsed(report._repr_html_())
    text = " ".join(shown.texts)
    assert report.verdict.split("_")[0][:4] in text.replace("needs walk-back", "walked")
    for claim in report.claims.values():
        assert f"{claim.question} {claim.shown}" in text
    assert shown.tags.count("svg") == 1
    assert len(repr(report).splitlines()) == 1
    assert method in repr(report)


def test_a_name_cannot_put_markup_into_the_page(audit):
    name = "<script>alert(1)</script><b>"
    report = judge(ALL["healthy"](), method_name=name)
    assert "script" not in parsed(report._repr_html_()).tags
    table = make_audit_table([report.to_json()])
    assert "script" not in parsed(Audit(Path("<script>"), (), table)._repr_html_()).tags


def test_an_audit_shows_every_method_with_its_reasons(audit):
    text = " ".join(parsed(audit._repr_html_()).texts)
    for row in audit.table.rows:
        assert row.method in text
        for claim in row.claims.values():
            if claim.outcome == "walked_back":
                assert claim.shown in text
    assert (
        repr(audit)
        == f"<Audit in out: {len(fake_audit.MADE)} methods, 0 runs; {audit.table.verdict.replace('_', ' ')}>"
    )


def test_an_audit_has_a_picture_and_a_sentence(audit):
    shown = parsed(audit._repr_html_())
    assert shown.tags.count("svg") == 1
    assert audit_sentence(audit.table) in " ".join(shown.texts)
    accuracies, cosines = audit.plot().axes[:2]
    # Three marks for each method that has accuracies: its own and those of both frozen baselines.
    assert [list(line.get_ydata()) for line in accuracies.lines[:1]] == [[0.615, 0.615, 0.305, 0.615, 0.615, 0.615]]
    blocks = {len(card["blocks"]) for row in audit.table.rows for card in row.cards if card.get("blocks")}
    curves = [line for line in cosines.lines if {len(line.get_xdata())} == blocks]
    assert len(curves) == sum(any(card.get("blocks") for card in row.cards) for row in audit.table.rows)
    assert audit.to_dict() == audit.table.to_json()


@pytest.fixture
def run(tmp_path):
    """A run of three epochs, written by hand."""
    (tmp_path / "a run").mkdir()
    record = {"method": "<b>fa", "seed": 3, "status": "done", "result": {"test_acc": 0.51, "epochs": 3}}
    found = Run(tmp_path / "a run", record)
    for epoch in (1, 2, 3):
        rest = {"growth": 1.5, "grad_top": 0.1}
        found.append_log({"epoch": epoch, "loss": 1 / epoch, "test_acc": 0.2 * epoch, **rest, "hidden": [1, 2]})
    return found


def test_a_run_shows_its_curves_and_is_one_line(run, monkeypatch):
    assert repr(run) == "<Run a run: <b>fa, seed 3, done, test acc 0.510>"
    shown = parsed(run._repr_html_())
    assert shown.tags.count("svg") == 1
    assert "test acc 0.510" in " ".join(shown.texts)
    assert "&lt;b&gt;fa" in run._repr_html_()
    loss, accuracy, growth = run.plot().axes[:3]
    assert list(loss.lines[0].get_ydata()) == [1, 1 / 2, 1 / 3]
    assert list(accuracy.lines[0].get_ydata()) == pytest.approx([0.2, 0.4, 0.6])
    assert list(growth.lines[0].get_ydata()) == [1.5] * 3
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows: rows))
    rest = {"growth": 1.5, "grad_top": 0.1}
    assert run.to_frame()[2] == {"epoch": 3, "loss": 1 / 3, "test_acc": pytest.approx(0.6), **rest}
    assert run.to_dict() == run.record


def test_a_run_without_a_log_has_no_picture(tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "train.jsonl").write_text("")
    record = {"method": "fa", "seed": 3, "status": "unfinished", "result": None}
    assert "svg" not in parsed(Run(tmp_path / "new", record)._repr_html_()).tags


def test_only_public_names_are_listed():
    assert set(dir(walkback)) - {"__version__"} == {name for name in dir(walkback) if name[0] != "_"}
    assert {"diagnose", "audit", "Run"} <= set(dir(walkback))
    assert not {"Any", "TYPE_CHECKING", "core", "api"} & set(dir(walkback))


def test_an_unfinished_audit_says_so():
    unfinished = Audit(Path("out"), (SimpleNamespace(status="unfinished"),), None)
    assert "1 of 1" in unfinished._repr_html_()
    assert "unfinished" in repr(unfinished)
    with pytest.raises(InputError, match="1 of 1"):
        unfinished.plot()


def test_the_picture_has_the_numbers_of_the_report():
    report = fake_audit.report("fa", 1)
    canvas = report.plot()
    (norms, *_), used = canvas.axes, canvas.axes[-1]
    expected = [layer.hidden_norm.known for layer in report.quantities.layers]
    assert list(norms.lines[0].get_ydata()) == expected
    assert list(used.lines[0].get_ydata()) == [block.used_cos.known for block in report.quantities.blocks]


def test_rows_have_usable_numbers_only(audit):
    rows = layer_rows(fake_audit.report("kp", 1))
    # The reference of this seed is noise at the last two layers.
    assert [row["credit_cos"] is None for row in rows] == [row["direction"] != "valid" for row in rows]
    assert {row["direction"] for row in rows} == {"valid", "noise"}
    found = {row["method"]: row for row in method_rows(audit.table)}
    assert found["fa"]["D3"] == pytest.approx(26.0)
    assert found["bp"]["accuracy"] == pytest.approx(0.615)
    assert found["mine"]["accuracy"] is None


def test_a_data_frame_has_these_rows(monkeypatch, audit):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows: rows))
    assert audit.to_frame() == method_rows(audit.table)
    report = fake_audit.report("fa", 1)
    assert report.to_frame() == layer_rows(report)
    assert report.to_dict() == report.to_json()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pip install pandas"):
        audit.to_frame()

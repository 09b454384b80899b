"""One command from methods to verdicts: baselines trained along, cards and an overview written."""

from __future__ import annotations

import json

import pytest
import torch

import walkback as wb
from walkback.cli.main import main

SIZES = ["--arch", "resmlp:d=16,depth=2", "--data", "prototypes:train=640,test=1024", "--epochs", "2"]


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    out = tmp_path_factory.mktemp("audit") / "runs"
    code = main(["audit", "--methods", "bp", "dfa", *SIZES, "--seeds", "1", "2", "--out", str(out), "--quiet"])
    return out, code


def test_every_baseline_is_trained_once_and_every_method_has_its_card(audited):
    out, code = audited
    table = json.loads((out / "audit.json").read_text())
    runs = {path.parent.name.rpartition("_")[0] for path in out.glob("*/run.json")}
    ending = "_resmlp_prototypes_s"
    methods = ("bp", "bp-shell=bp", "dfa", "dfa-shell=method")
    assert runs == {f"{method}{ending}{seed}" for method in methods for seed in (1, 2)}
    assert [(row["method"], row["seeds"]) for row in table["rows"]] == [("bp", [1, 2]), ("dfa", [1, 2])]
    assert code == {"trustworthy": 0, "walked_back": 1, "inconclusive": 2}[table["verdict"]]
    for row in table["rows"]:
        for card in row["cards"]:
            folder = out / card["provenance"]["run"]
            assert json.loads((folder / "report.json").read_text()) == card
            assert all((folder / f"report.{form}").exists() for form in ("html", "md", "tex"))
            assert len(card["claim"]["headline_acc"]) == 2
            assert set(card["claim"]["frozen"]) == {"method_shell", "bp_shell"}
            assert card["claim"]["bp_acc"]
            assert "[TODO]" not in [answer["answer"] for answer in card["checklist"]]


def test_the_overview_links_to_every_card(audited):
    out, _ = audited
    page = (out / "audit.html").read_text()
    for card in out.glob("*/report.html"):
        assert f'href="{card.parent.name.replace("=", "%3D").replace("+", "%2B")}/report.html"' in page


def test_a_second_audit_goes_on_only_when_asked_and_trains_nothing_again(audited, capsys):
    out, code = audited
    words = ["audit", "--methods", "bp", "dfa", *SIZES, "--seeds", "1", "2", "--out", str(out)]
    assert main(words) == 3
    assert "Add --resume" in capsys.readouterr().err
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/model.safetensors")}
    assert main([*words, "--resume", "--json"]) == code
    shown = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in shown["rows"]] == ["bp", "dfa"]
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/model.safetensors")} == before


def test_other_thresholds_decide_and_are_said(audited, capsys):
    out, _ = audited
    words = ["audit", "--methods", "bp", *SIZES, "--seeds", "1", "2", "--out", str(out), "--resume", "--quiet"]
    assert main([*words, "--threshold", "frozen_acc_margin_pp=99"]) == 1
    shown = capsys.readouterr().out
    assert "NEEDS WALK-BACK (D3)" in shown
    assert "walked back: no margin" in shown


def test_a_stopped_audit_is_unfinished_and_judges_nothing(tmp_path, capsys):
    words = ["audit", "--methods", "bp", *SIZES, "--out", str(tmp_path / "runs"), "--max-seconds", "1e-9"]
    assert main(words) == 2
    assert "unfinished" in capsys.readouterr().err
    assert not list(tmp_path.glob("**/report.json"))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--methods", "dfa:shell=method"], "an audit adds those itself"),
        (["--methods", "dff"], "Did you mean 'dfa'"),
        (["--methods", "bp", "bp"], "asked for twice"),
        (["--methods", "bp", "--threshold", "confidence=2"], "confidence is 2.0"),
    ],
)
def test_mistakes_get_a_sentence_and_leave_nothing(tmp_path, capsys, words, sentence):
    assert main(["audit", *words, *SIZES, "--out", str(tmp_path / "runs")]) == 3
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_own_tensors_are_audited_from_python(tmp_path):
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(1600, 6, generator=draws)
    data = wb.tensors(x[:512], (x[:512, 0] > 0).long(), x[512:], (x[512:, 0] > 0).long())
    found = wb.audit("fa", data=data, arch="resmlp:d=8,depth=2", epochs=2, seeds=[1, 2], out=tmp_path, batch=64)
    (row,) = found.panel.rows
    assert row.method == "fa"
    assert len(row.cards) == 2
    assert "fa" in str(found)

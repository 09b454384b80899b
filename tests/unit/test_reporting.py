"""The reporting template: every number from the card, every unknown left open, the same words in every format."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from fake_measurements import ALL
from page_tables import read, untex

import walkback
from walkback.cli.main import main
from walkback.judge.card import seal
from walkback.judge.evidence import Evidence
from walkback.judge.report import judge
from walkback.report.cards import view
from walkback.report.reporting import SENTENCES, reported_methods, reporting

SEEDS = Evidence.of([0.61, 0.62, 0.60], {"method_shell": [0.35, 0.35, 0.34], "bp_shell": 0.42}, [0.6, 0.6, 0.6])
CONFIG = {"epochs": 12, "batch": 64, "lr": 0.003, "weight_decay": 0.01, "augment": "none", "seed": 1}
KNOWN = {
    "arch": "resmlp:d=8_%&",
    "data": "cifar10",
    "digest": "3552bc907d78bea24cf445f10143debd93400cc63cfc2c099b56fb85ebd06764",
    "seed": 1,
    "provenance": {"config": CONFIG},
    "one_pass": "yes: one frozen pass",
    "rule_state": "yes, from rule.safetensors",
    "weights": "yes, those after epoch 12 of 12",
    "rerun": "walkback diagnose runs/dfa",
}


def card_of(case="exploded", evidence=SEEDS, context=KNOWN, **given):
    return judge(ALL[case](), evidence, method_name="DFA", context=context, **given).to_json()


def told(card):
    (method,) = reported_methods([card])
    return dict(method.sentences)


class TestSentences:
    def test_every_number_is_the_cards(self):
        card = card_of()
        said = told(card)
        s, m = card["statistics"], card["measured"]
        assert (
            said["Samples"]
            == f"{m['samples']} evaluation samples in {m['groups']} disjoint groups of 128, sha256 5a3e."
        )
        assert f"{s['mean']:+.2f} pp" in said["Statistics"]
        assert (
            f"[{s['interval'][0]:+.2f}, {s['interval'][1]:+.2f}] pp; 3 paired seeds, by seed, ddof = 1"
            in said["Statistics"]
        )
        assert "0.610 ± 0.010 (standard deviation, ddof = 1)" in said["Seeds"]
        assert "12 epochs, batch 64, AdamW with a cosine schedule, learning rate 0.003" in said["Training"]
        assert "@128" in said["Conventions"]
        assert said["Data"] == f"cifar10, sha256 {KNOWN['digest']}."
        assert "(method_shell) 0.347 ± 0.006" in said["Baselines"]
        assert "(bp_shell) 0.420;" in said["Baselines"]
        for edition in ("three", "four"):
            assert f"dition {edition}: needs walk-back ({card['verdicts'][edition]['sentence']})" in said["Verdicts"]
        assert card["hash"] in said["Tool"]

    def test_numbers_change_with_the_card(self):
        left, right = told(card_of("exploded")), told(card_of("healthy"))
        changed = {about for about in SENTENCES if left[about] != right[about]}
        assert {"Verdicts", "Checks", "Alignment", "Tool"} <= changed

    def test_aggregates_are_printed_as_on_the_card(self):
        card = card_of("healthy")
        shown = {row[0]: row[1] for row in view(card).section("aggregates").rows}
        for name in ("A1", "A2", "A3", "A4", "deep_mean"):
            assert f"{name} {shown[name]}" in told(card)["Alignment"]

    def test_what_may_not_be_used_is_not_printed_as_a_number(self):
        said = told(card_of("noise"))
        assert "A1 INVALID" in said["Alignment"]
        assert re.search(r"random rotations of the credit, z: INVALID \(.+\)", said["Nulls"])

    def test_the_unknown_stays_open(self):
        said = told(card_of(evidence=Evidence(), context={}))
        for about in ("Network", "Data", "Training", "Seeds", "Statistics", "Baselines", "Conventions"):
            assert "[TODO]" in said[about], about
        (method,) = reported_methods([card_of(evidence=Evidence(), context={})])
        answers = dict(method.checklist)
        assert answers["Final-epoch weights, never the best epoch on test data?"] == "[TODO]"
        assert method.unknown == sum(text.count("[TODO]") for _, text in (*method.sentences, *method.checklist)) > 8

    def test_the_known_is_not_open(self):
        (method,) = reported_methods([card_of()])
        open_places = [about for about, text in (*method.sentences, *method.checklist) if "[TODO]" in text]
        assert open_places == ["Seeds"]  # A bare list of accuracies does not say which seeds they are of.


class TestSeveral:
    def test_seeds_are_told_together_and_differences_by_seed(self):
        contexts = [KNOWN | {"seed": seed, "provenance": {"config": CONFIG | {"seed": seed}}} for seed in (1, 2)]
        cards = [
            card_of(case, context=context) for case, context in zip(("exploded", "healthy"), contexts, strict=True)
        ]
        (method,) = reported_methods(cards)
        said = dict(method.sentences)
        assert said["Data"].count("sha256") == 1
        assert re.match(
            r"Seed 1: Edition three: needs walk-back .* Seed 2: Edition three: trustworthy", said["Verdicts"]
        )
        assert method.cards == tuple(card["hash"] for card in cards)

    @pytest.mark.parametrize("other", [{"arch": "vit"}, {"provenance": {"config": CONFIG | {"lr": 0.1}}}])
    def test_another_network_or_recipe_is_another_method(self, other):
        assert len(reported_methods([card_of(), card_of(context=KNOWN | other)])) == 2

    def test_a_changed_card_is_refused(self):
        card = card_of()
        card["claim"]["headline_acc"] = [0.99, 0.99, 0.99]
        with pytest.raises(walkback.InputError, match="changed after it was written"):
            reported_methods([card])
        assert reported_methods([seal(card)])


class TestFormats:
    def test_all_hold_the_same_words(self):
        card = card_of()
        (method,) = reported_methods([card])
        (found,) = json.loads(reporting([card], "json"))
        assert tuple(found["how_we_measured"].items()) == method.sentences
        assert tuple((row["question"], row["answer"]) for row in found["checklist"]) == method.checklist
        rows = read("md", reporting([card], "md"))
        assert [tuple(row) for group in rows.values() for row in group] == [*method.sentences, *method.checklist]
        source = untex(reporting([card], "tex"))
        plain = reporting([card], "text")
        for about, text in (*method.sentences, *method.checklist):
            assert text in plain, about
            assert text in source, about

    def test_latex_compiles(self, tmp_path):
        if shutil.which("pdflatex") is None:
            pytest.skip("no pdflatex on this machine, so the template was not compiled")
        body = reporting([card_of(), card_of("noise", Evidence(), {})], "tex")
        head = "\\documentclass{article}\\usepackage[T1]{fontenc}\\begin{document}\n"
        (tmp_path / "paper.tex").write_text(f"{head}{body}\\end{{document}}\n")
        line = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        assert "Overfull" not in done.stdout


class TestCommand:
    @pytest.fixture
    def run(self, tmp_path):
        folder = tmp_path / "runs" / "dfa"
        folder.mkdir(parents=True)
        (folder / "report.json").write_text(json.dumps(card_of()))
        return folder

    def test_printed_or_written(self, run, tmp_path, capsys):
        assert main(["checklist", str(run)]) == 0
        printed = capsys.readouterr().out
        assert printed == reporting([card_of()], "text")
        assert "Checklist" in printed
        for form in ("md", "tex", "json"):
            target = tmp_path / "new" / f"measured.{form}"
            assert main(["checklist", str(run.parent), "--out", str(target)]) == 0
            assert target.read_text() == reporting([card_of()], form)
            assert capsys.readouterr().out == f"{target}\n"
        assert main(["checklist", str(run), "--format", "md"]) == 0
        assert capsys.readouterr().out == reporting([card_of()], "md")

    def test_the_same_run_twice_is_told_once(self, run, capsys):
        assert main(["checklist", str(run), str(run / "report.json"), "--format", "json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert len(found["cards"]) == 1

    def test_a_run_that_is_not_diagnosed(self, tmp_path, capsys):
        (found,) = walkback.train(
            "bp", data="prototypes:train=64,test=64", epochs=1, batch=32, arch="resmlp:d=8,depth=2", out=tmp_path
        )
        assert main(["checklist", found.path]) == 3
        said = capsys.readouterr().err
        assert f"There is no report.json in {found.path}. `walkback diagnose {found.path}` writes one" in said

    def test_no_such_folder(self, tmp_path, capsys):
        assert main(["checklist", str(tmp_path / "none")]) == 3
        assert "There is no file or folder" in capsys.readouterr().err

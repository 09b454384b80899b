"""The reporting text: every number from the card, every unknown marked [TODO], the same words in every format."""

from __future__ import annotations

import copy
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


def sentences_of(card):
    (method,) = reported_methods([card])
    return dict(method.sentences)


class TestSentences:
    def test_every_number_is_from_the_card(self):
        card = card_of()
        texts = sentences_of(card)
        s, m = card["statistics"], card["measured"]
        assert (
            texts["Samples"]
            == f"{m['samples']} evaluation samples in {m['groups']} disjoint groups of 128, sha256 5a3e."
        )
        assert f"{s['mean']:+.2f} pp" in texts["Statistics"]
        assert (
            f"[{s['interval'][0]:+.2f}, {s['interval'][1]:+.2f}] pp; 3 paired seeds, by seed, ddof = 1"
            in texts["Statistics"]
        )
        assert "0.610 ± 0.010 (standard deviation, ddof = 1)" in texts["Seeds"]
        assert "12 epochs, batch 64, AdamW with a cosine schedule, learning rate 0.003" in texts["Training"]
        assert "@128" in texts["Conventions"]
        assert texts["Data"] == f"cifar10, sha256 {KNOWN['digest']}."
        assert "(method_shell) 0.347 ± 0.006" in texts["Baselines"]
        assert "(bp_shell) 0.420;" in texts["Baselines"]
        for edition in ("three", "four"):
            assert f"dition {edition}: needs walk-back ({card['verdicts'][edition]['sentence']})" in texts["Verdicts"]
        assert card["hash"] in texts["Tool"]

    def test_numbers_change_with_the_card(self):
        left, right = sentences_of(card_of("exploded")), sentences_of(card_of("healthy"))
        changed = {subject for subject in SENTENCES if left[subject] != right[subject]}
        assert {"Verdicts", "Checks", "Alignment", "Tool"} <= changed

    def test_aggregates_are_printed_as_on_the_card(self):
        card = card_of("healthy")
        shown = {row[0]: row[1] for row in view(card).section("aggregates").rows}
        for name in ("A1", "A2", "A3", "A4", "deep_mean"):
            assert f"{name} {shown[name]}" in sentences_of(card)["Alignment"]

    def test_an_invalid_number_is_printed_as_a_word(self):
        texts = sentences_of(card_of("noise"))
        assert "A1 INVALID" in texts["Alignment"]
        assert re.search(r"random rotations .*z: INVALID \(.+\)", texts["Nulls"])

    def test_checks_are_shown_by_their_displayed_names_and_results(self):
        text = sentences_of(card_of())["Checks"]
        assert re.search(r"growth \(D1\) \S+ x \(fails if > 50\): fails;", text)
        assert re.search(r"drift \(c\) \S+ \(fails if > 0\.3\): passes;", text)

    def test_unknown_facts_are_marked_todo(self):
        texts = sentences_of(card_of(evidence=Evidence(), context={}))
        for subject in ("Network", "Data", "Training", "Seeds", "Statistics", "Baselines", "Conventions"):
            assert "[TODO]" in texts[subject], subject
        (method,) = reported_methods([card_of(evidence=Evidence(), context={})])
        answers = dict(method.checklist)
        assert answers["Final-epoch weights, never the best epoch on test data?"] == "[TODO]"
        assert method.unknown == sum(text.count("[TODO]") for _, text in (*method.sentences, *method.checklist)) > 8

    def test_known_facts_are_not_marked_todo(self):
        (method,) = reported_methods([card_of()])
        marked = [subject for subject, text in (*method.sentences, *method.checklist) if "[TODO]" in text]
        assert marked == ["Seeds"]  # A list of accuracies without seeds.


class TestSeveral:
    def test_seeds_share_sentences_that_are_equal_and_have_their_own_where_they_differ(self):
        contexts = [KNOWN | {"seed": seed, "provenance": {"config": CONFIG | {"seed": seed}}} for seed in (1, 2)]
        cards = [
            card_of(case, context=context) for case, context in zip(("exploded", "healthy"), contexts, strict=True)
        ]
        (method,) = reported_methods(cards)
        texts = dict(method.sentences)
        assert texts["Data"].count("sha256") == 1
        assert re.match(r"Seed 1: Edition claims: needs walk-back .* Seed 2: Edition claims: ", texts["Verdicts"])
        assert method.cards == tuple(card["hash"] for card in cards)

    @pytest.mark.parametrize("other", [{"arch": "vit"}, {"provenance": {"config": CONFIG | {"lr": 0.1}}}])
    def test_another_network_or_recipe_is_another_method(self, other):
        assert len(reported_methods([card_of(), card_of(context=KNOWN | other)])) == 2

    def test_a_changed_card_is_refused(self):
        card = copy.deepcopy(card_of())
        card["claim"]["headline_acc"] = [0.99, 0.99, 0.99]
        with pytest.raises(walkback.InputError, match="changed after it was written"):
            reported_methods([card])
        assert reported_methods([seal(card)])


class TestFormats:
    def test_every_format_has_the_same_words(self):
        card = card_of()
        (method,) = reported_methods([card])
        (found,) = json.loads(reporting([card], "json"))
        assert tuple(found["how_we_measured"].items()) == method.sentences
        assert tuple((row["question"], row["answer"]) for row in found["checklist"]) == method.checklist
        rows = read("md", reporting([card], "md"))
        assert [tuple(row) for group in rows.values() for row in group] == [*method.sentences, *method.checklist]
        source = untex(reporting([card], "tex"))
        plain = reporting([card], "text")
        for subject, text in (*method.sentences, *method.checklist):
            assert text in plain, subject
            assert text in source, subject

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

    def test_the_text_is_printed_or_written(self, run, tmp_path, capsys):
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

    def test_a_run_given_twice_is_reported_once(self, run, capsys):
        assert main(["checklist", str(run), str(run / "report.json"), "--format", "json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)
        assert len(found["cards"]) == 1

    def test_a_run_without_a_card_is_refused_with_the_remedy(self, tmp_path, capsys):
        (found,) = walkback.train(
            "bp", data="prototypes:train=64,test=64", epochs=1, batch=32, arch="resmlp:d=8,depth=2", out=tmp_path
        )
        assert main(["checklist", found.path]) == 3
        message = capsys.readouterr().err
        assert f"no report.json in {found.path}" in message
        assert f"`walkback diagnose {found.path}`" in message

    def test_a_missing_folder_is_refused(self, tmp_path, capsys):
        assert main(["checklist", str(tmp_path / "none")]) == 3
        message = capsys.readouterr().err
        assert "no file or folder" in message
        assert str(tmp_path / "none") in message

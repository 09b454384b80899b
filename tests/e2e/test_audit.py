"""`walkback audit`: methods and baselines are trained, measured and judged; cards and an overview are written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter

import pytest
import torch

import tiny
import walkback as wb
from walkback.auditing.audit import with_baselines
from walkback.auditing.diagnose_runs import evidence_of
from walkback.auditing.measure_run import RunMeasurer
from walkback.cli.main import main
from walkback.runs import store
from walkback.runs.run_index import RunIndex

SIZES = ["--arch", "resmlp:d=16,depth=2", "--data", "prototypes:train=640,test=1024", "--epochs", "2"]


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """An audit's folder and exit code, shared by the tests: they write into copies (`copied`) only."""
    out = tmp_path_factory.mktemp("audit") / "runs"
    code = main(["audit", "--methods", "bp", "dfa", *SIZES, "--seeds", "1", "2", "--out", str(out), "--quiet"])
    return out, code


@pytest.fixture
def copied(audited, tmp_path):
    out, _ = audited
    return shutil.copytree(out, tmp_path / "copy")


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


def test_runs_are_watched_and_end_where_they_are_measured(audited):
    out, _ = audited
    for row in json.loads((out / "audit.json").read_text())["rows"]:
        for card in row["cards"]:
            log = [
                json.loads(line) for line in (out / card["provenance"]["run"] / "train.jsonl").read_text().splitlines()
            ]
            assert [each["epoch"] for each in log] == [1, 2]
            values = {check["id"]: check["value"] for check in card["checks"]}
            assert log[-1]["growth"] == pytest.approx(values["D1"], rel=1e-4)
            assert log[-1]["grad_top"] == pytest.approx(values["D2"], rel=1e-3)
            assert f"epoch 2, seed {card['claim']['seed']}: {log[-1]['growth']:.3g}" in (out / "audit.html").read_text()


def test_the_pages_are_written_again_without_models_measurements_or_torch(audited, tmp_path):
    out, _ = audited
    pages = {form: (out / f"audit.{form}").read_bytes() for form in ("html", "md", "tex", "json")}
    again = tmp_path / "again"
    shutil.copytree(out, again)
    for pattern in ("*/*.safetensors", "*/measurements.npz", "audit.html", "audit.md", "audit.tex"):
        for path in again.glob(pattern):
            path.unlink()
    code = (
        "import sys; from walkback.cli.main import main\n"
        "code = main(sys.argv[1:]); sys.exit(code or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, "render", str(again)], check=False).returncode == 0
    assert {form: (again / f"audit.{form}").read_bytes() for form in pages} == pages


def test_the_overview_elsewhere_links_to_the_cards_there(audited, tmp_path, capsys):
    out, _ = audited
    assert main(["render", str(out), "--format", "html", "--out", str(tmp_path / "there")]) == 0
    assert str(tmp_path / "there" / "audit.html") in capsys.readouterr().out.splitlines()
    page = (tmp_path / "there" / "audit.html").read_text()
    cards = [path for path in (tmp_path / "there").glob("*.html") if path.name != "audit.html"]
    assert len(cards) == 4
    for card in cards:
        assert f'href="{card.name.replace("=", "%3D").replace("+", "%2B")}"' in page


def test_a_run_that_is_gone_or_was_not_watched_is_said_to_be(audited, tmp_path):
    out, _ = audited
    again = tmp_path / "again"
    shutil.copytree(out, again)
    gone, unwatched = sorted(again.glob("bp_*"))
    shutil.rmtree(gone)
    rows = [json.loads(line) for line in (unwatched / "train.jsonl").read_text().splitlines()]
    kept = [{name: row[name] for name in ("epoch", "loss", "test_acc")} for row in rows]
    (unwatched / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    tiny.remove_hashes(unwatched)
    assert main(["render", str(again)]) == 0
    page = (again / "audit.html").read_text()
    assert "not watched while training" in page
    assert "No training log: 1 of 2 seeds." in page


@pytest.mark.parametrize("text", ["[]", "{", '{"rows": [{}]}', '{"rows": [{"cards": [{}]}]}'])
def test_a_damaged_overview_is_refused(audited, tmp_path, text, capsys):
    out, _ = audited
    again = tmp_path / "again"
    shutil.copytree(out, again)
    (again / "audit.json").write_text(text)
    before = (again / "audit.html").read_bytes()
    assert main(["render", str(again)]) == 3
    assert capsys.readouterr().err
    assert (again / "audit.html").read_bytes() == before


def test_a_second_audit_resumes_only_when_asked_and_trains_nothing_again(audited, copied, capsys):
    out, code = copied, audited[1]
    words = ["audit", "--methods", "bp", "dfa", *SIZES, "--seeds", "1", "2", "--out", str(out)]
    assert main(words) == 3
    assert "Add --resume" in capsys.readouterr().err
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/model.safetensors")}
    assert main([*words, "--resume", "--json"]) == code
    shown = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in shown["rows"]] == ["bp", "dfa"]
    assert {path: path.stat().st_mtime_ns for path in out.glob("*/model.safetensors")} == before


def test_other_thresholds_decide_and_are_shown(copied, capsys):
    words = ["audit", "--methods", "bp", *SIZES, "--seeds", "1", "2", "--out", str(copied), "--resume", "--quiet"]
    threshold = ["--threshold", "frozen_acc_margin_pp=99"]
    assert main([*words, *threshold, "--protocol", "three"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("✗")
    assert "edition three: D3" in printed
    # By the claims backprop's own margin says whether depth is needed: a method is not walked back where it is not.
    assert main([*words, *threshold]) == 2
    assert "not informative" in capsys.readouterr().out


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
    (row,) = found.table.rows
    assert row.method == "fa"
    assert len(row.cards) == 2
    assert "fa" in str(found)


def test_a_run_is_resolved_once_and_no_card_of_this_process_is_read_back(tmp_path, monkeypatch):
    """An audit of four runs: dfa, its frozen baseline, backprop and backprop's frozen baseline."""
    from walkback.auditing import measure_run
    from walkback.core.configuration import RunConfig
    from walkback.judge import card as cards
    from walkback.training import resolved_run

    counts = Counter()

    def counted(name, function):
        def call(*words, **named):
            counts[name] += 1
            return function(*words, **named)

        return call

    for module in (resolved_run, measure_run):
        monkeypatch.setattr(module, "resolve", counted("resolve", module.resolve))
    monkeypatch.setattr(RunConfig, "digest", counted("digest", RunConfig.digest))
    # A card that is read is checked key by key.
    monkeypatch.setattr(cards, "check_schema", counted("parsed", cards.check_schema))
    sizes = {"arch": "resmlp:d=8,depth=2", "data": "prototypes:train=128,test=1024", "epochs": 1}
    found = wb.audit("dfa", out=tmp_path, **sizes)
    assert len(found.results) == 4
    assert str(found)
    assert counts["resolve"] <= 8
    assert counts["digest"] <= 12
    assert counts["parsed"] == 0


def test_with_baselines_an_oracle_and_its_frozen_baseline_are_added_where_they_are_not_there_yet():
    methods = [tiny.resolved("dfa:site=input"), tiny.resolved("dfa:scale=unit_error"), tiny.resolved("fa:penalty=0.1")]
    plain = {"bp", "bp:shell=bp", *(run.method for run in methods)}
    plain |= {"dfa:shell=method,site=input", "dfa:scale=unit_error,shell=method", "fa:shell=method"}
    exact = {"dfa:scale=unit_error,credit=exact", "dfa:scale=unit_error,shell=method,credit=exact", "bp:penalty=0.1"}
    directions = ("dfa:site=input", "dfa:scale=unit_error", "fa:penalty=0.1")
    shells = ("dfa:shell=method,site=input", "dfa:scale=unit_error,shell=method", "fa:shell=method")
    every = exact | {f"{method},credit=direction" for method in (*directions, *shells)}
    every |= {"bp:site=input", "bp:site=input,penalty=0.1"}
    for choice, expected in (("none", plain), ("exact", plain | exact), ("all", plain | every)):
        found = [run.method for run in with_baselines(methods, choice)]
        assert (sorted(found), found[:3]) == (sorted(expected), [run.method for run in methods])
    with pytest.raises(wb.InputError, match=r"Unknown oracle 'exat'.*'exact'"):
        with_baselines(methods, "exat")


@pytest.fixture(scope="module")
def with_oracles(tmp_path_factory):
    """An audit with all oracle controls, of a method whose error is normalised."""
    out = tmp_path_factory.mktemp("oracles") / "runs"
    words = ["--methods", "dfa:scale=unit_error,site=input", "--seeds", "1", "2", "--oracle", "all"]
    assert main(["audit", *words, *SIZES, "--out", str(out), "--quiet"]) in (0, 1, 2)
    return out


def evidence_in(folder, seed=1):
    (name,) = [path.parent.name for path in folder.glob(f"dfa-scale=unit_error+site=input_*_s{seed}_*/run.json")]
    measurer = RunMeasurer(None, torch.device("cpu"))
    run = store.open_run(folder / name)
    return evidence_of(measurer.resolved(run), "method_shell", RunIndex(folder), measurer.correct)


def test_the_evidence_has_the_accuracies_of_every_oracle_and_its_frozen_baseline(with_oracles):
    def accuracies(start):
        records = [json.loads(path.read_text()) for path in with_oracles.glob(f"{start}_resmlp_*/run.json")]
        assert len(records) == 2
        return tuple(record["result"]["test_acc"] for record in sorted(records, key=lambda record: record["seed"]))

    evidence = evidence_in(with_oracles)
    assert evidence.seeds == (1, 2)
    method = "dfa:scale=unit_error,site=input,credit="
    found = {kind: oracle.method for kind, oracle in evidence.oracles.items()}
    assert found == {"exact": f"{method}exact", "input": "bp:site=input", "direction": f"{method}direction"}
    assert evidence.oracles["input"].acc == accuracies("bp-site=input")
    assert evidence.oracles["input"].frozen_acc == accuracies("bp-shell=bp") == evidence.frozen["bp_shell"]
    for kind in ("exact", "direction"):
        name = "dfa-scale=unit_error{}+site=input+credit=" + kind
        assert evidence.oracles[kind].acc == accuracies(name.format(""))
        assert evidence.oracles[kind].frozen_acc == accuracies(name.format("+shell=method"))


def test_an_oracle_that_lacks_a_seed_is_left_out(with_oracles, tmp_path):
    folder = shutil.copytree(with_oracles, tmp_path / "copy")
    for pattern in ("*+credit=exact_*_s1_*", "*shell=method*credit=direction_*_s2_*"):
        (gone,) = [path for path in folder.glob(pattern) if "exact" not in pattern or "shell" not in path.name]
        shutil.rmtree(gone)
    evidence = evidence_in(folder)
    assert evidence.seeds == (1, 2)
    assert evidence.oracles.keys() == {"input"}


def test_by_default_an_audit_trains_the_exact_oracle(tmp_path):
    audit = wb.audit("dfa:scale=unit_error", arch="resmlp:d=8,depth=1", data=SIZES[3], epochs=1, out=tmp_path)
    assert {"dfa:scale=unit_error,credit=exact", "dfa:scale=unit_error,shell=method,credit=exact"} == {
        result.method for result in audit.results if "credit" in result.method
    }

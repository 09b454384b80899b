"""From a model to a verdict: the function, the reference package's names, and stored runs."""

from __future__ import annotations

import json
import shutil
import sys

import foreign_models
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import walkback as wb
from walkback.auditing.measure_run import RunMeasurer
from walkback.cli.main import main
from walkback.core.measurements import Measurements
from walkback.judge.checks import CHECKS
from walkback.judge.glossary import GLOSSARY


def batches(groups=8, seed=0):
    draws = torch.Generator().manual_seed(seed)
    return [(torch.randn(128, 6, generator=draws), torch.randint(4, (128,), generator=draws)) for _ in range(groups)]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return foreign_models.Reference()


def test_the_reference_packages_quick_start_runs_as_printed(model):
    from protocol import DiagnosticReport, diagnose
    from protocol.report import DiagnosticThresholds

    report = diagnose(
        model=model,
        eval_batches=batches(),
        headline_acc=0.306,
        frozen_baseline_acc=0.349,
        method_name="DFA",
        notes="4-block d=256 ResMLP, CIFAR-10",
    )
    assert isinstance(report, DiagnosticReport)
    assert report.protocol == "four"
    assert report.verdict == "walked_back"
    lines = str(report).splitlines()
    assert lines[0].startswith("VERDICT: needs walk-back: ")
    assert all(any(line.startswith(name) for line in lines) for name in ("D1", "D2", "direction", "D3"))
    custom = DiagnosticThresholds(
        g_norm_floor=1e-6, h_norm_explosion_ratio=20.0, stability_drift_ceiling=0.30, frozen_acc_margin_pp=-10.0
    )
    assert diagnose(model, batches(), 0.306, 0.349, thresholds=custom).verdict == "trustworthy"
    assert report.rejudge(custom).verdict == "trustworthy"
    skipped = diagnose(model=model, eval_batches=batches(), headline_acc=0.306, frozen_baseline_acc=None)
    assert skipped.verdict == "trustworthy"
    assert "depth utility not checked" in str(skipped)


def test_the_model_is_bit_identical_afterwards_and_nothing_is_trained(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    wb.diagnose(model, batches(), 0.5, 0.4)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_without_a_baseline_the_default_edition_is_inconclusive(model):
    report = wb.diagnose(model, batches())
    assert report.verdict == "inconclusive"
    assert report.flags["D3"].status == "missing"
    assert str(report).startswith("VERDICT: inconclusive: ")


def test_a_planted_explosion_with_a_collapsed_reference_is_walked_back(model):
    """Mode 1: the first block's branch grows by 1e9, and the terminal norm divides the gradient by it."""
    with torch.no_grad():
        for parameter in model.blocks[0].net[3].parameters():
            parameter.mul_(1e9)
    report = wb.diagnose(model, batches(), 0.6, 0.3, protocol="three")
    assert report.flags["D1"].status == "raised"
    assert report.flags["D1"].layer in (0, 1)
    assert report.flags["D2"].status == "raised"
    assert report.verdict == "walked_back"


def test_a_credit_is_measured_and_one_layer_carrying_it_all_is_seen(model):
    draws = torch.Generator().manual_seed(3)
    noise = [torch.randn(12, generator=draws) for _ in range(4)]

    def credit(seen):
        scale = [g.norm(dim=1, keepdim=True) for g in seen.reference]
        random = [s * n.to(s) for s, n in zip(scale, noise, strict=True)]
        return [seen.reference[0], *random[1:]]

    report = wb.diagnose(model, batches(), 0.6, 0.3, credit=credit)
    cosines = np.nanmean(report.measurements.arrays["credit_cos"], axis=1)
    assert cosines[0] == pytest.approx(1, abs=1e-9)
    assert np.abs(cosines[1:]).max() < 0.3
    assert report.flags["concentration"].layer == 0
    assert report.claims["alignment"].outcome not in ("stands", "detectable_small", "trivial")


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({"headline_acc": 30.6}, "not a percentage"),
        ({"headline_acc": [0.3, 0.4], "frozen_baseline_acc": [0.1, 0.2, 0.3]}, "paired"),
        ({"frozen_baseline_acc": {"shell": 0.3}}, "Unknown null 'shell'"),
        ({"null": "x"}, "Unknown null 'x'"),
        ({"protocol": "five"}, "five"),
        ({"eval_batches": []}, "No evaluation batches"),
        ({"eval_batches": [3]}, "expected a pair"),
        ({"model": "net.pt"}, "expected a torch.nn.Module"),
    ],
)
def test_mistakes_get_a_sentence(model, named, sentence):
    chosen = {"model": model, "eval_batches": batches(2), **named}
    with pytest.raises(wb.InputError, match=sentence):
        wb.diagnose(**chosen)


def test_a_custom_loss_needs_no_logits(model):
    def regression(model, batch):
        return F.mse_loss(model(batch[0]), torch.zeros(len(batch[0]), 4).to(batch[0]), reduction="none").mean(1)

    report = wb.diagnose(model, batches(), 0.6, 0.3, step_fn=regression)
    assert report.flags["D2"].status == "clear"
    assert "correct" not in report.measurements.arrays


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    methods = ["bp", "bp:shell=bp", "dfa", "dfa:shell=method", "dfa:penalty=0.1"]
    sizes = {"arch": "resmlp:d=16,depth=2", "data": "prototypes:train=640,test=1024"}
    return {(r.method, r.seed): r for r in wb.train(methods, seeds=[1, 2], epochs=2, out=out, **sizes)}


def test_a_stored_run_finds_its_baselines_over_all_seeds(runs, capsys):
    result = runs["dfa", 1]
    code = main(["diagnose", result.path, "--json"])
    (card,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert card["verdict"] == {0: "trustworthy", 1: "walked_back", 2: "inconclusive"}[code]
    margins = [100 * (runs["dfa", seed].test_acc - runs["dfa:shell=method", seed].test_acc) for seed in (1, 2)]
    (depth,) = [check for check in card["checks"] if check["id"] == "D3"]
    assert depth["value"] == pytest.approx(np.mean(margins))
    assert card["statistics"]["n"] == 2
    saved = json.loads((wb.load(result.path).path / "report.json").read_text())
    assert saved == card
    assert (wb.load(result.path).path / "measurements.npz").exists()


def test_a_penalised_run_is_judged_against_the_same_shell(runs, capsys):
    main(["diagnose", runs["dfa:penalty=0.1", 2].path, "--json"])
    card = json.loads(capsys.readouterr().out)
    margins = [100 * (runs["dfa:penalty=0.1", s].test_acc - runs["dfa:shell=method", s].test_acc) for s in (1, 2)]
    (depth,) = [check for check in card["checks"] if check["id"] == "D3"]
    assert depth["value"] == pytest.approx(np.mean(margins))


def test_backprop_is_trivially_aligned_and_a_shell_makes_no_claim(runs, capsys):
    main(["diagnose", runs["bp", 1].path, runs["dfa:shell=method", 1].path, "--json"])
    bp, shell = map(json.loads, capsys.readouterr().out.splitlines())
    assert bp["claims"]["alignment"]["outcome"] == "trivial"
    assert shell["claims"]["alignment"]["outcome"] == "not_applicable"


class TestFolder:
    @pytest.fixture
    def folder(self, runs, tmp_path):
        """Backprop, DFA and DFA's frozen baseline, of both seeds; nothing is measured."""
        for method, seed in runs:
            if "penalty" not in method:
                copied(runs[method, seed], tmp_path)
        folder = tmp_path / "elsewhere"
        for name in ("report.json", "measurements.npz"):
            for path in folder.glob(f"*/{name}"):
                path.unlink()
        return folder

    @pytest.fixture
    def measured(self, monkeypatch):
        """The names of the runs that are measured."""
        names: list[str] = []
        measure = RunMeasurer.measure

        def noted(self, run, resolved):
            names.append(run.name)
            return measure(self, run, resolved)

        monkeypatch.setattr(RunMeasurer, "measure", noted)
        return names

    def test_only_what_is_new_is_measured_and_frozen_baselines_are_left_out(self, folder, measured, capsys):
        main(["diagnose", str(folder)])
        first = capsys.readouterr()
        assert sorted(measured) == sorted(path.name for path in folder.glob("*") if "shell" not in path.name)
        assert "4 frozen baselines left out" in first.err
        cards = {path: path.read_text() for path in folder.glob("*/report.json")}
        assert len(cards) == len(measured) == 4
        measured.clear()
        main(["diagnose", str(folder)])
        assert not measured
        assert capsys.readouterr().out == first.out
        assert {path: path.read_text() for path in folder.glob("*/report.json")} == cards
        main(["diagnose", str(folder), "--again"])
        assert len(measured) == 4

    def test_the_summary_has_a_line_for_each_method_verdict_first(self, folder, capsys):
        main(["diagnose", str(folder)])
        shown = capsys.readouterr().out
        heads = {line.split()[1] for line in shown.splitlines() if line[0] in "✓✗?!"}
        assert heads == {"bp", "dfa"}
        assert main(["show", str(folder)]) == 0
        assert capsys.readouterr().out == shown

    def test_stored_measurements_are_judged_by_other_options(self, folder, measured, capsys):
        main(["diagnose", str(folder), "--json"])
        main(["diagnose", str(folder), "--threshold", "h_norm_explosion_ratio=1.0001", "--protocol", "four", "--json"])
        assert len(measured) == 4
        cards = list(map(json.loads, capsys.readouterr().out.splitlines()))
        assert {card["protocol"] for card in cards[4:]} == {"four"}
        assert all(card["checks"][0]["threshold"] == 1.0001 for card in cards[4:])

    @pytest.mark.parametrize("change", ["weights", "version", "device", "damaged"])
    def test_a_run_whose_measurements_are_of_something_else_is_measured(self, folder, measured, monkeypatch, change):
        (path,) = [path for path in folder.iterdir() if path.name.startswith("bp_") and "_s1_" in path.name]
        main(["diagnose", str(path), "--json"])
        stored = Measurements.load(path / "measurements.npz")
        if change == "version":
            monkeypatch.setattr("walkback.auditing.diagnose_runs.__version__", "0.0.1")
        elif change == "damaged":
            (path / "measurements.npz").write_bytes(b"nothing")
        else:
            key, value = {"weights": ("files", {}), "device": ("measured_on", "cuda: another")}[change]
            Measurements(stored.arrays, {**stored.facts, key: value}).save(path / "measurements.npz")
        measured.clear()
        main(["diagnose", str(path), "--json"])
        assert measured == [path.name]

    def test_a_folder_of_frozen_baselines_alone_is_refused(self, folder, capsys):
        for path in folder.iterdir():
            if "shell" not in path.name:
                shutil.rmtree(path)
        assert main(["diagnose", str(folder)]) == 3
        assert "only frozen baselines" in capsys.readouterr().err

    def test_runs_are_named_by_the_beginning_of_their_name_or_hash(self, folder, capsys, monkeypatch):
        monkeypatch.chdir(folder)
        (path,) = [path for path in folder.iterdir() if path.name.startswith("dfa_") and "_s2_" in path.name]
        main(["diagnose", path.name[:-3], "--json"])
        main(["diagnose", path.name.rpartition("_")[2][:6], "--json"])
        main(["show", path.name[:-1], "--json"])
        cards = list(map(json.loads, capsys.readouterr().out.splitlines()))
        assert [card["provenance"]["run"] for card in cards] == [path.name] * 3
        assert main(["diagnose", "dfa_"]) == 3
        message = capsys.readouterr().err
        assert "'dfa_' is the beginning of 2 runs: " in message
        assert path.name in message


def copied(result, tmp_path):
    copy = tmp_path / "elsewhere" / result.run
    shutil.copytree(result.path, copy)
    return copy


def test_a_run_without_its_feedback_is_inconclusive_and_names_the_file(runs, tmp_path, capsys):
    copy = copied(runs["dfa", 1], tmp_path)
    (copy / "rule.safetensors").unlink()
    assert main(["diagnose", str(copy)]) == 2
    assert "VERDICT: inconclusive: rule.safetensors is missing" in capsys.readouterr().out
    card = json.loads((copy / "report.json").read_text())
    assert card["claims"]["alignment"]["outcome"] == "inconclusive"
    assert all(layer["credit"] is None for layer in card["layers"])
    assert {verdict["verdict"] for verdict in card["verdicts"].values()} == {"inconclusive"}


def test_a_run_with_anothers_feedback_is_refused(runs, tmp_path, capsys):
    copy = copied(runs["dfa", 1], tmp_path)
    shutil.copy(copy / "model.safetensors", copy / "rule.safetensors")
    assert main(["diagnose", str(copy)]) == 3
    assert "is damaged" in capsys.readouterr().err


def test_a_damaged_neighbour_is_left_out_and_said(runs, tmp_path, capsys):
    copy = copied(runs["dfa", 1], tmp_path)
    shell = copied(runs["dfa:shell=method", 1], tmp_path)
    (shell / "run.json").write_text("{")
    assert main(["diagnose", str(copy), "--json"]) == 2
    card = json.loads(capsys.readouterr().out)
    assert any(shell.name in line and "left out" in line for line in card["limits"])
    assert card["claim"]["frozen"] == {}


def test_one_seed_gets_an_interval_over_the_test_samples(runs, tmp_path, capsys):
    copy = copied(runs["dfa", 1], tmp_path)
    copied(runs["dfa:shell=method", 1], tmp_path)
    main(["diagnose", str(copy), "--json"])
    card = json.loads(capsys.readouterr().out)
    assert card["statistics"]["pairing"] == "by sample (McNemar)"
    assert card["statistics"]["n"] == 1024
    margin = 100 * (runs["dfa", 1].test_acc - runs["dfa:shell=method", 1].test_acc)
    assert card["statistics"]["mean"] == pytest.approx(margin, abs=1e-6)
    low, high = card["statistics"]["interval"]
    assert low < margin < high


class TestModelOnTheCommandLine:
    CODE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 12)
    def forward(self, h):
        return h + torch.tanh(self.inner(h))

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 12), Block(), Block(), Block(), nn.LayerNorm(12), nn.Linear(12, 10))

def batches():
    draws = torch.Generator().manual_seed(1)
    return [(torch.randn(100, 16, generator=draws), torch.randint(10, (100,), generator=draws)) for _ in range(11)]

def number():
    return 3
"""

    @pytest.fixture
    def here(self, tmp_path, monkeypatch):
        (tmp_path / "their_nets.py").write_text(self.CODE)
        monkeypatch.chdir(tmp_path)
        monkeypatch.syspath_prepend(str(tmp_path))
        yield tmp_path
        sys.modules.pop("their_nets", None)

    def test_it_is_built_loaded_measured_and_judged(self, here, capsys):
        import their_nets

        model = their_nets.build()
        with torch.no_grad():
            model[1].inner.weight.mul_(0.5)
        torch.save({"epoch": 3, "state_dict": {f"module.{k}": v for k, v in model.state_dict().items()}}, "net.pt")
        words = ["diagnose", "--model", "their_nets:build", "--checkpoint", "net.pt", "--data", "their_nets:batches"]
        accuracies = ["--headline-acc", "0.6", "--frozen-acc", "0.5"]
        assert main([*words, *accuracies]) == 2
        assert "test_samples=" in " ".join(capsys.readouterr().out.split())
        assert main([*words, *accuracies, "--protocol", "three"]) == 0
        accuracies += ["--test-samples", "10000"]
        assert main([*words, *accuracies, "--out", "card", "--name", "mine"]) == 0
        assert "VERDICT: trustworthy" in capsys.readouterr().out
        card = json.loads((here / "card" / "report.json").read_text())
        expected = wb.diagnose(model, their_nets.batches(), 0.6, 0.5, method_name="mine").to_json()
        assert card["layers"] == expected["layers"]
        assert main([*words[:3], "--data", "prototypes:test=1024"]) == 2
        assert "VERDICT: inconclusive" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["--model", "their_nets:build"], "needs --data"),
            (["--model", "their_nets", "--data", "prototypes"], "expected package.module:function"),
            (["--model", "nowhere:build", "--data", "prototypes"], "cannot import 'nowhere'"),
            (["--model", "their_nets:nothing", "--data", "prototypes"], "has no function 'nothing'"),
            (["--model", "their_nets:number", "--data", "prototypes"], "returned a int"),
            (["--model", "their_nets:build", "--data", "prototyps"], "Did you mean 'prototypes'"),
            (["--model", "their_nets:build", "--checkpoint", "bad.pt", "--data", "prototypes"], "cannot be read"),
            (["--model", "their_nets:build", "--checkpoint", "none.pt", "--data", "prototypes"], "none.pt"),
            (["--model", "their_nets:build", "--checkpoint", "other.pt", "--data", "prototypes"], "lacks '0.bias'"),
            (["--model", "their_nets:build", "--data", "prototypes", "--threshold", "g_norm=1"], "Unknown threshold"),
            ([], "Name either runs or --model"),
        ],
    )
    def test_mistakes_get_a_sentence(self, here, capsys, words, sentence):
        (here / "bad.pt").write_bytes(b"nothing of the kind")
        torch.save({"0.weight": torch.zeros(2, 2)}, here / "other.pt")
        assert main(["diagnose", *words]) == 3
        assert sentence in capsys.readouterr().err


def test_a_folder_without_runs_is_a_mistake_not_a_success(tmp_path, capsys):
    assert main(["diagnose", str(tmp_path)]) == 3
    assert "There is no run in" in capsys.readouterr().err


def test_explain_says_what_each_check_is(capsys):
    assert main(["explain"]) == 0
    listed = capsys.readouterr().out
    assert all(line.startswith(name) for line, name in zip(listed.splitlines(), CHECKS.names(), strict=False))
    assert all(term in " ".join(listed.split()) for term in GLOSSARY)
    assert main(["explain", "D2"]) == 0
    assert "Misleads:" in capsys.readouterr().out
    assert main(["explain", "D9"]) == 3
    assert "Unknown term 'D9'" in capsys.readouterr().err


def test_explain_knows_the_terms_of_table_heads(capsys):
    assert main(["explain", "‖g_L‖", "@128", "↑"]) == 0
    assert " ".join(capsys.readouterr().out.split()) == f"|g_L|: {GLOSSARY['|g_L|']}"


def chain(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*layers, nn.Linear(12, 4))


def test_a_plain_mlp_is_measured_in_blocks_of_layer_and_activation():
    widths = [(6, 12), (12, 12), (12, 12)]
    report = wb.diagnose(chain(*(nn.Sequential(nn.Linear(i, o), nn.Tanh()) for i, o in widths)), batches(), 0.6, 0.3)
    assert len(report.quantities.layers) == 4
    assert report.flags["D2"].status == "clear"


@pytest.mark.parametrize("blocks", ["auto", ["2", "4"]])
def test_a_flat_chain_of_layers_says_how_to_make_blocks(blocks):
    flat = chain(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh())
    with pytest.raises(wb.InputError, match=r"nn\.Sequential"):
        wb.diagnose(flat, batches(), blocks=blocks)

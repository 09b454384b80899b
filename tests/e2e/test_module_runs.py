"""Runs of a user's own module: trained, interrupted, resumed, measured, audited, verified, and refused if changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import walkback as wb
from walkback.cli.main import main
from walkback.runs import store

NETS = Path(__file__).parents[1] / "module_nets.py"
GRID = ["--data", "prototypes:train=256,test=256,dim=6,prototypes=8,labels=4", "--set", "batch=32", "--epochs", "2"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with a module file of its own, which is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(sys, "path", [*sys.path])
    shutil.copy(NETS, tmp_path / "wb_own_nets.py")
    yield tmp_path
    sys.modules.pop("wb_own_nets", None)


def process(*words, cwd):
    line = [sys.executable, "-m", "walkback", *map(str, words)]
    return subprocess.run(
        line, cwd=cwd, capture_output=True, text=True, env={**os.environ, "COLUMNS": "160"}, check=False
    )


def test_a_module_is_trained_resumed_measured_and_verified(here, capsys):
    train = ["train", "--method", "fa_layers", "--arch", "wb_own_nets:PlainResMLP", *GRID, "--seeds", "1", "--quiet"]
    assert main([*train, "--out", "whole"]) == 0
    (whole,) = store.find_runs(here / "whole")
    assert main([*train, "--out", "parts", "--max-seconds", "0.0001"]) == 2
    assert main([*train, "--out", "parts", "--resume"]) == 0
    (parts,) = store.find_runs(here / "parts")
    assert (parts / store.MODEL).read_bytes() == (whole / store.MODEL).read_bytes()
    assert (parts / store.RULE).read_bytes() == (whole / store.RULE).read_bytes()

    assert main(["diagnose", str(whole)]) in (0, 1, 2)
    assert "PlainResMLP: stem, 3 blocks" in (whole / "report.json").read_text()
    capsys.readouterr()
    assert main(["verify", str(whole), str(whole)]) == 0


@pytest.mark.slow
def test_a_changed_source_is_refused_by_resume_and_by_verify(here):
    train = ["train", "--method", "fa_layers", "--arch", "wb_own_nets:PlainResMLP", *GRID, "--seeds", "1", "--quiet"]
    assert main([*train, "--out", "whole"]) == 0
    (whole,) = store.find_runs(here / "whole")
    assert main(["diagnose", str(whole)]) in (0, 1, 2)
    text = (here / "wb_own_nets.py").read_text()
    (here / "wb_own_nets.py").write_text(text + "\n# changed\n")
    found = process(*train, "--out", "whole", "--resume", cwd=here)
    assert found.returncode == 3
    assert "wb_own_nets:PlainResMLP" in found.stderr
    assert "has changed" in found.stderr
    found = process("verify", whole, whole, cwd=here)
    assert found.returncode == 2
    assert "The source of the network 'wb_own_nets:PlainResMLP'" in found.stdout
    assert len(store.find_runs(here / "whole")) == 1


@pytest.mark.slow
def test_an_audit_of_a_module_in_processes_of_their_own(here):
    words = ["--arch", "wb_own_nets.py:PlainResMLP:d=6", *GRID, "--seeds", "1", "2", "--out", "audit", "--quiet"]
    found = process("audit", "--methods", "dfa", "kp", *words, "--oracle", "all", cwd=here)
    assert found.returncode in (1, 2), found.stderr
    names = {path.name.partition("_PlainResMLP")[0] for path in store.find_runs(here / "audit")}
    assert {"bp", "dfa", "kp", "bp-shell=bp", "dfa-shell=method", "dfa-credit=direction", "bp-site=input"} <= names
    (run,) = (here / "audit").glob("dfa_PlainResMLP*s1*")
    assert process("verify", run, run, cwd=here).returncode == 0
    again = process("verify", run, run, cwd=here.parent)
    assert again.returncode == 2
    assert "cannot import 'wb_own_nets'" in again.stdout


@pytest.mark.slow
def test_maps_and_running_statistics_are_audited_like_those_of_built_in_networks(here):
    draws = torch.Generator().manual_seed(0)
    pixels, labels = torch.randint(256, (352, 3, 8, 8), generator=draws, dtype=torch.uint8), torch.arange(352) % 4
    data = wb.tensors(pixels[:96], labels[:96], pixels[96:], labels[96:], mean=(0.5,) * 3, std=(0.25,) * 3)
    grid = {"arch": "wb_own_nets:TinyResNet", "data": data, "seeds": 1, "epochs": 1, "batch": 16}
    audit = wb.audit(["dfa", "fa_layers"], **grid, out="audit", oracle="none")
    assert audit.table is not None
    (run,) = (here / "audit").glob("fa_layers_TinyResNet*")
    assert wb.verify(run, run, data=data).confirmed
    moved = wb.load(run).params()["blocks.2.bn1.running_var"]
    assert not (moved == 1).all()


def test_a_class_is_trained_in_python_one_by_one_where_it_must(here):
    import module_nets

    data = wb.tensors(*_split())
    with pytest.warns(UserWarning, match=r"one by one: .*depends on values"):
        results = wb.train(
            ["bp", "dfa"], arch=module_nets.Branching, data=data, seeds=[1, 2], epochs=1, batch=32, watch=1
        )
    assert [result.status for result in results] == ["done"] * 4
    assert [result.arch for result in results] == ["Branching"] * 4
    assert "growth" in wb.load(results[0].path).log()[0]
    with pytest.raises(wb.InputError, match="blocks"):
        wb.train("bp", arch="resmlp", blocks="blocks", data=data, epochs=1, batch=32)


def _split():
    x = torch.randn(512, 6, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    return x[:256], y[:256], x[256:], y[256:]

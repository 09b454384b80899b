"""Runs, checkpoints and cards written by walkback 0.8.1 are read, verified and resumed by this version."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import walkback as wb
from walkback.cli.main import main
from walkback.judge.card import seal

FILES = Path(__file__).parents[1] / "fixtures" / "v0.8.1"
FINISHED = sorted(path.parent for path in FILES.glob("audit/*/run.json"))
CARDS = sorted(FILES.glob("audit/*/report.json"))
UNFINISHED = sorted(path.parent for path in FILES.glob("unfinished/*/run.json"))


def test_there_are_files_to_test_with() -> None:
    assert (len(FINISHED), len(CARDS), len(UNFINISHED)) == (6, 3, 3)


@pytest.mark.parametrize("path", FINISHED, ids=lambda path: path.name)
def test_a_finished_run_loads(path: Path) -> None:
    run = wb.load(path)
    assert run.is_done
    assert run.name == path.name
    assert len(run.log()) == run.record["config"]["epochs"]
    assert run.model()["blocks.0.w1.weight"].dtype == np.float32
    assert bool(run.rule_state()) == run.record["rule_has_state"]


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.parent.name)
def test_a_card_is_confirmed(card: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a copy of the audit's folder, so that a test that writes by mistake damages no fixture."""
    folder = tmp_path / "audit"
    shutil.copytree(card.parents[1], folder)
    copied = folder / card.parent.name
    assert main(["verify", str(copied / card.name), str(copied), "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "confirmed"


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (lambda card: card["checks"][0].update(reason="worded differently"), "confirmed"),
        (lambda card: card["checks"][0].update(name="named differently"), "confirmed"),
        (lambda card: card.update(limits=["worded differently"]), "confirmed"),
        (lambda card: card["checks"][0].update(value=2.0), "refuted"),
        (lambda card: card["claims"]["depth"].update(outcome="stands"), "refuted"),
    ],
    ids=["reason", "name", "limits", "value", "outcome"],
)
def test_numbers_and_outcomes_of_an_older_card_are_compared_and_its_wording_is_not(
    change: Callable[[dict], object], outcome: str, tmp_path: Path
) -> None:
    folder = tmp_path / "audit"
    shutil.copytree(CARDS[0].parents[1], folder)
    copied = folder / CARDS[0].parent.name
    card = json.loads((copied / "report.json").read_text())
    change(card)
    (copied / "report.json").write_text(json.dumps(seal(card)))
    assert wb.verify(copied, copied).outcome == outcome


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.parent.name)
def test_a_card_is_rendered(card: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", str(card), "--format", "md", "--stdout"]) == 0
    method = json.loads(card.read_text())["claim"]["method"]
    assert method in capsys.readouterr().out.replace("\\_", "_")


def test_unfinished_runs_resume_to_what_an_unbroken_training_gives(tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(FILES / "unfinished", old)
    settings = {
        "arch": "resmlp:d=8,depth=2",
        "data": "prototypes:train=256,test=1024,dim=24",
        "batch": 64,
        "lr": 0.01,
        "epochs": 3,
        "device": "cpu",
    }
    for method, seeds in (("fa", [1, 2]), ("drtp", [1])):
        with pytest.warns(UserWarning, match=rf"{method}_resmlp.* no content hash: .*numbers were not"):
            resumed = wb.train(method, seeds=seeds, out=old, resume=True, **settings)
        unbroken = wb.train(method, seeds=seeds, out=tmp_path / "new", **settings)
        for one, other in zip(resumed, unbroken, strict=True):
            assert one.run == other.run  # The same name: neither digest nor naming has changed.
            ours, theirs = wb.load(one.path), wb.load(other.path)
            assert [row["epoch"] for row in ours.log()] == [1, 2, 3]
            for leaf, array in theirs.model().items():
                # Processors differ in their last bits, and the fixtures were written on another one.
                np.testing.assert_allclose(ours.model()[leaf], array, rtol=1e-3, atol=1e-4)

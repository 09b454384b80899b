"""Learning rates tuned on held-out training samples: the choice, the grid, what is stored, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import tiny
import walkback as wb
from walkback.cli.main import main
from walkback.core.errors import InputError
from walkback.core.tuning import TunedMethod, TuneOptions, TuningTable, rates_to_add
from walkback.data.held_out import HeldOut
from walkback.data.sets.prototypes import Prototypes
from walkback.runs.tuning_tables import TUNING, read_tables
from walkback.training.resolved_run import ResolvedRun

PLACE = {"arch": "resmlp:d=8,depth=2", "data": "prototypes:train=160,test=64,dim=6,prototypes=8,labels=4"}
SMALL = {**PLACE, "batch": 32, "epochs": 2, "predict": False}


def method(scores: dict[float, float], name: str = "dfa", unit="accuracy") -> TunedMethod:
    return TunedMethod(name, {rate: (score,) for rate, score in scores.items()}, unit)


@pytest.mark.parametrize(
    ("scores", "unit", "chosen", "edge"),
    [
        ({0.1: 0.5, 1.0: 0.7, 10.0: 0.6}, "accuracy", 1.0, ""),
        ({0.1: 0.5, 1.0: 0.7, 10.0: 0.8}, "accuracy", 10.0, "highest"),
        ({0.1: 0.5, 1.0: 0.7, 10.0: 0.8}, "nats", 0.1, "lowest"),
        ({0.1: 0.9, 1.0: 0.9, 10.0: 0.9}, "accuracy", 1.0, ""),
        ({0.1: 0.2, 1.0: 0.9, 10.0: 0.9, 100.0: 0.9}, "accuracy", 10.0, ""),
    ],
)
def test_the_best_mean_is_chosen_and_equal_ones_are_no_edge(scores, unit, chosen, edge):
    found = method(scores, unit=unit)
    assert (found.chosen, found.edge) == (chosen, edge)


def test_the_mean_over_seeds_decides():
    found = TunedMethod("dfa", {0.1: (0.9, 0.1), 1.0: (0.6, 0.6), 10.0: (0.1, 0.1)})
    assert found.chosen == 1.0


def test_the_grid_is_extended_at_edges_by_its_own_steps_at_most_three_times_at_each_end():
    asked, rates, added = (1e-3, 1e-2, 3e-2), [1e-3, 1e-2, 3e-2], []
    while more := rates_to_add(asked, [method({rate: rate for rate in rates}), method({r: -r for r in rates}, "fa")]):
        added.append(more)
        rates = sorted([*rates, *more])
    assert added == [[1e-4, 9e-2], [1e-5, 0.27], [1e-6, 0.81]]
    assert rates_to_add(asked, [method({1e-3: 0.1, 1e-2: 0.2, 3e-2: 0.1})]) == []


def test_a_table_survives_json_and_a_wrong_choice_in_it_is_refused():
    table = TuningTable("abc", TuneOptions((0.1, 1.0), (7,)), (method({0.1: 0.5, 1.0: 0.7, 10.0: 0.6}),))
    document = json.loads(json.dumps(table.to_json()))
    assert TuningTable.from_json(document) == table
    assert table.rates == {"dfa": 1.0}
    document["methods"][0]["chosen"] = 10.0
    with pytest.raises(ValueError, match="chosen"):
        TuningTable.from_json(document)


def test_held_out_samples_are_training_samples_that_are_not_trained_on():
    resolved = tiny.resolved(data=f"{tiny.DATA},held_out=0.25")
    plain, split = tiny.resolved().source.load(None), resolved.source.load(None)
    assert isinstance(resolved.source, HeldOut)
    assert (len(split.train_y), len(split.test_y)) == (72, 24) == (resolved.source.train_size, 24)
    both = torch.cat([torch.cat([split.train_x, split.test_x]), torch.cat([split.train_y, split.test_y])[:, None]], 1)
    all_of_it = torch.cat([plain.train_x, plain.train_y[:, None]], 1)
    assert sorted(both.tolist()) == sorted(all_of_it.tolist())
    assert split.digest != plain.digest
    again = tiny.resolved(data=f"{tiny.DATA},held_out=0.25", seeds=9).source.load(None)
    assert again.digest == split.digest, "the split does not depend on the run's seed"


@pytest.mark.parametrize("share", ["0", "1", "1.5", "0.001", "x"])
def test_a_share_without_samples_on_both_sides_is_refused(share):
    with pytest.raises(InputError, match="held_out"):
        tiny.resolved(data=f"{tiny.DATA},held_out={share}")


def test_own_tensors_can_be_held_out_too(tmp_path):
    x, y = torch.randn(96, 6, generator=torch.Generator().manual_seed(0)), torch.arange(96) % 4
    own = wb.tensors(x, y, x[:40], y[:40])
    place = {"data": own, "arch": "resmlp:d=8,depth=2", "batch": 16, "epochs": 1, "predict": False}
    (result,) = wb.train("bp", tune={"lr": [1e-3, 1e-2], "held_out": 0.5}, out=tmp_path, **place)
    assert result.status == "done"
    (table,) = read_tables(tmp_path).values()
    assert table.rates["bp"] == wb.load(result.path).record["config"]["lr"]


@pytest.fixture(scope="module")
def audited(tmp_path_factory) -> wb.Audit:
    out = tmp_path_factory.mktemp("tuned")
    return wb.audit(["dfa"], tune="lr=1e-3,1e-2,1e-1", seeds=[1, 2], oracle="none", out=out, device="cpu",
                    **{**SMALL, "data": "prototypes:train=160,test=1024,dim=6,prototypes=8,labels=4"})  # fmt: skip


def test_every_method_and_baseline_is_tuned_with_the_same_rates_and_trained_with_its_own(audited):
    table = audited.tuning
    assert {row.method for row in table.rows} == {"dfa", "dfa:shell=method", "bp", "bp:shell=bp"}
    assert len({tuple(row.grid) for row in table.rows}) == 1
    for result in audited.results:
        record = wb.load(result.path).record
        assert record["config"]["lr"] == table.rates[record["method"]]
        assert "held_out" not in record["config"]["data"]
    runs = [wb.load(path).record for path in (audited.out / "tuning").iterdir() if (path / "run.json").is_file()]
    assert len(runs) == 4 * len(table.grid)
    assert {record["seed"] for record in runs} == {1000}
    assert {record["config"]["data"]["held_out"] for record in runs} == {0.2}
    for row in table.rows:
        scores = {r["config"]["lr"]: r["result"]["test_acc"] for r in runs if r["method"] == row.method}
        assert scores == {rate: score for rate, (score,) in row.scores.items()}
        assert scores[row.chosen] == max(scores.values())


def test_cards_are_compared_with_the_tuned_baselines_and_say_so(audited):
    (row,) = audited.table.rows
    for card in row.cards:
        assert card["provenance"]["tuning"]["chosen"] == audited.tuning.rates
        runs = {(r.method, r.seed): r.test_acc for r in audited.results}
        for name, baseline in (("method_shell", "dfa:shell=method"), ("bp_shell", "bp:shell=bp")):
            assert card["claim"]["frozen"][name] == [runs[baseline, seed] for seed in (1, 2)]


def test_a_stored_run_is_diagnosed_and_verified_against_its_tuned_baselines(audited, capsys):
    path = next(result.path for result in audited.results if result.method == "dfa")
    before = json.loads((audited.out / path / "report.json").read_text())
    assert main(["verify", f"{path}/report.json", path]) == 0
    assert "confirmed" in capsys.readouterr().out
    assert main(["checklist", path]) == 0
    assert "best of" in capsys.readouterr().out
    assert before["claim"]["frozen"]["method_shell"]


def test_the_table_is_shown_in_every_form(audited):
    assert "Learning rates" in str(audited)
    for form in ("html", "md", "tex"):
        assert "Learning rates" in (audited.out / f"audit.{form}").read_text()
    (stored,) = json.loads((audited.out / "audit.json").read_text())["tuning"]
    assert TuningTable.from_json(stored) == audited.tuning


def test_another_request_in_the_same_folder_and_a_damaged_table_are_refused(audited):
    again = {**SMALL, "data": "prototypes:train=160,test=1024,dim=6,prototypes=8,labels=4", "seeds": [1, 2]}
    before = (audited.out / TUNING).read_bytes()
    with pytest.raises(InputError, match="another request"):
        wb.train("dfa", tune="lr=1e-3,1e-2", out=audited.out, resume=True, **again)
    (audited.out / TUNING).write_bytes(before.replace(b"0.001", b"0.002"))
    with pytest.raises(InputError, match="damaged"):
        wb.train("dfa", tune="lr=1e-3,1e-2,1e-1", out=audited.out, resume=True, **again)
    (audited.out / TUNING).write_bytes(before)


@pytest.mark.parametrize(
    ("tune", "named"),
    [
        ("lr=1e-3", "at least two"),
        ("lr=0,1", "more than 0"),
        ("lr=a,b", "finite number"),
        ("batch=1,2", "batch"),
        ({"lr": [1e-3, 1e-2], "seeds": [1]}, "Seed 1"),
        ({"lr": [1e-3, 1e-2], "held_out": 1.0}, "held_out"),
        ({"seeds": [1]}, "no learning rates"),
        (3, "expected text"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_is_written(tune, named, tmp_path):
    with pytest.raises(InputError) as caught:
        wb.train("dfa", tune=tune, seeds=1, out=tmp_path / "out", **SMALL)
    assert named in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_judged_run_that_exists_is_refused_before_tuning(tmp_path):
    wb.train("bp", seeds=1, lr=1e-2, out=tmp_path, **SMALL)
    with pytest.raises(InputError, match="exists already"):
        wb.train("bp", seeds=1, tune="lr=1e-3,1e-2", out=tmp_path, **SMALL)
    assert not (tmp_path / "tuning").exists()


def test_when_the_time_is_up_in_tuning_the_results_are_unfinished_and_resume_goes_on(tmp_path):
    tuned = {"tune": "lr=1e-3,1e-2", "seeds": 1, "out": tmp_path, **SMALL}
    results = wb.train("bp", max_seconds=0, **tuned)
    assert {result.status for result in results} == {"unfinished"}
    assert not (tmp_path / TUNING).exists()
    (result,) = wb.train("bp", resume=True, **tuned)
    assert result.status == "done"


def test_a_tuning_run_goes_on_where_a_rule_objects_and_a_judged_run_stops(tmp_path, monkeypatch):
    monkeypatch.setattr(type(tiny.resolved("dfa").rule), "objection", lambda self, logs: "useless")
    with pytest.raises(wb.WalkbackError, match="useless"):
        wb.train("dfa", seeds=1, tune="lr=1e-3,1e-2", out=tmp_path, **SMALL)
    assert read_tables(tmp_path)


class Unreadable(torch.Tensor):
    """A tensor of which nothing can be read."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise AssertionError("test data were read")


@pytest.mark.parametrize("driver", ["single", pytest.param("fleet", marks=pytest.mark.slow)])
def test_test_data_are_not_read_while_tuning(driver, tmp_path, monkeypatch):
    real = Prototypes.load

    def load(source, root):
        data = real(source, root)
        if (tmp_path / "a" / TUNING).exists():
            return data
        hidden = {name: getattr(data, name).as_subclass(Unreadable) for name in ("test_x", "test_y")}
        return replace(data, **hidden)

    monkeypatch.setattr(Prototypes, "load", load)
    asked = {"seeds": [1, 2], "driver": driver, "device": "cpu", **SMALL}
    with pytest.raises(AssertionError, match="test data were read"):
        wb.train("bp", out=tmp_path / "b", **asked)
    results = wb.train(["bp", "dfa"], tune="lr=1e-3,1e-2", out=tmp_path / "a", **asked)
    assert all(result.status == "done" and result.test_acc > 0 for result in results)
    assert {len(row.scores) for row in read_tables(tmp_path / "a").popitem()[1].rows} != {0}


def test_json_of_the_train_command_ends_with_the_table(tmp_path, capsys):
    words = ["train", "--method", "bp", "--seeds", "1", "--epochs", "1", "--json", "--out", str(tmp_path)]
    place = ["--arch", PLACE["arch"], "--data", PLACE["data"], "--set", "batch=32"]
    tune = ["--tune", "lr=1e-3,1e-2", "--tune-seeds", "5", "6", "--tune-held-out", "0.25"]
    assert main([*words, *place, *tune, "--dry-run"]) == 0
    assert not (tmp_path / TUNING).exists()
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main([*words, *place, *tune]) == 0
    run, table = map(json.loads, capsys.readouterr().out.splitlines())
    assert run["method"] == "bp"
    assert table["tuning"]["asked"]["seeds"] == [5, 6]
    assert len(table["tuning"]["methods"][0]["scores"][0]["held_out"]) == 2


def test_tuning_changes_neither_name_nor_digest_of_a_run_with_that_learning_rate():
    table = TuningTable("abc", TuneOptions((0.1, 1.0)), (method({0.1: 0.5, 1.0: 0.7, 10.0: 0.6}),))
    tuned: ResolvedRun = tiny.resolved("dfa").tuned(table)
    assert (tuned.name, tuned.digest) == (tiny.resolved("dfa", lr=1.0).name, tiny.resolved("dfa", lr=1.0).digest)

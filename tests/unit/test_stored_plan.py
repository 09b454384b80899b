"""A plan depends on counted work only, is made once, and is followed by whoever trains the runs later."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from test_sweep import Scripted

import tiny
import walkback
from dying import contents, dies
from walkback.cli.main import main
from walkback.core.configuration import grid
from walkback.runs import store, stored_plan, train_runs
from walkback.runs.stored_plan import PLAN, PLAN_LOCK, PlannedGroup, forget, read_plan, store_plan
from walkback.runs.train_runs import TrainOptions, plan_unfinished
from walkback.sweeping import sweep
from walkback.sweeping.grid_file import parse_grid
from walkback.sweeping.worker import run_job
from walkback.training.fleet import Fleet
from walkback.training.planning import load_balance
from walkback.training.planning import plan_fleets as planning
from walkback.training.planning.cost_model import CostModel
from walkback.training.planning.fleet_plan import FleetGroup, halves
from walkback.training.resolved_run import resolve

SMALL = {"arch": "resmlp:d=8,depth=1", "data": "prototypes:train=64,test=32", "batch": 32, "epochs": 2}
BP = {"methods": "bp", **SMALL, "device": "cpu"}
GRID = """
methods: [bp, dfa]
arch: "resmlp:d=8,depth=1"
data: "prototypes:train=64,test=32"
seeds: [1, 2, 3]
epochs: 1
settings: {batch: 32}
"""


@pytest.fixture(autouse=True)
def fine_shares(monkeypatch):
    """Split fleets even if little is gained by it; nothing is timed."""
    monkeypatch.setattr(load_balance, "MIN_EXCESS", 0.0)
    load_machine(monkeypatch, 0)


def load_machine(monkeypatch, number):
    """A machine as if it were busy in its own way: every timing and the free memory are random."""
    draws = random.Random(number)
    model = CostModel(
        tiny.CPU, 10 ** draws.uniform(7, 11), lambda matmul, models, device: models * 10 ** draws.uniform(-7, -2)
    )
    monkeypatch.setattr(planning, "CostModel", type("Busy", (), {"of": staticmethod(lambda device: model)}))
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device=None: (draws.randrange(1, 1 << 33), 1 << 33))


class Recorder(train_runs.ProgressListener):
    """Records the sizes of the planned fleets, and stops in the first step where asked to."""

    def __init__(self, stops=False):
        self.sizes, self.stops = [], stops

    def planned(self, groups, steps):
        self.sizes = [[len(fleet) for fleet in group.fleets] for group in groups]

    def stepped(self, steps):
        if self.stops:
            raise KeyboardInterrupt


def train(out, seeds, stops=False, **more):
    """Train seeds of bp; the sizes of the fleets."""
    recorder = Recorder(stops)
    training = {**BP, "seeds": seeds, "out": out, "resume": True, "listener": recorder} | more
    if stops:
        with pytest.raises(KeyboardInterrupt):
            walkback.train(**training)
    else:
        assert {result.status for result in walkback.train(**training)} == {"done"}
    return recorder.sizes


def runs(seeds):
    return [resolve(config) for config in grid("bp", seeds=seeds, **SMALL)]


def names(seeds):
    return tuple(resolved.name for resolved in runs(seeds))


def fleet_of(seeds):
    """A planned group of one fleet; its costs do not matter here."""
    return FleetGroup(tuple(runs(seeds)), "fleet", 0.0, 0, 0)


def planned(*fleets):
    return sorted(PlannedGroup((names(seeds),), "fleet") for seeds in fleets)


def same_weights(left, right):
    found = store.find_runs(left)
    assert [path.name for path in found] == [path.name for path in store.find_runs(right)]
    for path in found:
        ours, theirs = contents(path), contents(right / path.name)
        del ours["run.json"], theirs["run.json"]
        assert ours == theirs, path.name
    return len(found)


class TestCountedWork:
    @pytest.mark.parametrize("command", ["sweep", "train"])
    def test_ten_dry_runs_on_a_loaded_machine_give_one_plan(self, tmp_path, monkeypatch, capsys, command):
        (tmp_path / "grid.yaml").write_text(GRID)
        words = {
            "sweep": ["sweep", str(tmp_path / "grid.yaml"), "--jobs", "3"],
            "train": ["train", "--method", "bp", "dfa", "--seeds", "1", "2", "--arch", SMALL["arch"]],
        }[command]
        plans, seconds = set(), set()
        for number in range(10):
            load_machine(monkeypatch, number)
            assert main([*words, "--dry-run", "--json", "--device", "cpu", "--out", str(tmp_path / "out")]) == 0
            rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
            seconds.add(tuple(row.pop("seconds") for row in rows))
            plans.add(json.dumps(rows))
        assert len(seconds) == 10, "the timings have an effect on what is predicted"
        assert len(plans) == 1
        assert len(json.loads(plans.pop())) == {"sweep": 5, "train": 2}[command], "a sweep's fleets are split"
        assert not (tmp_path / "out").exists(), "a dry run writes nothing"

    @pytest.mark.parametrize("seconds", [(9.0, 1.0, 1.0), (1.0, 1.0, 9.0)])
    def test_predicted_seconds_do_not_decide_what_is_split(self, seconds):
        fleets = [replace(fleet_of([2 * n, 2 * n + 1]), seconds=s, work=9.0 - n) for n, s in enumerate(seconds)]
        split = load_balance.split_long_fleets(fleets, 2)
        assert [[r.config.seed for r in group.resolved_runs] for group in split] == [[0, 1], [4, 5], [2], [3]]

    @pytest.mark.slow
    def test_two_sweeps_on_a_loaded_machine_give_the_same_bits(self, tmp_path, monkeypatch):
        resolved_runs = sweep.runs_of_grid(parse_grid(GRID))
        for number in (1, 2):
            load_machine(monkeypatch, number)
            out = tmp_path / str(number)
            options = TrainOptions(out=out, device="cpu")
            assert sweep.run_sweep(resolved_runs, options, Scripted(), 3, sweep.SweepListener()).is_done
            assert not (out / PLAN).exists(), "it is about unfinished runs only"
        assert same_weights(tmp_path / "1", tmp_path / "2") == 6

    def test_the_memory_is_the_whole_memory_of_the_device(self, monkeypatch):
        before = train_runs.memory_budget(tiny.CPU)
        monkeypatch.setattr("builtins.open", lambda *_: pytest.fail("it does not depend on what is free"))
        assert train_runs.memory_budget(tiny.CPU) == before > 1 << 27


class TestFollowed:
    def test_runs_killed_before_their_first_checkpoint_stay_in_their_fleets(self, tmp_path, monkeypatch):
        assert train(tmp_path / "killed", [1, 2, 3], stops=True) == [[3]]
        assert read_plan(tmp_path / "killed") == planned([1, 2, 3])
        with monkeypatch.context() as patch:
            patch.setattr(train_runs, "memory_budget", lambda device: 1)
            assert train(tmp_path / "killed", [3, 1, 2]) == [[3]], "the memory here is not asked again"
        assert not list(tmp_path.glob(f"killed/{PLAN}"))
        assert train(tmp_path / "through", [1, 2, 3]) == [[3]]
        same_weights(tmp_path / "killed", tmp_path / "through")

    def test_new_runs_form_new_fleets_and_keep_the_old_ones(self, tmp_path):
        train(tmp_path, [1, 2], stops=True)
        assert train(tmp_path, [5, 1, 2, 6], stops=True) == [[2], [2]]
        assert read_plan(tmp_path) == planned([1, 2], [5, 6])

    def test_runs_that_are_not_asked_for_stay_planned(self, tmp_path):
        train(tmp_path, [1, 2, 3, 4], stops=True)
        assert train(tmp_path, [1, 2]) == [[2]]
        assert read_plan(tmp_path) == planned([3, 4])

    def test_a_limit_on_the_memory_cuts_them_again(self, tmp_path):
        train(tmp_path, [1, 2, 3, 4], stops=True)
        (group,) = plan_unfinished(runs([1, 2, 3, 4]), TrainOptions(out=tmp_path, device="cpu", resume=True))
        assert group.is_settled
        half = group.memory // 2
        assert train(tmp_path, [1, 2, 3, 4], stops=True, memory=half) == [[2], [2]]
        assert read_plan(tmp_path) == planned([1, 2], [3, 4])

    def test_another_driver_that_is_asked_for_plans_again(self, tmp_path):
        train(tmp_path, [1, 2], stops=True)
        assert train(tmp_path, [1, 2], stops=True, driver="single") == [[1], [1]]
        assert [group.driver for group in read_plan(tmp_path)] == ["single", "single"]
        assert train(tmp_path, [1, 2], stops=True) == [[1], [1]]

    def test_a_fleet_halved_for_lack_of_memory_stays_halved(self, tmp_path, monkeypatch):
        class Large(Fleet):
            def train_epoch(self, tick):
                if len(self.resolved_runs) > 2:
                    raise MemoryError
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("walkback.runs.train_group.Fleet", Large)
            train(tmp_path, [1, 2, 3, 4], stops=True)
        assert read_plan(tmp_path) == planned([1, 2], [3, 4])
        assert train(tmp_path, [1, 2, 3, 4]) == [[2], [2]]

    def test_fleets_that_share_a_device_are_followed_too(self, tmp_path, monkeypatch):
        resolved_runs = [resolve(config) for config in grid(["bp", "dfa"], seeds=[1, 2], **SMALL)]
        options = TrainOptions(out=tmp_path, device="cpu", predict=False)
        with monkeypatch.context() as patch:
            patch.setitem(planning.MAX_CONCURRENT, "cpu", 2)
            (together,) = plan_unfinished(resolved_runs, options)
        store_plan(tmp_path, [together])
        (again,) = plan_unfinished(resolved_runs, options)
        assert (again.fleets, again.sizes, again.memory) == (together.fleets, (2, 2), together.memory)

    def test_a_worker_follows_the_submitted_cut(self, tmp_path, monkeypatch):
        """Also where both halves of a fleet are one job, as in a study's share."""
        (whole,) = plan_unfinished(runs([1, 2, 3, 4]), TrainOptions(out=tmp_path, device="cpu"))
        store_plan(tmp_path, halves(whole))
        job = sweep.job_json(whole, TrainOptions(out=tmp_path, device="cpu"))
        monkeypatch.setattr(train_runs, "memory_budget", lambda device: 1)
        assert run_job(json.loads(json.dumps(job)))["status"] == "done"
        sizes = [walkback.load(path).record["timings"]["fleet_size"] for path in store.find_runs(tmp_path)]
        assert sizes == [2, 2, 2, 2]

    def test_a_settled_fleet_is_not_split_for_more_workers(self, tmp_path):
        options = TrainOptions(out=tmp_path, device="cpu", predict=False)
        assert len(sweep.jobs_of(runs([1, 2, 3, 4]), options, at_once=4)) == 4
        store_plan(tmp_path, [fleet_of([1, 2, 3, 4])])
        assert len(sweep.jobs_of(runs([1, 2, 3, 4]), options, at_once=4)) == 1


class TestFile:
    def test_what_is_stored_is_read(self, tmp_path):
        assert read_plan(tmp_path) == []
        store_plan(tmp_path, [fleet_of([3]), fleet_of([1, 2])])
        assert read_plan(tmp_path) == planned([1, 2], [3])
        store_plan(tmp_path, [fleet_of([2, 3])])
        assert read_plan(tmp_path) == planned([1], [2, 3])

    def test_the_same_plan_is_not_written_again(self, tmp_path, monkeypatch):
        store_plan(tmp_path, [fleet_of([1, 2]), fleet_of([3])])
        monkeypatch.setattr(stored_plan, "write_atomic", lambda *_: pytest.fail("it was written"))
        store_plan(tmp_path, [fleet_of([3])])

    def test_the_last_finished_run_removes_it(self, tmp_path):
        store_plan(tmp_path, [fleet_of([1, 2])])
        forget(tmp_path, names([1]))
        assert read_plan(tmp_path) == planned([2])
        assert (tmp_path / PLAN_LOCK).exists()
        forget(tmp_path, names([2]))
        assert list(tmp_path.iterdir()) == []
        forget(tmp_path, names([2]))
        assert list(tmp_path.iterdir()) == []

    def test_a_kill_leaves_the_old_or_the_new_one(self, tmp_path):
        seen = set()
        for operation in range(100):
            out = tmp_path / str(operation)
            out.mkdir()
            store_plan(out, [fleet_of([1, 2])])
            died = dies(operation, lambda out=out: store_plan(out, [fleet_of([1]), fleet_of([2])]))
            found = read_plan(out)
            assert found in (planned([1, 2]), planned([1], [2]))
            seen.add(len(found))
            forget(out, names([1, 2]))
            assert list(out.iterdir()) == []
            if not died:
                break
        assert seen == {1, 2}
        assert not died

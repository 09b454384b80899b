"""Concurrent fleets train the same networks, to the bit, as one fleet after the other, also when resumed or split."""

from __future__ import annotations

import pytest

import tiny
import walkback
from dying import contents
from walkback.auditing.epoch_monitor import EpochMonitor
from walkback.core.configuration import grid
from walkback.runs import store, train_runs
from walkback.training.fleet import Fleet
from walkback.training.gpu.concurrent_fleets import ConcurrentFleets
from walkback.training.planning import plan_fleets as planning
from walkback.training.planning.fleet_plan import back_off_text
from walkback.training.resolved_run import resolve

FLEETS = [
    ["bp", "bp:shell=bp"],
    ["dfa", "dfa:shell=method", "dfa:penalty=0.01"],
    ["node_perturbation"],
]
GRID = {
    "methods": ["bp", "dfa", "dfa:shell=method"],
    "seeds": [1, 2],
    "epochs": 3,
    "arch": "resmlp:d=4,depth=1",
    "data": "prototypes:train=64,test=384",
    "batch": 32,
    "device": "cpu",
    "checkpoint_seconds": 0,
}


def resolved_runs():
    arch = "resmlp:d=4,depth=1"
    return [
        [tiny.resolved(method, seeds=seed, arch=arch) for seed in (2, 1) for method in methods] for methods in FLEETS
    ]


def trained(trainer, epochs):
    logs, accuracies = [], []
    for _ in range(epochs):
        ticks: list[int] = []
        logs.append(trainer.train_epoch(ticks.append))
        assert ticks == [1] * trainer.steps_per_epoch, "one tick for a step of all fleets"
        accuracies.append(trainer.test_accuracy())
    return logs, accuracies, trainer.snapshots()


@pytest.fixture
def concurrent_fleets(monkeypatch):
    monkeypatch.setitem(planning.MAX_CONCURRENT, "cpu", 6)


def test_each_fleet_trains_as_it_trains_alone():
    data = resolved_runs()[0][0].source.load(None)
    concurrent = ConcurrentFleets(resolved_runs(), data, tiny.CPU)
    logs, accuracies, snapshots = trained(concurrent, 2)
    alone = [trained(Fleet(members, data, tiny.CPU), 2) for members in resolved_runs()]
    assert concurrent.epoch == 2
    assert [len(part.resolved_runs) for part in concurrent.drivers] == [4, 6, 2]
    for epoch in range(2):
        assert logs[epoch] == [log for found, _, _ in alone for log in found[epoch]]
        assert accuracies[epoch] == [share for _, found, _ in alone for share in found[epoch]]
    expected = [snapshot for _, _, found in alone for snapshot in found]
    for left, right in zip(snapshots, expected, strict=True):
        assert left.epoch == right.epoch == 2
        for leaves in ("params", "state", "moments", "own_moments"):
            assert tiny.same_bits(getattr(left, leaves), getattr(right, leaves)), leaves


@pytest.mark.slow
def test_resuming_from_snapshots_gives_the_same_bits():
    data = resolved_runs()[0][0].source.load(None)
    through = ConcurrentFleets(resolved_runs(), data, tiny.CPU)
    middle = tiny.train(through, 1)
    end = tiny.train(through, 1)
    again = ConcurrentFleets(resolved_runs(), data, tiny.CPU)
    again.restore(middle)
    assert again.epoch == 1
    for left, right in zip(tiny.train(again, 1), end, strict=True):
        assert tiny.same_bits(left.params, right.params)


class Recorder(train_runs.ProgressListener):
    def __init__(self):
        self.lines = []

    def planned(self, groups, steps):
        self.lines.append(("planned", [group.sizes for group in groups]))

    def resumed(self, group, epoch):
        self.lines.append(("resumed", group.sizes, epoch))

    def backed_off(self, group, parts, steps):
        self.lines.append(back_off_text(group, parts))


def assert_same_runs(left, right):
    runs = store.find_runs(left)
    assert len(runs) == 6
    for path in runs:
        ours, theirs = contents(path), contents(right / path.name)
        del ours["run.json"], theirs["run.json"]
        assert ours == theirs


def train(out, recorder=None, **more):
    return walkback.train(**GRID, **more, out=out, listener=recorder or Recorder())


@pytest.mark.slow
@pytest.mark.usefixtures("concurrent_fleets")
def test_runs_equal_those_trained_one_fleet_after_the_other(tmp_path, monkeypatch):
    recorder = Recorder()
    train(tmp_path / "together", recorder)
    assert recorder.lines == [("planned", [(2, 4)])]
    monkeypatch.undo()
    recorder = Recorder()
    train(tmp_path / "alone", recorder)
    assert recorder.lines == [("planned", [(), ()])]
    assert_same_runs(tmp_path / "together", tmp_path / "alone")


@pytest.mark.usefixtures("concurrent_fleets")
def test_resuming_keeps_the_same_fleets(tmp_path):
    stopped = train(tmp_path / "stopped", max_seconds=1e-9)
    assert {result.status for result in stopped} == {"unfinished"}
    assert {result.epochs for result in stopped} == {0}, "the deadline passed before the first epoch"

    class Stop(train_runs.ProgressListener):
        def stepped(self, steps):
            self.steps = getattr(self, "steps", 0) + steps
            if self.steps == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "stopped", Stop(), resume=True)
    recorder = Recorder()
    train(tmp_path / "stopped", recorder, resume=True)
    assert recorder.lines == [("planned", [(2, 4)]), ("resumed", (2, 4), 1)]
    train(tmp_path / "through")
    assert_same_runs(tmp_path / "stopped", tmp_path / "through")


@pytest.mark.slow
@pytest.mark.usefixtures("concurrent_fleets")
def test_fleets_that_do_not_fit_together_are_split(tmp_path, monkeypatch):
    class Large(ConcurrentFleets):
        def train_epoch(self, tick):
            if len(self.drivers) > 1:
                raise MemoryError
            return super().train_epoch(tick)

    monkeypatch.setattr("walkback.runs.train_group.ConcurrentFleets", Large)
    recorder = Recorder()
    train(tmp_path / "backed", recorder)
    planned, message = recorder.lines
    assert planned == ("planned", [(2, 4)])
    assert "out of memory with 6 models" in message
    assert message.endswith(" 2 + 4")
    monkeypatch.undo()
    train(tmp_path / "alone")
    assert_same_runs(tmp_path / "backed", tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.usefixtures("concurrent_fleets")
def test_each_rule_is_measured_with_its_own_detectors(tmp_path, monkeypatch):
    def logs(out):
        settings = {key: value for key, value in GRID.items() if key not in ("device", "checkpoint_seconds")}
        options = train_runs.TrainOptions(out=out, device="cpu")
        runs = [resolve(config) for config in grid(**settings)]
        results = train_runs.train_resolved(runs, options, train_runs.ProgressListener(), observer=EpochMonitor())
        return [store.open_run(out / result.run).log() for result in results]

    together = logs(tmp_path / "together")
    monkeypatch.undo()
    assert together == logs(tmp_path / "alone")
    assert all({"growth", "cosine"} <= row.keys() for log in together for row in log)

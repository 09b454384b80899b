"""Out of memory: the fleet is halved until it fits, what was trained is kept, and whoever watches is told."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

import walkback
from dying import contents
from walkback.cli.main import main
from walkback.core.configuration import grid
from walkback.core.errors import WalkbackError
from walkback.runs import store, train_runs
from walkback.sweeping.worker import run_job
from walkback.training.fleet import Fleet
from walkback.training.out_of_memory import is_out_of_memory
from walkback.training.planning.fleet_plan import back_off_text

SMALL = {"arch": "resmlp:d=8,depth=2", "data": "prototypes:train=64,test=32", "batch": 32, "device": "cpu"}
GRID = {"methods": "dfa", "seeds": [1, 2, 3, 4, 5], "epochs": 3, "checkpoint_seconds": 0, **SMALL}
ALLOCATOR = "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to ..."
ERRORS = [torch.OutOfMemoryError("CUDA out of memory."), MemoryError(), RuntimeError(ALLOCATOR)]


class Heard(train_runs.ProgressListener):
    def __init__(self):
        self.lines = []

    def started(self, group):
        self.lines.append(("started", len(group.resolved_runs)))

    def resumed(self, group, epoch):
        self.lines.append(("resumed", epoch))

    def backed_off(self, group, parts, steps):
        self.lines.append((back_off_text(group, parts), steps))


def small_memory(monkeypatch, most, after=0, error=ERRORS[0]):
    """From the epoch after `after` on, more than `most` models together are too many."""

    class Large(Fleet):
        def train_epoch(self, tick):
            if len(self.resolved_runs) > most and self.epoch >= after:
                tick(1)
                raise error
            return super().train_epoch(tick)

    monkeypatch.setattr("walkback.runs.train_group.Fleet", Large)


@pytest.mark.parametrize(
    "error",
    [pytest.param(error, marks=pytest.mark.slow if error is not ERRORS[0] else ()) for error in ERRORS],
    ids=lambda error: type(error).__name__,
)
def test_a_fleet_is_halved_until_it_fits(tmp_path, monkeypatch, error):
    small_memory(monkeypatch, 2, error=error)
    heard = Heard()
    results = walkback.train(**GRID, out=tmp_path, listener=heard)
    assert heard.lines == [
        ("started", 5),
        ("out of memory with 5 models together; continuing with 3 + 2", 6),
        ("started", 3),
        ("out of memory with 3 models together; continuing with 2 + 1", 6),
        ("started", 2),
        ("started", 1),
        ("started", 2),
    ]
    assert [(result.status, result.seed) for result in results] == [("done", seed) for seed in GRID["seeds"]]
    sizes = {
        seed: store.open_run(tmp_path / r.run).record["timings"]["fleet_size"] for seed, r in enumerate(results, 1)
    }
    assert sizes == {1: 2, 2: 2, 3: 1, 4: 2, 5: 2}


@pytest.mark.slow
def test_the_bits_are_those_of_the_smaller_fleets(tmp_path, monkeypatch):
    for seeds in ([1, 2, 3], [4, 5]):
        walkback.train(**{**GRID, "seeds": seeds}, out=tmp_path / "small")
    small_memory(monkeypatch, 3)
    walkback.train(**GRID, out=tmp_path / "halved")
    runs = store.find_runs(tmp_path / "small")
    assert len(runs) == 5
    for path in runs:
        left, right = contents(path), contents(tmp_path / "halved" / path.name)
        del left["run.json"], right["run.json"]
        assert left == right


@pytest.mark.slow
def test_the_halves_go_on_from_the_last_checkpoint(tmp_path, monkeypatch):
    small_memory(monkeypatch, 3, after=2)
    heard = Heard()
    results = walkback.train(**GRID, out=tmp_path, listener=heard)
    text = "out of memory with 5 models together; continuing with 3 + 2"
    assert heard.lines == [("started", 5), (text, -2), ("started", 3), ("resumed", 2), ("started", 2), ("resumed", 2)]
    for result in results:
        assert [row["epoch"] for row in store.open_run(tmp_path / result.run).log()] == [1, 2, 3]


def test_one_model_that_does_not_fit_is_an_error_with_a_sentence(tmp_path, monkeypatch):
    small_memory(monkeypatch, 0)
    with pytest.raises(WalkbackError, match="Out of memory with one model alone, 'dfa_resmlp") as caught:
        walkback.train(**GRID, out=tmp_path)
    assert caught.value.exit_code == 2
    monkeypatch.undo()
    assert {result.status for result in walkback.train(**GRID, out=tmp_path, resume=True)} == {"done"}


def test_other_errors_are_not_taken_for_it(tmp_path, monkeypatch):
    small_memory(monkeypatch, 0, error=RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes"):
        walkback.train(**GRID, out=tmp_path)


def test_an_error_that_came_from_it_is_taken_for_it():
    def capture():
        try:
            raise ERRORS[0]
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    with pytest.raises(RuntimeError) as caught:
        capture()
    assert is_out_of_memory(caught.value)
    assert all(map(is_out_of_memory, ERRORS))
    assert not is_out_of_memory(RuntimeError("no"))


def test_the_command_says_so(tmp_path, monkeypatch, capsys):
    small_memory(monkeypatch, 1)
    words = ["--arch", SMALL["arch"], "--data", SMALL["data"], "--set", "batch=32", "--device", "cpu", "--epochs", "1"]
    assert main(["train", "--seeds", "1", "2", "--out", str(tmp_path), *words]) == 0
    assert "out of memory with 2 models together; continuing with 1 + 1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_worker_says_so(tmp_path, monkeypatch):
    small_memory(monkeypatch, 1)
    settings = {key: value for key, value in SMALL.items() if key != "device"}
    configs = [config.to_json() for config in grid("bp", seeds=[1, 2], epochs=1, **settings)]
    how = {"out": str(tmp_path), "data_root": None, "command": [], "device": "cpu"}
    said = run_job({"kind": "train", "options": how, "configs": configs})
    assert said["status"] == "done"
    assert said["notes"] == ("out of memory with 2 models together; continuing with 1 + 1",)


def test_a_cap_plans_small_fleets(tmp_path, capsys):
    words = ["train", "--seeds", *"123456", "--dry-run", "--json", "--device", "cpu", "--out", str(tmp_path)]
    assert main(words) == 0
    (whole,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main([*words, "--memory", str(whole["memory"] // 2 + 1)]) == 0
    assert [len(json.loads(line)["methods"]) for line in capsys.readouterr().out.splitlines()] == [3, 3]
    assert main([*words, "--memory", "1"]) == 0
    assert [len(json.loads(line)["methods"]) for line in capsys.readouterr().out.splitlines()] == [1] * 6


CAPPED = """if True:
    import resource, sys
    from pathlib import Path
    import torch, walkback
    from walkback.core.configuration import grid
    from walkback.runs import train_runs as run
    from walkback.training.planning.fleet_plan import back_off_text
    from walkback.training.resolved_run import resolve
    settings = dict(arch="resmlp:d=256,depth=4", data="prototypes:train=512,test=64", batch=256, epochs=1)
    walkback.train("bp", **settings, seeds=99, out=sys.argv[1] + "/warm", device="cpu")
    resolved_runs = [resolve(config) for config in grid("bp", seeds=range(32), **settings)]
    (whole,) = run.plan_unfinished(resolved_runs, run.TrainOptions(Path(sys.argv[1]), device="cpu"))
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + whole.memory // 2,) * 2)

    class Printer(run.ProgressListener):
        def planned(self, groups, steps):
            print("planned", *(len(group.resolved_runs) for group in groups))
        def backed_off(self, group, parts, steps):
            print(back_off_text(group, parts))

    how = dict(out=sys.argv[1] + "/runs", device="cpu", listener=Printer())
    results = walkback.train("bp", **settings, **how, seeds=range(32))
    print(*(result.status for result in results))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit on the address space that is kept to")
def test_a_real_limit_on_the_memory_is_survived(tmp_path):
    line = [sys.executable, "-c", CAPPED, str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "planned 32", "the machine has room for all, and does not know of the limit"
    assert lines[1] == "out of memory with 32 models together; continuing with 16 + 16"
    assert lines[-1].split() == ["done"] * 32

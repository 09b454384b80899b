"""`kill -9` at any moment, then --resume: the same bits as a run that nobody disturbed."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import walkback
from dying import DIED, contents
from walkback.core.errors import InputError
from walkback.runs import store
from walkback.runs.train_runs import ProgressListener

DRIVERS = pytest.mark.parametrize("driver", ["fleet", pytest.param("single", marks=pytest.mark.slow)])
SMALL = {"arch": "resmlp:d=12,depth=2", "data": "prototypes:train=128,test=64", "batch": 16, "checkpoint_seconds": 0}
GRID = {"methods": ["bp", "bp:shell=bp", "dfa", "fa:site=input"], "seeds": [1, 2], "epochs": 6, **SMALL}
PAIR = {"methods": ["dfa", "dfa:shell=method"], "seeds": [3], "epochs": 2, **SMALL, "batch": 64}

NURSERY = """if True:
    import json, os, sys, tempfile
    import dying, walkback
    with tempfile.TemporaryDirectory() as warm:
        walkback.train(["bp", "dfa", "fa"], out=warm, device="cpu", epochs=1, data="prototypes:train=128,test=64")
    print("ready", flush=True)
    for line in sys.stdin:
        wish = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if wish["operation"] is not None:
                    dying.die_before(wish["operation"])
                walkback.train(resume=True, device="cpu", **wish["training"])
                status = 0
            finally:
                os._exit(status)
        print(child, flush=True)
        sys.stdin.readline()  # Until asked for, an ended child keeps its number, so that no other process is killed.
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Nursery:
    """A process with torch imported and warm, and of a single thread; its children train, and are killed."""

    def __init__(self):
        line = [sys.executable, "-c", NURSERY]
        paths = filter(None, [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")])
        place = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(line, stdin=pipe, stdout=pipe, text=True, env={**os.environ, **place})
        assert self.process.stdout.readline() == "ready\n"

    def begin(self, training, out, driver, operation=None):
        """Start a child; it dies before its n-th file operation where `operation` is given."""
        wish = {"training": {**training, "out": str(out), "driver": driver}, "operation": operation}
        self.process.stdin.write(json.dumps(wish) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        """The exit status of the child, when it has ended; -9 where it was killed."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def train(self, *words, **named):
        self.begin(*words, **named)
        return self.end()


@pytest.fixture(scope="module")
def nursery():
    made = Nursery()
    with made.process:
        yield made
        made.process.stdin.close()


def undisturbed(nursery, training, out, driver):
    """Train without a kill; the seconds it took."""
    start = time.monotonic()
    assert nursery.train(training, out, driver) == 0
    return time.monotonic() - start


def assert_same(disturbed, through):
    """The same runs with the same files and, but for times and dates, the same contents."""
    visible = sorted(path.name for path in disturbed.iterdir() if not path.name.startswith("."))
    assert visible == sorted(path.name for path in through.iterdir())
    for name in visible:
        left, right = contents(disturbed / name), contents(through / name)
        del left["run.json"], right["run.json"]
        assert left == right, name
        one, other = walkback.load(disturbed / name).record, walkback.load(through / name).record
        for key in ("status", "config", "digest", "result", "files"):
            assert one[key] == other[key], name


def progress(out):
    """How far each run has come."""
    runs = [store.open_run(path) for path in (store.find_runs(out) if out.exists() else [])]
    return tuple(-1 if run.is_done else max(run.checkpoint_epochs()) for run in runs)


def kill_often(nursery, out, driver, longest, draws):
    """Kill at random moments, and go on, until it is done; the number of kills, and what they left."""
    seen = []
    while True:
        child = nursery.begin(GRID, out, driver)
        time.sleep(draws.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        status = nursery.end()
        if status == 0:
            return len(seen), set(seen)
        assert status == -signal.SIGKILL
        seen.append(progress(out))
        # On a machine that has become busier than it was, the same times would never be enough.
        longest *= 1.1 if len(seen) > 8 else 1.0


@pytest.mark.slow
@DRIVERS
def test_kills_at_random_moments_change_no_bit(nursery, tmp_path, driver):
    seconds = undisturbed(nursery, GRID, tmp_path / "through", driver)
    draws = random.Random(20)
    for attempt in range(5):
        out = tmp_path / f"killed-{attempt}"
        kills, seen = kill_often(nursery, out, driver, seconds / (3 + 2 * attempt), draws)
        assert_same(out, tmp_path / "through")
        if kills >= 5 and len(seen) >= 4:
            return
    pytest.fail("it was always done before it was killed five times, at four different places")


def dies_and_goes_on(nursery, tmp_path, driver, operations):
    """Die before each of these file operations, go on each time; returns whether the last one was reached."""
    undisturbed(nursery, PAIR, tmp_path / "through", driver)
    status = DIED
    for operation in operations:
        out = tmp_path / str(operation)
        status = nursery.train(PAIR, out, driver, operation=operation)
        assert status in (0, DIED)
        progress(out)  # What is left can be opened.
        assert nursery.train(PAIR, out, driver) == 0
        assert_same(out, tmp_path / "through")
        if status == 0:
            break
    return status == DIED


@pytest.mark.slow
@DRIVERS
def test_dying_inside_a_write_changes_no_bit(nursery, tmp_path, driver):
    assert dies_and_goes_on(nursery, tmp_path, driver, range(3, 60, 11)), "the later ones were never reached"


@pytest.mark.slow
def test_dying_while_learning_rates_are_tuned_changes_no_choice_and_no_bit(nursery, tmp_path):
    training = {**PAIR, "methods": ["dfa"], "tune": "lr=1e-3,1e-2,1e-1"}
    undisturbed(nursery, training, tmp_path / "through", "fleet")
    tables = (tmp_path / "through" / "tuning.json").read_bytes()
    statuses = []
    for operation in range(5, 400, 28):
        out = tmp_path / str(operation)
        statuses.append(nursery.train(training, out, "fleet", operation=operation))
        assert statuses[-1] in (0, DIED)
        assert nursery.train(training, out, "fleet") == 0
        assert (out / "tuning.json").read_bytes() == tables
        for folder in (out, out / "tuning"):
            for path in store.find_runs(folder):
                other = tmp_path / "through" / path.relative_to(out)
                assert walkback.load(path).record["files"] == walkback.load(other).record["files"], path.name
        if statuses[-1] == 0:
            break
    assert statuses.count(DIED) >= 3
    assert statuses[-1] == 0, "the last operations were never reached"


@pytest.mark.slow
@DRIVERS
def test_dying_before_every_single_file_operation_changes_no_bit(nursery, tmp_path, driver):
    assert not dies_and_goes_on(nursery, tmp_path, driver, itertools.count())


@pytest.mark.slow
@DRIVERS
def test_dying_again_and_again_at_later_operations_changes_no_bit(nursery, tmp_path, driver):
    """Each process dies a little later than the one before, and each begins by mending what that one left."""
    undisturbed(nursery, PAIR, tmp_path / "through", driver)
    deaths = 0
    for operation in itertools.count(2, 5):
        status = nursery.train(PAIR, tmp_path / "killed", driver, operation=operation)
        if status == 0:
            break
        assert status == DIED
        deaths += 1
    assert deaths >= 5
    assert_same(tmp_path / "killed", tmp_path / "through")


class Watcher(ProgressListener):
    """Remembers the plan, and from which epoch its fleets went on."""

    def __init__(self):
        self.fleets, self.epochs = [], []

    def planned(self, groups, steps):
        self.fleets = [len(group.resolved_runs) for group in groups]

    def resumed(self, group, epoch):
        self.epochs.append(epoch)


@pytest.mark.parametrize(
    ("saves", "epoch"),
    [pytest.param(1, 0, marks=pytest.mark.slow), (2, 1), (3, 1), pytest.param(4, 2, marks=pytest.mark.slow)],
)
def test_a_fleet_stays_together_wherever_between_its_members_checkpoints_it_died(tmp_path, monkeypatch, saves, epoch):
    training = {**PAIR, "epochs": 3, "out": tmp_path, "device": "cpu"}
    real, calls = store.Run.save_checkpoint, []

    def dying(run, checkpoint):
        if len(calls) == saves:
            raise KeyboardInterrupt
        calls.append(run)
        real(run, checkpoint)

    with monkeypatch.context() as patch:
        patch.setattr(store.Run, "save_checkpoint", dying)
        with pytest.raises(KeyboardInterrupt):
            walkback.train(**training)
    watcher = Watcher()
    results = walkback.train(**training, resume=True, listener=watcher)
    assert watcher.fleets == [2], "going on in other company gives other bits"
    assert watcher.epochs == [epoch] * bool(epoch)
    assert [result.status for result in results] == ["done", "done"]


def test_a_refused_fleet_lets_go_of_the_members_it_had_locked(tmp_path):
    training = {**PAIR, "out": tmp_path, "device": "cpu"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.Run, "append_log", lambda run, row: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            walkback.train(**training)
    (last,) = [
        run for run in map(walkback.load, store.find_runs(tmp_path)) if run.record["method"] == "dfa:shell=method"
    ]
    last.lock()
    with pytest.raises(InputError, match="Another process is training"):
        walkback.train(**training, resume=True)
    last.unlock()
    assert [result.status for result in walkback.train(**training, resume=True)] == ["done", "done"]

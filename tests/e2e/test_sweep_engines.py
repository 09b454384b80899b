"""Workers are killed in the middle of a sweep, with every executor: every run is complete and has the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dying import contents
from walkback.runs import store
from walkback.runs.train_runs import TrainOptions
from walkback.sweeping.executor import LocalExecutor
from walkback.sweeping.grid_file import parse_grid
from walkback.sweeping.sweep import SweepListener, run_sweep, runs_of_grid

pytestmark = pytest.mark.slow

GRID = """
methods: [bp, dfa, "dfa:shell=method"]
arch: ["resmlp:d=12,depth=2", "resmlp:d=8,depth=3"]
data: "prototypes:train=256,test=64"
seeds: [1, 2]
epochs: 25
settings: {batch: 16}
"""


class Recorder(SweepListener):
    """Records the events of a sweep."""

    def __init__(self):
        self.jobs, self.losses, self.ends, self.failures = 0, [], [], []

    def planned(self, groups, finished):
        self.jobs = len(groups)

    def lost(self, job, reason, tries_left):
        self.losses.append((job, reason, tries_left))

    def ended(self, job):
        self.ends.append(job)

    def failed(self, job, reason):
        self.failures.append((job, reason))


class Killing:
    """An executor that kills workers, one after the other, each after its second checkpoint."""

    def __init__(self, inner, out, kills):
        self.inner, self.out, self.left = inner, out, kills
        self.killed = []

    def submit(self, number, job):
        self.inner.submit(number, job)

    def wait(self, seconds):
        until = time.monotonic() + seconds
        while True:
            ended = self.inner.wait(0.02)
            if ended or time.monotonic() >= until:
                return ended
            if len(self.killed) < self.left:
                self._kill_one()

    def close(self):
        self.inner.close()

    def _kill_one(self):
        for path in store.find_runs(self.out) if self.out.exists() else []:
            run = store.open_run(path)
            holder = None if run.is_done else holder_of(path)
            if holder is not None and holder not in self.killed and 2 <= max(run.checkpoint_epochs()) < 20:
                os.kill(holder, signal.SIGKILL)
                self.killed.append(holder)
                return


def holder_of(folder):
    """The id of another process that has the lock file of this run open."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            try:
                if any(os.readlink(link) == str(folder / store.LOCK) for link in (process / "fd").iterdir()):
                    return int(process.name)
            except OSError:
                continue  # The process has ended, or belongs to another user.
    return None


def options(out):
    return TrainOptions(out=out, resume=True, device="cpu", checkpoint_seconds=0, memory=1 << 30)


@pytest.fixture(scope="module")
def through(tmp_path_factory):
    """The same sweep without kills."""
    out = tmp_path_factory.mktemp("through")
    recorder = Recorder()
    swept = run_sweep(runs_of_grid(parse_grid(GRID)), options(out), LocalExecutor(), 2, recorder)
    assert swept.is_done
    assert (recorder.losses, recorder.failures, sorted(recorder.ends)) == ([], [], [0, 1, 2, 3])
    return out


def assert_survives(executor, out, through, kills=2):
    resolved_runs, recorder = runs_of_grid(parse_grid(GRID)), Recorder()
    killing = Killing(executor, out, kills)
    swept = run_sweep(resolved_runs, options(out), killing, 2, recorder)
    assert len(killing.killed) == len(recorder.losses) == kills, "every kill must hit a running worker"
    assert (recorder.failures, sorted(recorder.ends)) == ([], [0, 1, 2, 3])
    assert swept.is_done
    names = sorted(resolved.name for resolved in resolved_runs)
    assert sorted(path.name for path in out.iterdir() if not path.name.startswith(".")) == names
    assert sorted(result.run for result in swept.results) == names
    for name in names:
        killed, other = store.open_run(out / name), store.open_run(through / name)
        left, right = contents(killed.path), contents(other.path)
        del left["run.json"], right["run.json"]
        assert left == right, name
        assert [row["epoch"] for row in killed.log()] == list(range(1, 26))
        for key in ("status", "config", "digest", "result", "files"):
            assert killed.record[key] == other.record[key], name
    again = Recorder()
    assert run_sweep(resolved_runs, options(out), LocalExecutor(), 2, again).is_done
    assert again.jobs == 0, "finished runs are not trained again"


def test_a_sweep_survives_killed_local_workers(tmp_path, through):
    assert_survives(LocalExecutor(), tmp_path / "out", through, kills=3)


def test_workers_end_when_their_sweep_is_killed(tmp_path):
    (tmp_path / "grid.yaml").write_text(GRID.replace("epochs: 25", "epochs: 2500"))
    line = [sys.executable, "-m", "walkback", "sweep", "grid.yaml", "--device", "cpu", "--jobs", "2"]
    workers = set()
    with subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.DEVNULL) as command:
        until = time.monotonic() + 60
        while len(workers) < 2 and time.monotonic() < until:
            found = (
                [holder_of(path) for path in store.find_runs(tmp_path / "runs")] if (tmp_path / "runs").exists() else []
            )
            workers |= {holder for holder in found if holder is not None}
            time.sleep(0.1)
        command.kill()
    assert len(workers) == 2
    until = time.monotonic() + 20
    while any(Path(f"/proc/{worker}").exists() for worker in workers) and time.monotonic() < until:
        time.sleep(0.1)
    assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]


@pytest.mark.filterwarnings("ignore")  # Warnings of Ray.
def test_a_sweep_survives_killed_ray_workers(tmp_path, through):
    pytest.importorskip("ray")
    from walkback.sweeping.ray_executor import RayExecutor

    assert_survives(RayExecutor(slots=2), tmp_path / "out", through)


@pytest.mark.filterwarnings("ignore")  # Warnings of submitit.
def test_a_sweep_survives_killed_submitit_jobs(tmp_path, through):
    pytest.importorskip("submitit")
    from walkback.sweeping.slurm_executor import SlurmExecutor

    executor = SlurmExecutor(tmp_path / "out" / ".slurm", {"timeout_min": 20}, cluster="local")
    assert_survives(executor, tmp_path / "out", through)

"""Sweeps: jobs that are lost, locked or refused, the worker, and the command."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import walkback
from walkback.cli.commands.sweep import slurm_settings
from walkback.cli.main import main
from walkback.cli.training import memory_of
from walkback.core.errors import InputError
from walkback.runs import store, train_runs
from walkback.runs.deadline import Deadline
from walkback.runs.train_runs import TrainOptions
from walkback.sweeping import executor, sweep
from walkback.sweeping.executor import EndedJob
from walkback.sweeping.grid_file import parse_grid
from walkback.sweeping.ray_executor import RayExecutor
from walkback.sweeping.slurm_executor import SlurmExecutor
from walkback.sweeping.worker import JobReport, run_job
from walkback_papers import study_processes

SMALL = 'data: "prototypes:train=64,test=32"\narch: "resmlp:d=8,depth=2"\nepochs: 1\nsettings: {batch: 32}\n'
PAIR = f"methods: [bp, dfa]\nseeds: [1, 2]\n{SMALL}"


class Scripted:
    """Runs jobs in this process; `mishaps` lists for each job how its first tries end instead."""

    def __init__(self, mishaps=None):
        self.mishaps = {job: list(each) for job, each in (mishaps or {}).items()}
        self.out, self.tries, self.most, self.waits, self.is_closed = [], Counter(), 0, 0, False

    def submit(self, number, job):
        self.out.append((number, job))
        self.tries[number] += 1
        self.most = max(self.most, len(self.out))

    def wait(self, seconds):
        self.waits += 1
        number, job = self.out.pop(0)
        mishaps = self.mishaps.get(number, [])
        mishap = mishaps.pop(0) if mishaps else None
        if mishap == "lost":
            return [EndedJob(number, None, "out of power")]
        if mishap is not None:
            return [EndedJob(number, mishap)]
        return [EndedJob(number, JobReport.from_json(json.loads(json.dumps(run_job(json.loads(json.dumps(job)))))))]

    def close(self):
        self.is_closed = True


class UntilWaits(Deadline):
    """A deadline that is past once the executor was waited for `count` times."""

    def __init__(self, work, count):
        self.work, self.count = work, count

    @property
    def is_past(self):
        return self.work.waits >= self.count


class Recorder(sweep.SweepListener):
    """Records the events of a sweep."""

    def __init__(self):
        self.lines = []

    def planned(self, groups, finished):
        self.lines.append(("planned", [len(group.resolved_runs) for group in groups], finished))

    def ended(self, job):
        self.lines.append(("ended", job))

    def lost(self, job, reason, tries_left):
        self.lines.append(("lost", job, tries_left))

    def failed(self, job, reason):
        self.lines.append(("failed", job, reason))

    def noted(self, job, note):
        self.lines.append(("noted", job, note))


def sweep_grid(out, executor, text=PAIR, at_once=None):
    recorder = Recorder()
    options = TrainOptions(out=out, device="cpu")
    return sweep.run_sweep(sweep.runs_of_grid(parse_grid(text)), options, executor, at_once, recorder), recorder.lines


def resolved_grid(methods):
    return sweep.runs_of_grid(parse_grid(f"methods: {methods}\n{SMALL}"))


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr(sweep, "LOCKED_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(sweep, "_POLL_SECONDS", 0.01)


class TestSweep:
    def test_jobs_are_fleets_and_results_are_ordinary_runs(self, tmp_path):
        work = Scripted()
        swept, lines = sweep_grid(tmp_path / "runs", work)
        assert lines == [("planned", [2, 2], 0), ("ended", 0), ("ended", 1)]
        assert swept.is_done
        assert work.is_closed
        assert [(result.method, result.seed) for result in swept.results] == [
            ("bp", 1),
            ("bp", 2),
            ("dfa", 1),
            ("dfa", 2),
        ]
        for result in swept.results:
            assert walkback.load(result.path).model()

    def test_finished_runs_are_skipped(self, tmp_path):
        sweep_grid(tmp_path, Scripted())
        swept, lines = sweep_grid(tmp_path, Scripted(), PAIR.replace("[1, 2]", "[1, 2, 3]"))
        assert lines[0] == ("planned", [1, 1], 4)
        assert swept.is_done

    def test_checkpoints_of_finished_runs_are_removed(self, tmp_path):
        swept, _ = sweep_grid(tmp_path, Scripted(), f"methods: bp\n{SMALL}")
        path = tmp_path / swept.results[0].run
        before = sorted(file.name for file in path.iterdir())
        (path / store.RESUME).write_bytes(b"left by a kill")
        assert sweep_grid(tmp_path, Scripted(), f"methods: bp\n{SMALL}")[0].is_done
        assert sorted(file.name for file in path.iterdir()) == before

    def test_no_more_than_at_once_jobs_run(self, tmp_path):
        nothing = {job: [JobReport("failed")] for job in range(3)}
        one, all_of_them = Scripted(nothing), Scripted(nothing)
        text = f"methods: [bp, fa, dfa]\n{SMALL}"
        sweep_grid(tmp_path / "a", one, text, at_once=1)
        sweep_grid(tmp_path / "b", all_of_them, text)
        assert (one.most, all_of_them.most) == (1, 3)

    def test_no_job_is_submitted_after_the_deadline(self, no_waiting):
        """Running jobs are waited for; one that stopped at the limit is not done."""
        work = Scripted({0: [JobReport("done")], 1: [JobReport("stopped")]})
        groups = sweep.jobs_of(resolved_grid("[bp, fa, dfa]"), TrainOptions(Path("none")))
        recorder, done = Recorder(), []
        failures = sweep.Scheduler(
            sweep.run_names(groups), [{}] * 3, work, recorder, UntilWaits(work, 1), done.append
        ).run(2)
        ended, (kind, job, note) = recorder.lines
        assert (ended, kind, job) == (("ended", 0), "noted", 1)
        assert "time limit" in note
        assert (failures, done, work.tries) == ([], [0], {0: 1, 1: 1})

    def test_a_share_of_one_fleet_keeps_its_epochs_and_sizes(self):
        one, other = sweep.jobs_of(resolved_grid("[bp, dfa]"), TrainOptions(Path("none")))
        started = replace(one, sizes=(1,), done=1)
        assert study_processes._merged([started]) is started
        both = study_processes._merged([started, other])
        assert both.resolved_runs == (*one.resolved_runs, *other.resolved_runs)
        assert both.seconds == one.seconds + other.seconds

    def test_a_locked_job_is_not_waited_for_after_the_deadline(self, no_waiting):
        groups = sweep.jobs_of(resolved_grid("bp"), TrainOptions(Path("none")))
        work = Scripted({0: [JobReport("taken", "by another")] * 99})
        assert sweep.Scheduler(sweep.run_names(groups), [{}], work, Recorder(), UntilWaits(work, 3)).run(1) == []
        assert work.tries == {0: 3}

    def test_a_lost_job_is_retried_three_times(self, tmp_path):
        swept, lines = sweep_grid(tmp_path, work := Scripted({0: ["lost"] * 3}))
        assert [line for line in lines if line[0] == "lost"] == [("lost", 0, 3), ("lost", 0, 2), ("lost", 0, 1)]
        assert work.tries == {0: 4, 1: 1}
        assert swept.is_done

    def test_a_job_lost_four_times_has_failed_and_the_others_continue(self, tmp_path):
        swept, _ = sweep_grid(tmp_path, work := Scripted({0: ["lost"] * 9}))
        assert work.tries == {0: 4, 1: 1}
        assert not swept.is_done
        (failure,) = swept.failures
        assert "4 times" in failure.reason
        assert "out of power" in failure.reason
        assert failure.runs == tuple(result.run for result in swept.results[:2])
        assert [result.status for result in swept.results] == ["unfinished"] * 2 + ["done"] * 2

    def test_a_locked_job_is_waited_for_and_not_counted_as_lost(self, tmp_path, no_waiting):
        locked = JobReport("taken", "Another process is training it.")
        swept, lines = sweep_grid(tmp_path, work := Scripted({0: [locked] * 7}))
        assert swept.is_done
        assert work.tries[0] == 8, "more often than a lost job is retried"
        (note,) = [line[2] for line in lines if line[0] == "noted"]
        assert "Another process is training it." in note

    @pytest.mark.slow
    def test_a_worker_believed_dead_that_still_trains_is_waited_for(self, tmp_path, no_waiting):
        """The lock of a run is held, as by the worker believed dead, until the third retry."""
        held = []

        class Unlocking(Scripted):
            def submit(self, number, job):
                super().submit(number, job)
                if self.tries[number] == 4:
                    held.pop().unlock()

        text = f"methods: bp\n{SMALL}"
        (resolved,) = sweep.runs_of_grid(parse_grid(text))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store.Run, "append_log", lambda run, row: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                sweep_grid(tmp_path, Scripted(), text)
        held.append(store.open_run(tmp_path / resolved.name))
        held[0].lock()
        swept, lines = sweep_grid(tmp_path, work := Unlocking({0: ["lost"]}), text)
        assert work.tries == {0: 4}
        assert swept.is_done
        assert [line[0] for line in lines] == ["planned", "lost", "noted", "ended"]
        assert "Another process is training" in lines[2][2]

    def test_a_refused_job_fails_with_the_message_of_the_worker(self, tmp_path):
        swept, _ = sweep_grid(tmp_path, work := Scripted({1: [JobReport("failed", "No data.")]}))
        assert [(failure.job, failure.reason) for failure in swept.failures] == [(1, "No data.")]
        assert work.tries == {0: 1, 1: 1}

    def test_the_executor_is_closed_after_an_exception(self, tmp_path):
        class Broken(Scripted):
            def wait(self, seconds):
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sweep_grid(tmp_path, work := Broken())
        assert work.is_closed


class TestWorker:
    def test_exceptions_become_failed_reports(self, tmp_path, monkeypatch):
        (resolved,) = sweep.runs_of_grid(parse_grid(f"methods: bp\n{SMALL}"))
        options = TrainOptions(out=tmp_path, device="cpu")
        job = sweep.job_json(sweep.jobs_of([resolved], options)[0], options)
        broken = {**job, "configs": [{**job["configs"][0], "method": {"name": "dff"}}]}
        assert run_job(broken)["status"] == "failed"
        assert "Did you mean 'dfa'?" in run_job(broken)["reason"]
        assert run_job(broken)["is_input"]
        monkeypatch.setattr(store, "create_run", lambda *_: 1 / 0)
        assert run_job(job) == {
            "status": "failed",
            "reason": "ZeroDivisionError: division by zero",
            "notes": (),
            "is_input": False,
        }

    def test_paths_are_absolute(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (resolved,) = sweep.runs_of_grid(parse_grid(f"methods: bp\n{SMALL}"))
        options = TrainOptions(out=tmp_path.relative_to(tmp_path), data_root=tmp_path, device="cpu")
        sent = sweep.job_json(sweep.jobs_of([resolved], options)[0], options)["options"]
        assert (sent["out"], sent["data_root"]) == (str(tmp_path), str(tmp_path))


class TestLocalExecutor:
    def test_a_worker_has_one_thread_unless_omp_num_threads_is_set(self, monkeypatch):
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        assert executor.worker_environment(None)["OMP_NUM_THREADS"] == "1"
        assert executor.worker_threads() == 1
        monkeypatch.setenv("OMP_NUM_THREADS", "4")
        assert executor.worker_environment(None)["OMP_NUM_THREADS"] == "4"
        assert executor.worker_threads() == 4
        monkeypatch.setenv("OMP_NUM_THREADS", "lots")
        with pytest.raises(InputError, match="OMP_NUM_THREADS is 'lots'"):
            executor.worker_threads()

    def test_a_worker_sees_only_its_gpu(self, monkeypatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
        assert executor.visible_gpus(2) == ("3", "5")
        assert executor.worker_environment("5")["CUDA_VISIBLE_DEVICES"] == "5"
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
        assert executor.visible_gpus(2) == ("0", "1")


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2 << 30), ("2 gib", 2 << 30), ("1.5MB", 1_500_000), ("512K", 512_000), ("7", 7), ("7B", 7), (None, None)],
)
def test_memory_sizes_are_parsed(text, size):
    assert memory_of(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "0", "two", "2XB", "1e9", "2GiBs"])
def test_invalid_memory_sizes_are_refused(text):
    with pytest.raises(InputError, match="expected a size such as 2GiB"):
        memory_of(text)


def test_a_memory_limit_makes_more_and_smaller_jobs(tmp_path):
    resolved_runs = sweep.runs_of_grid(parse_grid(f"methods: bp\nseeds: [1, 2, 3, 4, 5, 6]\n{SMALL}"))
    (whole,) = sweep.jobs_of(resolved_runs, TrainOptions(out=tmp_path, device="cpu"))
    capped = sweep.jobs_of(resolved_runs, TrainOptions(out=tmp_path, device="cpu", memory=math.ceil(whole.memory / 3)))
    assert [len(group.resolved_runs) for group in capped] == [2, 2, 2]


def test_processes_that_train_at_once_share_the_memory(tmp_path, monkeypatch):
    resolved_runs = sweep.runs_of_grid(parse_grid(f"methods: bp\nseeds: [1, 2, 3, 4, 5, 6]\n{SMALL}"))
    (whole,) = sweep.jobs_of(resolved_runs, TrainOptions(out=tmp_path, device="cpu"))
    monkeypatch.setattr(train_runs, "memory_budget", lambda device: whole.memory)
    shared = TrainOptions(out=tmp_path, device="cpu", sharing=2)
    assert [len(group.resolved_runs) for group in sweep.jobs_of(resolved_runs, shared)] == [3, 3]
    both = replace(shared, memory=math.ceil(whole.memory / 3))
    assert [len(group.resolved_runs) for group in sweep.jobs_of(resolved_runs, both)] == [2, 2, 2]


class TestCommand:
    @pytest.fixture
    def grid(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "grid.yaml").write_text(PAIR)
        return tmp_path

    def test_a_dry_run_prints_the_jobs_and_trains_nothing(self, grid, capsys):
        assert main(["sweep", "grid.yaml", "--dry-run", "--device", "cpu", "--json"]) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(row["job"], row["methods"]) for row in rows] == [(1, ["bp", "bp"]), (2, ["dfa", "dfa"])]
        assert all(len(row["runs"]) == 2 for row in rows)
        assert main(["sweep", "grid.yaml", "--dry-run", "--device", "cpu"]) == 0
        assert "bp ×2" in capsys.readouterr().out
        assert not (grid / "runs").exists()

    def test_failures_are_printed_and_the_exit_code_is_two(self, grid, capsys, monkeypatch):
        monkeypatch.setattr(executor, "LocalExecutor", lambda _gpus: Scripted({0: ["lost"] * 4}))
        assert main(["sweep", "grid.yaml", "--device", "cpu", "--json"]) == 2
        printed = capsys.readouterr()
        assert [json.loads(line)["status"] for line in printed.out.splitlines()] == ["unfinished"] * 2 + ["done"] * 2
        assert re.search(r"job 1 failed: .*4 times.*out of power", printed.err)
        assert re.search(r"2 runs are unfinished.*same command", printed.err)
        monkeypatch.setattr(executor, "LocalExecutor", lambda _gpus: Scripted({0: ["lost"]}))
        assert main(["sweep", "grid.yaml", "--device", "cpu"]) == 0
        printed = capsys.readouterr()
        assert "2 finished runs skipped" in printed.err
        assert re.search(r"lost: out of power; .*3 tries left", " ".join(printed.err.split()))

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["--jobs", "0"], "--jobs is 0; expected at least 1"),
            (["--memory", "much"], "expected a size such as 2GiB"),
            (["--slurm", "timeout_min=5"], "--executor slurm"),
            (["--executor", "slurm", "--slurm", "x"], "Cannot read 'x' in --slurm"),
            (["--executor", "dask"], "invalid choice: 'dask'"),
        ],
    )
    def test_invalid_options_are_refused(self, grid, capsys, words, sentence):
        assert main(["sweep", "grid.yaml", *words]) == 3
        assert sentence in capsys.readouterr().err

    def test_slurm_settings_are_parsed(self):
        assert slurm_settings(["timeout_min=5", "slurm_partition=gpu"]) == {"timeout_min": 5, "slurm_partition": "gpu"}
        with pytest.raises(InputError, match="given twice"):
            slurm_settings(["a=1", "a=2"])


@pytest.mark.parametrize(("library", "extra"), [("ray", "ray"), ("submitit", "slurm")])
def test_a_missing_library_is_named_with_its_extra(tmp_path, monkeypatch, library, extra):
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(InputError, match=rf"walkback\[{extra}\]"):
        RayExecutor(1) if library == "ray" else SlurmExecutor(tmp_path, {})

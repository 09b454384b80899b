"""The commands as a user runs them: processes, files and exit codes."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import re
import shutil
import signal
import subprocess
import sys
import types
from pathlib import Path
from statistics import fmean

import pytest
import torch

import walkback
from dying import contents
from walkback.cli.commands.demo import DEMO_METHODS, DEMO_SEEDS
from walkback.cli.main import COMMANDS, main
from walkback.core.errors import EXIT_NO_READER
from walkback.core.plugins import registered
from walkback.core.version import __version__
from walkback.pitfalls.cases.p19_tf32_reference import to_tf32
from walkback.runs import store
from walkback.training.fleet import Fleet
from walkback.training.single import Single

SIZES = ["--data", "prototypes:train=256,test=64", "--arch", "resmlp:d=8,depth=2"]
TINY = [*SIZES, "--epochs", "2", "--set", "batch=32"]
FINAL = ("model.safetensors", "rule.safetensors", "train.jsonl")


def call(*words, cwd, **named):
    """Run `walkback` as a process in the folder `cwd`."""
    line = [sys.executable, "-m", "walkback", *map(str, words)]
    environment = {**os.environ, "COLUMNS": "160", "WALKBACK_DATA": str(cwd / "data")}
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, env=environment, check=False, **named)


def rows(text):
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working folder for calls in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("WALKBACK_DATA", str(tmp_path / "data"))
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two methods and two seeds, trained by a process; shared, so tests must not change it."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, call("train", "--method", "bp", "dfa:scale=unit_error", "--seeds", 1, 2, *TINY, "--json", cwd=folder)


class TestHelp:
    def test_help_names_every_command_and_the_exit_codes(self, tmp_path):
        done = call("--help", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        for name in COMMANDS.names():
            assert f"\n  {name}" in done.stdout
        assert "0 done, 1 walked back, 2 unfinished or inconclusive" in done.stdout

    def test_no_arguments_show_the_help_as_a_usage_error(self, capsys):
        assert main([]) == 3
        asked = capsys.readouterr().out
        assert main(["--help"]) == 0
        assert capsys.readouterr().out == asked

    def test_the_version(self, capsys):
        assert main(["--version"]) == 0
        assert capsys.readouterr().out == f"walkback {__version__}\n"

    @pytest.mark.parametrize("name", COMMANDS.names())
    def test_every_command_has_help(self, name, capsys):
        assert main([name, "--help"]) == 0
        printed = capsys.readouterr()
        assert printed.out.startswith(f"usage: walkback {name}")
        assert printed.err == ""

    def test_the_help_of_ls_names_the_catalogs_of_plugins(self, capsys):
        assert main(["ls", "--help"]) == 0
        printed = capsys.readouterr().out
        assert all(point.name in printed for point in registered("walkback.catalogs"))
        assert "studies" in printed

    def test_defaults_are_shown_as_they_are_typed(self, capsys):
        assert main(["audit", "--help"]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert "(default: bp fa dfa)" in printed
        assert "(default: )" not in printed
        assert "[]" not in printed

    def test_an_unknown_command_gets_a_suggestion(self, tmp_path):
        done = call("trian", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (3, "")
        assert re.match(r"walkback: .*'trian'.*Did you mean 'train'\?", done.stderr)
        assert done.stderr.count("\n") == 1

    def test_a_closed_pipe_ends_with_a_code_that_is_no_verdict(self, tmp_path):
        read, write = os.pipe()
        os.close(read)
        line = [sys.executable, "-m", "walkback", "ls", "methods", "--json"]
        done = subprocess.run(line, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
        os.close(write)
        assert (done.returncode, done.stderr) == (EXIT_NO_READER, "")

    @pytest.mark.parametrize("words", [["--help"], ["ls", "methods", "--json"]])
    def test_output_that_cannot_be_written_gives_one_sentence(self, tmp_path, words):
        with Path("/dev/full").open("w") as full:
            line = [sys.executable, "-m", "walkback", *words]
            done = subprocess.run(line, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 3
        assert re.fullmatch(r"walkback: No space left on device[^\n]*\n", done.stderr)


class TestTrain:
    def test_json_is_one_object_per_run_methods_outermost(self, trained):
        folder, done = trained
        assert (done.returncode, done.stderr) == (0, "")
        found = rows(done.stdout)
        pairs = [("bp", 1), ("bp", 2), ("dfa:scale=unit_error", 1), ("dfa:scale=unit_error", 2)]
        assert [(row["method"], row["seed"]) for row in found] == pairs
        for row in found:
            assert row["status"] == "done"
            assert 0 <= row["test_acc"] <= 1
            assert row["seconds"] > 0
            assert (row["epochs"], row["arch"], row["data"]) == (2, "resmlp", "prototypes")
            assert (folder / row["path"]).name == row["run"]

    def test_oracle_controls_are_trained(self, here, capsys):
        methods = ["bp:site=input", "dfa:credit=exact", "dfa:site=input,credit=direction"]
        assert main(["train", "--method", *methods, "bp", *TINY, "--json", "--quiet"]) == 0
        records = [json.loads(path.read_text()) for path in here.glob("runs/*/run.json")]
        sites = {record["method"]: record["credit_site"] for record in records}
        assert sites == {methods[0]: "input", methods[1]: "output", methods[2]: "output", "bp": "output"}
        accuracies = {row["method"]: row["test_acc"] for row in rows(capsys.readouterr().out)}
        assert accuracies["dfa:credit=exact"] == accuracies["bp"]

    def test_a_run_folder_is_complete_and_opens(self, trained):
        folder, done = trained
        for row in rows(done.stdout):
            run = walkback.load(folder / row["path"])
            assert run.record["result"]["test_acc"] == row["test_acc"]
            assert run.record["method"] == row["method"]
            assert [line["epoch"] for line in run.log()] == [1, 2]
            assert run.log()[-1]["test_acc"] == row["test_acc"]
            assert "stem.weight" in run.model()
            assert bool(run.rule_state()) == row["method"].startswith("dfa")
            names = {path.name for path in run.path.iterdir()}
            assert names - {"rule.safetensors"} == {"run.json", "model.safetensors", "train.jsonl"}

    def test_the_record_holds_command_versions_and_configuration(self, trained):
        folder, done = trained
        record = walkback.load(folder / rows(done.stdout)[0]["path"]).record
        assert record["command"].startswith("walkback train --method bp")
        assert record["versions"]["walkback"] == __version__
        assert {"python", "torch", "numpy"} <= record["versions"].keys()
        assert record["config"]["batch"] == 32

    def test_the_table_has_a_row_for_each_run(self, here, capsys):
        assert main(["train", "--method", "bp", "fa", *TINY, "--quiet"]) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        lines = printed.out.splitlines()
        assert "Test accuracy" in lines[0]
        assert [line.split()[:2] for line in lines[2:]] == [["bp", "42"], ["fa", "42"]]
        ends = [path.name.rpartition("_")[2] for path in sorted((here / "runs").iterdir())]
        assert [line.split()[-1] for line in lines[2:]] == ends

    def test_the_plan_is_printed_on_stderr(self, here, capsys):
        assert main(["train", *TINY]) == 0
        printed = capsys.readouterr()
        assert printed.err.startswith("Plan: 1 run, about ")
        assert "Plan" not in printed.out

    def test_a_dry_run_prints_the_plan_and_makes_nothing(self, here, capsys):
        words = ["train", "--method", "bp", "bp:shell=bp", "dfa", *TINY, "--dry-run"]
        assert main(words) == 0
        assert capsys.readouterr().out.startswith("Plan: 3 runs, about ")
        assert main([*words, "--json"]) == 0
        found = rows(capsys.readouterr().out)
        assert [row["methods"] for row in found] == [["bp", "bp:shell=bp"], ["dfa"]]
        assert contents(here) == {}

    def test_the_plan_of_a_resumed_training_counts_the_epochs_left(self, here, capsys):
        words = ["train", "--method", "bp", "dfa", *TINY, "--driver", "single"]
        assert stop_after_one_epoch(words) == 2
        capsys.readouterr()
        assert main([*words, "--dry-run", "--resume", "--json"]) == 0
        started, other = rows(capsys.readouterr().out)
        assert (started["epochs"], other["epochs"]) == (1, 2)
        assert main([*words, "--dry-run", "--resume"]) == 0
        assert "  1 of 2  " in capsys.readouterr().out
        assert main([*words, "--dry-run"]) == 3
        assert "--resume" in capsys.readouterr().err
        assert main([*words, "--resume"]) == 0
        capsys.readouterr()
        assert main([*words, "--dry-run", "--resume"]) == 0
        printed = capsys.readouterr().out
        assert "every run is finished" in printed
        assert "Plan" not in printed

    def test_settings_of_arch_and_data_may_be_given_by_set(self, here, capsys):
        short = ["train", "--epochs", "1", "--json"]
        others = ["arch.d=8", "arch.depth=2", "data.train=256", "data.test=64"]
        assert main([*short, "--set", "batch=32", *others]) == 0
        (first,) = rows(capsys.readouterr().out)
        assert main([*short, *SIZES, "--set", "batch=32", "--resume"]) == 0
        assert rows(capsys.readouterr().out) == [first]

    @pytest.mark.slow
    def test_precision_is_recorded_as_the_dtype_of_the_run(self, here, capsys):
        words = ["train", *TINY, "--json"]
        done = call(*words, "--precision", "tf32", "--quiet", cwd=here)
        assert (done.returncode, done.stderr) == (0, "")
        found = {"tf32": walkback.load(here / rows(done.stdout)[0]["path"])}
        assert "--precision tf32" in found["tf32"].record["command"]

        def path_of(*more):
            assert main([*words, *more]) == 0
            return here / rows(capsys.readouterr().out)[0]["path"]

        for precision in ("fp32", "fp64"):
            found[precision] = walkback.load(path_of("--precision", precision))
        kinds = {precision: run.record["dtype"] for precision, run in found.items()}
        assert kinds == {"fp32": "float32", "tf32": "tf32", "fp64": "float64"}
        assert {precision: run.record["config"]["dtype"] for precision, run in found.items()} == kinds
        assert path_of("--resume") == found["fp32"].path, "fp32 is the default"
        again = path_of("--precision", "tf32", "--set", "dtype=tf32", "--resume")
        assert again == found["tf32"].path, "the same dtype given twice is no conflict"

    def test_both_drivers_train_the_same_runs(self, here, capsys):
        found = []
        for driver in ("single", "fleet"):
            assert main(["train", "--method", "dfa", *TINY, "--driver", driver, "--out", driver, "--json"]) == 0
            found += rows(capsys.readouterr().out)
        assert found[0]["run"] == found[1]["run"]
        assert found[0]["test_acc"] == pytest.approx(found[1]["test_acc"], abs=2 / 64)

    def test_existing_runs_are_refused_and_untouched(self, trained):
        folder, done = trained
        before = contents(folder)
        again = call("train", "--method", "fa", "bp", "--seeds", 2, *TINY, cwd=folder)
        assert (again.returncode, again.stdout) == (3, "")
        name = next(row["run"] for row in rows(done.stdout) if (row["method"], row["seed"]) == ("bp", 2))
        assert all(part in again.stderr for part in (f"runs/{name}", "--resume", "--out"))
        assert contents(folder) == before

    def test_resume_skips_finished_runs_and_adds_new_ones(self, trained, here, capsys):
        folder, done = trained
        shutil.copytree(folder / "runs", here / "runs")
        before = contents(here)
        words = ["train", "--method", "bp", "fa", "--seeds", "1", *TINY, "--resume"]
        assert main([*words, "--json"]) == 0
        again, new = rows(capsys.readouterr().out)
        assert again == rows(done.stdout)[0]
        assert (new["method"], new["status"]) == ("fa", "done")
        assert main(words) == 0
        assert "2 finished runs skipped" in capsys.readouterr().err
        after = contents(here)
        assert {name: after[name] for name in before} == before

    @pytest.mark.parametrize("driver", [pytest.param("fleet", marks=pytest.mark.slow), "single"])
    def test_stopping_at_a_time_limit_and_resuming_gives_the_same_bits(self, here, capsys, driver):
        words = ["train", "--method", "bp", "dfa", "--seeds", "1", "2", *TINY, "--driver", driver, "--json", "--out"]
        assert main([*words, "through"]) == 0
        through = rows(capsys.readouterr().out)
        stops = 0
        while (code := main([*words, "stopped", "--max-seconds", "1e-9", *(["--resume"] if stops else [])])) == 2:
            printed = capsys.readouterr()
            stops += 1
            assert len(rows(printed.out)) == 4
            assert re.search(r"unfinished.*--resume", printed.err)
            # That limit is reached before the first step; now train one epoch of one fleet.
            assert stop_after_one_epoch([*words, "stopped", "--resume"]) in (0, 2)
            capsys.readouterr()
            assert stops < 20
        assert code == 0
        assert stops > 2
        for row in through:
            for name in FINAL:
                one, other = (here / out / row["run"] / name for out in ("through", "stopped"))
                assert one.exists() == other.exists()
                assert not one.exists() or one.read_bytes() == other.read_bytes(), f"{row['run']}/{name}"

    def test_an_interrupt_leaves_a_folder_that_resumes_to_the_same_bits(self, here, capsys, monkeypatch):
        words = ["train", "--method", "bp", "dfa", *TINY, "--quiet", "--out"]
        assert main([*words, "through"]) == 0
        real, calls = Fleet.train_epoch, []

        def interrupted(fleet, tick):
            calls.append(fleet)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return real(fleet, tick)

        with monkeypatch.context() as patch:
            patch.setattr(Fleet, "train_epoch", interrupted)
            assert main([*words, "stopped"]) == 2
        assert re.fullmatch(r"\nwalkback: interrupted[^\n]*--resume[^\n]*\n", capsys.readouterr().err)
        runs = [walkback.load(path) for path in store.find_runs(here / "stopped")]
        assert [run.is_done for run in runs] == [True, False]
        assert main([*words, "stopped", "--resume"]) == 0
        for run in runs:
            for name in FINAL:
                path = here / "through" / run.name / name
                assert not path.exists() or path.read_bytes() == (run.path / name).read_bytes()

    def test_a_real_interrupt_ends_with_exit_code_2_and_no_traceback(self, tmp_path):
        line = [sys.executable, "-m", "walkback", "train", *TINY, "--epochs", "10000"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

        def enable_interrupts():
            # Processes that a shell starts in the background ignore SIGINT, and so do their children.
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        with subprocess.Popen(line, cwd=tmp_path, preexec_fn=enable_interrupts, **pipes) as process:
            try:
                while not list(tmp_path.glob("runs/*/train.jsonl")) and process.poll() is None:
                    os.sched_yield()
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=30)
            finally:
                process.kill()
        assert (process.returncode, out) == (2, "")
        assert "Traceback" not in err
        assert re.search(r"\nwalkback: interrupted[^\n]*--resume[^\n]*\n\Z", err)
        (path,) = store.find_runs(tmp_path / "runs")
        assert not walkback.load(path).is_done


def stop_after_one_epoch(words):
    """Like --max-seconds, but without a clock: the limit is reached exactly when the first epoch has ended."""
    with pytest.MonkeyPatch.context() as patch:
        ended = []
        for driver in (Fleet, Single):
            real = driver.train_epoch
            patch.setattr(driver, "train_epoch", lambda self, tick, real=real: (ended.append(1), real(self, tick))[1])
        patch.setattr("walkback.runs.deadline.time", types.SimpleNamespace(monotonic=lambda: 1e6 * len(ended)))
        return main([*words, "--max-seconds", "1"])


class TestList:
    @pytest.mark.parametrize(
        ("what", "names"),
        [
            ("methods", {"bp", "fa", "dfa", "sham"}),
            ("archs", {"resmlp"}),
            ("data", {"prototypes", "cifar10", "cifar100"}),
        ],
    )
    def test_catalogs(self, here, capsys, what, names):
        assert main(["ls", what, "--json"]) == 0
        found = rows(capsys.readouterr().out)
        assert names <= {row["name"] for row in found}
        assert all(row["summary"] for row in found)
        assert main(["ls", what]) == 0
        out = capsys.readouterr().out
        assert all(name in out for name in names)

    def test_runs(self, trained, here, capsys):
        folder, done = trained
        assert main(["ls", "runs", str(folder / "runs"), "--json"]) == 0
        found = rows(capsys.readouterr().out)
        wanted = [{key: row[key] for key in ("run", "method", "seed", "test_acc")} for row in rows(done.stdout)]
        assert [{key: row[key] for key in wanted[0]} for row in found] == sorted(wanted, key=lambda row: row["run"])
        assert {row["status"] for row in found} == {"done"}

    def test_an_empty_and_a_missing_folder(self, here, capsys):
        (here / "runs").mkdir()
        assert main(["ls", "runs"]) == 0
        assert capsys.readouterr().out == "no runs in runs\n"
        assert main(["ls", "runs", "nowhere"]) == 3
        assert "nowhere" in capsys.readouterr().err


class TestDoctor:
    def test_all_checks_pass_and_no_file_is_left(self, tmp_path):
        done = call("doctor", "--json", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        found = {row["check"]: row for row in rows(done.stdout)}
        assert list(found) == ["walkback", "python", "torch", "device", "precision", "step", "data", "disk"]
        assert all(row["ok"] for row in found.values())
        assert "cifar10 absent" in found["data"]["seen"]
        assert re.search(r"\de-0[78] in products and \de-0[78] in conv", found["precision"]["seen"])
        assert contents(tmp_path) == {}

    def test_a_failed_check_is_marked_and_ends_with_exit_code_2(self, here, capsys, monkeypatch):
        doctor = importlib.import_module("walkback.cli.commands.doctor")

        def broken():
            raise RuntimeError("no such device")

        monkeypatch.setattr(doctor, "_step", broken)
        assert main(["doctor"]) == 2
        lines = capsys.readouterr().out.splitlines()
        assert [line.split() for line in lines if line.startswith("fails")] == [
            ["fails", "step", "no", "such", "device"]
        ]

    @pytest.mark.parametrize("which", ["matmul", "conv2d"])
    def test_the_precision_check_fails_with_the_error_of_tf32(self, here, capsys, monkeypatch, which):
        home = {"matmul": torch, "conv2d": torch.nn.functional}[which]
        exact = getattr(home, which)

        def coarse(*factors):
            return exact(*(to_tf32(each) if each.dtype == torch.float32 else each for each in factors))

        monkeypatch.setattr(home, which, coarse)
        assert main(["doctor"]) == 2
        (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("fails"))
        assert line.split()[1] == "precision"
        assert re.search(r"\de-04 in " + {"matmul": "products", "conv2d": "convolutions"}[which], line)


@pytest.mark.slow
def test_the_demo_shows_every_method_beside_its_frozen_baseline(tmp_path):
    done = call("demo", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = rows(done.stdout)
    oracles = {row["method"] for row in found if "credit=exact" in row["method"]}
    assert len(found) == len(DEMO_SEEDS) * (2 * len(DEMO_METHODS) + len(oracles))
    assert all(row["status"] == "done" for row in found)
    accuracy = {(row["method"], row["seed"]): row["test_acc"] for row in found}
    assert all(accuracy["bp", seed] > max(0.9, accuracy["bp:shell=bp", seed]) for seed in DEMO_SEEDS)
    verdicts = {(row["method"], row["verdict"]) for row in found if "verdict" in row}
    assert ("bp", "trustworthy") in verdicts
    assert {verdict for method, verdict in verdicts if method == DEMO_METHODS[-1]} == {"walked_back"}
    again = call("demo", cwd=tmp_path)
    assert again.returncode == 0
    assert f"{len(found)} finished runs skipped" in again.stderr
    lines = again.stdout.splitlines()
    assert len(lines) <= 14
    assert max(map(len, lines)) <= 110
    mean = fmean(accuracy["bp", seed] for seed in DEMO_SEEDS)
    assert f"{100 * mean:.0f} %" in lines[0]
    full = call("demo", "--full", "--quiet", cwd=tmp_path)
    assert f"{mean:.3f}" in full.stdout


class TestImports:
    LIGHT = frozenset({"torch", "numpy", "walkback_papers"})

    @pytest.mark.parametrize(
        ("code", "absent"),
        [
            ("import walkback", {"torch", "numpy", "rich"}),
            ("from walkback.cli.main import main; assert main(['--help']) == 0", {"torch", "numpy", "rich"}),
            ("from walkback.cli.main import main; assert main(['train', '--help']) == 0", LIGHT),
            ("from walkback.cli.main import main; assert main(['ls', '--help']) == 0", LIGHT),
            ("from walkback.cli.main import main; assert main(['ls', 'methods']) == 0", LIGHT),
            ("from walkback.cli.main import main; assert main(['ls', 'studies']) == 0", {"torch", "numpy"}),
            ("from walkback.cli.main import main; assert main(['ls', 'archs', '--json']) == 0", {"torch", "numpy"}),
            ("from walkback.cli.main import main; assert main(['nonsense']) == 3", {"torch", "numpy", "rich"}),
            ("import walkback.runs.store", {"torch"}),
        ],
    )
    def test_commands_import_no_more_than_they_need(self, tmp_path, code, absent):
        check = f"{code}; import sys; loaded = {set(absent)} & set(sys.modules); assert not loaded, loaded"
        done = subprocess.run([sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_no_package_shadows_a_public_name(self):
        before = {name: getattr(walkback, name) for name in walkback.__all__}
        for module in pkgutil.walk_packages(walkback.__path__, "walkback."):
            # Many builds of torch have no Triton, which this module imports.
            if not module.name.endswith(("__main__", "tensorcore_kernel")):
                importlib.import_module(module.name)
        for name, thing in before.items():
            assert getattr(walkback, name) is thing
            assert callable(thing) or name == "__version__"
            assert not isinstance(thing, type(sys)), f"{name} is a module"

"""Running studies: at once, interrupted, again from stored results; by the command and by the Python function."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mini import SCALE, STUDIES

import walkback
from dying import DIED, contents
from walkback.auditing.epoch_monitor import EpochMonitor
from walkback.auditing.measure_run import RunMeasurer
from walkback.cli.main import main
from walkback.core.content_hash import with_hash
from walkback.core.errors import InputError, WalkbackError
from walkback.core.measurements import Measurements
from walkback.data.dataset import CatalogSource
from walkback.judge.options import JudgeOptions
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report import study_pages
from walkback.runs import store, train_runs
from walkback.runs.train_runs import ProgressListener, TrainOptions
from walkback.training.fleet import Fleet
from walkback_papers import run_studies as run_studies_module
from walkback_papers import scale as scales
from walkback_papers.results import Results
from walkback_papers.run_studies import run_studies, write_reports

MINI = {"mini": STUDIES["mini"]}


def options(out, **given):
    return TrainOptions(out=out, device="cpu", **given)


def pages(out, name="mini"):
    return {path.name: path.read_bytes() for path in sorted((out / name).iterdir())}


@pytest.fixture(autouse=True)
def catalog(monkeypatch):
    """Replace the catalog by the small studies at their small scale."""
    monkeypatch.setattr(run_studies_module, "all_studies", lambda: dict(STUDIES))
    monkeypatch.setitem(scales.SCALES, "smoke", SCALE)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The output folder of both studies, run without interruption."""
    out = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_studies_module, "all_studies", lambda: dict(STUDIES))
        done = run_studies(STUDIES, SCALE, options(out), ProgressListener())
    assert done.unfinished == 0
    return out


@pytest.fixture
def copied(whole, tmp_path):
    """A copy of `whole` that a test may change."""
    return Path(shutil.copytree(whole, tmp_path / "copy"))


class Epochs(Counter):
    """Counts the epochs for which each run is trained."""

    def __init__(self, monkeypatch):
        super().__init__()
        real = Fleet.train_epoch

        def counted(fleet, tick):
            self.update(resolved.name for resolved in fleet.resolved_runs)
            return real(fleet, tick)

        monkeypatch.setattr(Fleet, "train_epoch", counted)


@pytest.fixture
def epochs(monkeypatch):
    return Epochs(monkeypatch)


class TestOnce:
    def test_every_run_of_both_studies_is_trained_once_and_the_data_are_read_once(
        self, tmp_path, epochs, whole, monkeypatch
    ):
        read, load = [], CatalogSource.load
        monkeypatch.setattr(CatalogSource, "load", lambda source, root: read.append(source) or load(source, root))
        run_studies(STUDIES, SCALE, options(tmp_path), ProgressListener())
        assert len(read) == len(set(read)) == 1
        assert set(epochs.values()) == {3}
        # bp, dfa, fa; dfa's seed 7 with its three baselines; the frozen baselines of bp, dfa and fa.
        assert len(epochs) == 3 + 4 + 3
        assert {path.name for path in (tmp_path / "runs").iterdir()} == set(epochs)
        assert pages(tmp_path, "other") == pages(whole, "other")

    @pytest.mark.slow
    def test_a_second_study_trains_only_what_it_adds(self, tmp_path, epochs, whole):
        run_studies(MINI, SCALE, options(tmp_path), ProgressListener())
        first = dict(epochs)
        written = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/*.*")}
        epochs.clear()
        run_studies({"other": STUDIES["other"]}, SCALE, options(tmp_path), ProgressListener())
        assert not epochs.keys() & first.keys()
        assert {path: path.stat().st_mtime_ns for path in written} == written
        assert pages(tmp_path, "other") == pages(whole, "other")

    def test_training_time_is_recorded_by_device(self, copied):
        records = [json.loads(path.read_text()) for path in sorted((copied / "runs").glob("*/run.json"))]
        ((device, (runs, seconds)),) = Results(copied / "runs").run_index.training().items()
        assert device == records[0]["device"]
        assert runs == len(records) == 10
        assert seconds == pytest.approx(sum(record["timings"]["seconds"] for record in records))
        # Five fleets shared the device.
        shared = next((copied / "runs").glob("bp_*/run.json"))
        record = json.loads(shared.read_text())
        record["timings"]["places"] = 5
        shared.write_text(json.dumps(with_hash(record)))
        ((_, (_, less)),) = Results(copied / "runs").run_index.training().items()
        assert seconds - less == pytest.approx(0.8 * record["timings"]["seconds"])

    def test_only_the_answers_of_a_baseline_are_stored(self, whole):
        for path in (whole / "runs").iterdir():
            is_baseline = "shell=" in path.name or ("_s7_" in path.name and path.name.startswith("bp"))
            found = {each.name for each in path.glob("*.npz")} - {"functional.npz"}
            assert found == {"answers.npz" if is_baseline else "measurements.npz"}, path.name

    def test_a_baseline_is_measured_in_full_when_a_study_needs_it(self, copied):
        """A full measurement also serves as a baseline's answers."""
        (path,) = (copied / "runs").glob("bp_*s1_*")
        (copied / "runs" / path.name / "measurements.npz").unlink()
        assert run_studies(MINI, SCALE, options(copied), ProgressListener()).unfinished == 0
        assert (path / "measurements.npz").is_file()
        assert not (path / "answers.npz").exists()

    def test_a_report_does_not_depend_on_other_runs_in_the_folder(self, tmp_path, whole):
        """The second study adds a seed of DFA; the first must report only its own seeds."""
        run_studies(MINI, SCALE, options(tmp_path), ProgressListener())
        assert pages(tmp_path) == pages(whole)
        with pytest.raises(InputError, match="no finished run bp_"):
            Results(whole / "runs").limited_to(["none"]).case(SCALE.runs(["bp"])[0])

    def test_running_a_finished_study_again_only_writes_its_pages(self, whole, epochs, monkeypatch):
        monkeypatch.setattr(RunMeasurer, "measure", lambda *_: pytest.fail("measured again"))
        monkeypatch.setattr(RunMeasurer, "measure_functional", lambda *_, **__: pytest.fail("measured again"))
        before = contents(whole)
        assert run_studies(STUDIES, SCALE, options(whole), ProgressListener()).unfinished == 0
        assert not epochs
        assert contents(whole) == before


class TestStoredOnly:
    @pytest.fixture
    def bare(self, copied):
        """A finished study without its models."""
        weights = [path for name in (store.MODEL, store.RULE) for path in (copied / "runs").glob(f"*/{name}")]
        assert len(weights) > 10
        for path in weights:
            path.unlink()
        return copied

    def test_rendering_again_gives_the_same_bytes_without_models(self, bare, whole):
        before = pages(bare)
        for path in (bare / "mini").iterdir():
            path.unlink()
        assert main(["study", "mini", "--render", "--out", str(bare)]) == 0
        assert pages(bare) == before == pages(whole)

    def test_other_thresholds_need_no_models(self, bare):
        (config,) = SCALE.runs(["dfa"])
        strict = JudgeOptions(DiagnosticThresholds(h_norm_explosion_ratio=1.0001))
        lax = JudgeOptions(DiagnosticThresholds(h_norm_explosion_ratio=1e6))
        flags = [
            Results(bare / "runs", judge_options).case(config).report.flags["D1"] for judge_options in (strict, lax)
        ]
        assert [flag.status for flag in flags] == ["raised", "clear"]
        assert flags[0].value == flags[1].value

    def test_rendering_runs_and_reads_no_model(self, bare, monkeypatch):
        monkeypatch.setattr("torch.nn.functional.linear", lambda *_: pytest.fail("a model was run"))
        monkeypatch.setattr(store.Run, "model", lambda *_: pytest.fail("a model was read"))
        assert write_reports(MINI, SCALE, bare)[0].findings[0].holds

    def test_a_missing_measurement_is_reported(self, bare, capsys):
        (measured,) = (bare / "runs").glob("dfa_*s1_*/measurements.npz")
        measured.unlink()
        assert main(["study", "mini", "--render", "--out", str(bare)]) == 3
        assert "measurements.npz is missing" in capsys.readouterr().err


class Stop(BaseException):
    """Like Ctrl-C: no `except Exception` may swallow it."""


def stops_at(number, real):
    """The function `real`, except that its n-th call (from 0) raises `Stop`."""
    calls = iter(range(10**9))

    def called(*words, **named):
        if next(calls) == number:
            raise Stop
        return real(*words, **named)

    return called


class TestInterrupted:
    """Wherever it is stopped, the same call completes the study, with the same pages as without a stop."""

    def interrupted(self, out, where, name, number):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where, name, stops_at(number, getattr(where, name)))
            with pytest.raises(Stop):
                run_studies(MINI, SCALE, options(out, checkpoint_seconds=0), ProgressListener())

    @pytest.mark.parametrize("number", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 2, 4))])
    def test_while_training(self, tmp_path, epochs, whole, number):
        self.interrupted(tmp_path, EpochMonitor, "after_epoch", number)
        run_studies(MINI, SCALE, options(tmp_path), ProgressListener())
        # Only epochs whose log rows were not written are trained again.
        again = [name for name, count in epochs.items() if count != 3]
        assert all(epochs[name] == 4 for name in again)
        assert 1 <= len(again) < len(epochs)
        assert pages(tmp_path) == pages(whole)

    def test_a_fleet_is_measured_before_the_next_is_trained(self, tmp_path):
        self.interrupted(tmp_path, train_runs, "_train_group", 1)
        finished = [path.parent for path in (tmp_path / "runs").glob(f"*/{store.MODEL}")]
        assert finished
        assert all(list(path.glob("measurements.npz")) + list(path.glob("answers.npz")) for path in finished)

    @pytest.mark.parametrize("number", [0, 1])
    def test_between_two_measurements(self, copied, epochs, whole, number, monkeypatch):
        for path in (copied / "runs").glob("*/measurements.npz"):
            path.unlink()
        self.interrupted(copied, RunMeasurer, "measure", number)
        assert len(list((copied / "runs").glob("*/measurements.npz"))) == number
        calls = []
        real = RunMeasurer.measure
        monkeypatch.setattr(RunMeasurer, "measure", lambda *given: (calls.append(1), real(*given))[1])
        run_studies(MINI, SCALE, options(copied), ProgressListener())
        assert not epochs
        assert len(calls) == 2 - number, "frozen baselines need only their answers"
        assert pages(copied) == pages(whole)

    @pytest.mark.parametrize("number", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 6))])
    def test_while_rendering(self, copied, epochs, whole, number):
        shutil.rmtree(copied / "mini")
        self.interrupted(copied, study_pages, "write_atomic", number)
        run_studies(MINI, SCALE, options(copied), ProgressListener())
        assert not epochs
        assert pages(copied) == pages(whole)

    @pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
    @pytest.mark.parametrize("name", ["measurements.npz", "functional.npz"])
    def test_a_truncated_measurement_is_taken_again(self, whole, copied, name, share):
        (path,) = (copied / "runs").glob(f"dfa_*s1_*/{name}")
        data = path.read_bytes()
        path.write_bytes(data[: int(share * len(data))])
        run_studies(MINI, SCALE, options(copied), ProgressListener())
        original = Measurements.load(next((whole / "runs").glob(f"dfa_*s1_*/{name}")))
        again = Measurements.load(path)
        assert again.arrays.keys() == original.arrays.keys()
        for key, values in original.arrays.items():
            np.testing.assert_array_equal(again.arrays[key], values, err_msg=key)
        assert pages(copied) == pages(whole)

    def test_measurements_of_other_weights_are_taken_again(self, whole, copied):
        (path,) = (copied / "runs").glob("dfa_*s1_*/measurements.npz")
        (other,) = (copied / "runs").glob("dfa_*s7_*/measurements.npz")
        path.write_bytes(other.read_bytes())
        run_studies(MINI, SCALE, options(copied), ProgressListener())
        assert pages(copied) == pages(whole)

    def test_the_time_limit_stops_measuring_too(self, copied, epochs, whole):
        """Earlier measurements are kept."""
        for path in (copied / "runs").glob("*/measurements.npz"):
            path.unlink()
        done = run_studies(MINI, SCALE, options(copied, max_seconds=1e-9), ProgressListener())
        assert done.study_reports == ()
        assert done.unmeasured == done.unfinished == 2
        assert run_studies(MINI, SCALE, options(copied), ProgressListener()).unfinished == 0
        assert not epochs
        assert pages(copied) == pages(whole)

    @pytest.mark.slow
    def test_runs_trained_without_detectors_are_refused(self, tmp_path):
        place = SCALE.places["resmlp"]
        given = {"arch": place.arch, "data": place.data, "seeds": 1, "epochs": 3, **SCALE.settings}
        walkback.train("bp", out=tmp_path / "runs", device="cpu", **given)
        with pytest.raises(InputError, match=r"runs/bp_\S+ was trained without detectors.*Move that folder away"):
            run_studies(MINI, SCALE, options(tmp_path), ProgressListener())

    def test_runs_without_a_measurement_after_an_epoch_are_refused(self, copied):
        (path,) = (copied / "runs").glob("dfa_*s1_*/epochs/0002.npz")
        path.unlink()
        for work in (lambda: run_studies(MINI, SCALE, options(copied), ProgressListener()),
                     lambda: write_reports(MINI, SCALE, copied)):  # fmt: skip
            with pytest.raises(InputError, match=r"runs/dfa_\S+ .*after epoch 2\b.*Move that folder away"):
                work()


KILLS = """if True:
    import os, sys
    from pathlib import Path
    import dying, mini
    from walkback_papers import run_studies
    from walkback.runs.train_runs import ProgressListener, TrainOptions
    run_studies.all_studies = lambda: dict(mini.STUDIES)
    def work(out):
        given = TrainOptions(out=out, device="cpu", checkpoint_seconds=0)
        run_studies.run_studies({"mini": mini.STUDIES["mini"]}, mini.SCALE, given, ProgressListener())
    out, step = Path(sys.argv[1]), int(sys.argv[2])
    operation, lives = step, 0
    while dying.dies(operation, lambda: work(out / "cut")):
        operation, lives = operation + step, lives + 1
    print(lives)
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 11])
def test_a_study_completes_after_repeated_kills(tmp_path, whole, step):
    """`kill -9` before every n-th file operation, later each time; each child resumes what the one before left."""
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-c", KILLS, str(tmp_path), str(step)]
    done = subprocess.run(line, env=place, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 3, (done.stdout, DIED)
    assert pages(tmp_path / "cut") == pages(whole)
    assert list((tmp_path / "cut").rglob(".*.tmp")) == []


class TestCommand:
    def study(self, *words):
        return main(["study", *map(str, words)])

    @pytest.mark.slow
    def test_both_studies_and_their_findings(self, tmp_path, capsys, whole):
        assert self.study("all", "--out", tmp_path, "--device", "cpu", "--processes", 1, "--quiet") == 0
        printed = capsys.readouterr().out
        for name in ("mini", "other"):
            findings = printed.partition(f"{name}: ")[2].partition(str(tmp_path / name / "index.html"))
            assert "  holds: " in findings[0]
            assert findings[1]
        assert pages(tmp_path) == pages(whole)

    def test_json(self, whole, capsys):
        assert self.study("mini", "other", "--render", "--json", "--out", whole) == 0
        lines = capsys.readouterr().out.splitlines()
        reports = [json.loads(line) for line in lines]
        assert [report["name"] for report in reports] == ["mini", "other"]
        assert reports[0] == json.loads((whole / "mini" / "study.json").read_text())

    def test_an_unknown_name_gets_a_suggestion(self, tmp_path, capsys):
        assert self.study("mnii", "--out", tmp_path) == 3
        assert "'mini'" in capsys.readouterr().err

    def test_the_plan_alone(self, tmp_path, capsys):
        assert self.study("mini", "--dry-run", "--out", tmp_path / "none") == 0
        assert "Plan: 4 runs" in capsys.readouterr().out
        assert self.study("mini", "--dry-run", "--json", "--out", tmp_path / "none") == 0
        fleets = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sum(len(fleet["methods"]) for fleet in fleets) == 4
        assert not (tmp_path / "none").exists()

    def test_the_plan_lists_only_missing_runs(self, tmp_path, whole, capsys):
        assert self.study("mini", "--dry-run", "--out", whole) == 0
        printed = capsys.readouterr().out
        assert "All 4 runs" in printed
        assert "Plan" not in printed
        shutil.copytree(whole, tmp_path / "part")
        shutil.rmtree(next((tmp_path / "part" / "runs").glob("bp_*")))
        before = pages(tmp_path / "part")
        assert self.study("mini", "--dry-run", "--out", tmp_path / "part") == 0
        printed = capsys.readouterr().out
        assert "Plan: 1 run," in printed
        assert "3 more runs" in printed
        assert pages(tmp_path / "part") == before

    def test_a_time_limit_gives_exit_2_and_the_same_command_resumes(self, tmp_path, capsys, whole):
        line = ("mini", "--out", tmp_path, "--device", "cpu", "--processes", 1, "--quiet")
        assert self.study(*line, "--max-seconds", "0.001") == 2
        assert re.search(r"\d runs are unfinished.*same command", capsys.readouterr().err)
        assert not (tmp_path / "mini").exists()
        assert self.study(*line) == 0
        assert pages(tmp_path) == pages(whole)

    @pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
    def test_a_time_limit_that_is_not_positive_is_refused(self, tmp_path, capsys, seconds):
        assert self.study("mini", "--out", tmp_path, f"--max-seconds={seconds}") == 3
        assert re.search(r"--max-seconds is .*more than 0", capsys.readouterr().err)

    def test_rendering_without_results_is_refused(self, tmp_path, capsys):
        assert self.study("mini", "--render", "--out", tmp_path) == 3
        assert re.search(r"no finished run \S+_s1", capsys.readouterr().err)


class TestFunction:
    @pytest.mark.slow
    def test_it_does_what_the_command_does(self, tmp_path, whole):
        (study_report,) = walkback.study("mini", scale="smoke", out=tmp_path, device="cpu")
        assert study_report.findings[0].holds
        assert pages(tmp_path) == pages(whole)
        assert walkback.study(["mini"], out=str(tmp_path), render=True) == (study_report,)

    def test_an_unfinished_study_has_no_report(self, tmp_path):
        assert walkback.study("mini", out=tmp_path, device="cpu", max_seconds=1e-3) == ()

    @pytest.mark.parametrize(("given", "message"), [
        ({"name": "mnii"}, "Did you mean 'mini'"),
        ({"name": "mini", "scale": "smok"}, "Did you mean 'smoke'"),
        ({"name": "mini", "device": "gpu"}, "device.*'gpu'"),
    ])  # fmt: skip
    def test_mistakes_are_input_errors(self, tmp_path, given, message):
        with pytest.raises(InputError, match=message):
            walkback.study(out=tmp_path, **given)


def test_every_study_of_the_catalog_can_be_planned_at_both_scales(monkeypatch):
    monkeypatch.undo()
    for name, study in run_studies_module.all_studies().items():
        for scale in (scales.SMOKE, scales.PAPER):
            resolved_runs = run_studies_module.runs_of_studies([study], scale)
            names = [each.name for each in (*resolved_runs, *study.experiments(scale))]
            assert names, name
            assert len(set(names)) == len(names)


def test_a_damaged_run_is_named(copied):
    (path,) = (copied / "runs").glob("dfa_*s1_*/run.json")
    path.write_text("{")
    with pytest.raises(WalkbackError, match=r"run.json cannot be read"):
        run_studies(MINI, SCALE, options(copied), ProgressListener())


def test_an_unknown_place_is_refused():
    with pytest.raises(InputError, match="Did you mean 'resmlp'"):
        SCALE.runs(["bp"], place="resmpl")
    assert replace(SCALE, seeds=(3,)).runs(["bp"])[0].seed == 3

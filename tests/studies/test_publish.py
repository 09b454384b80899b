"""Publishing results: a smaller copy without weights, whose pages are made from the copied numbers; or an error."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from mini import SCALE, STUDIES

from dying import contents
from walkback.cli.main import main
from walkback.core.content_hash import SHA256, with_hash
from walkback.core.errors import InputError
from walkback.core.measurements import Measurements
from walkback.report import figures, study_pages
from walkback.runs.store import LOG_HASH, MODEL, RULE, open_run
from walkback.runs.train_runs import ProgressListener, TrainOptions
from walkback_papers import run_studies as run_studies_module
from walkback_papers import scale as scales
from walkback_papers.publish import BITS, publish
from walkback_papers.run_studies import run_studies, runs_of_studies, write_reports

MINI = {"mini": STUDIES["mini"]}
FILES = ("measurements.npz", "functional.npz", "epochs/0001.npz", "epochs/0002.npz")


def drawn(figure, form):
    """A fast replacement for drawing: different values give different bytes."""
    return f"<svg>{form} {json.dumps(figure.to_json())}</svg>".encode()


@pytest.fixture(scope="module", autouse=True)
def small():
    """Replace the catalog by the small studies at their small scale."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study_pages, "draw", drawn)
        patch.setattr(run_studies_module, "all_studies", lambda: dict(STUDIES))
        patch.setitem(scales.SCALES, "smoke", SCALE)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The output folder of both studies."""
    out = tmp_path_factory.mktemp("whole")
    assert run_studies(STUDIES, SCALE, TrainOptions(out=out, device="cpu"), ProgressListener()).unfinished == 0
    return out


@pytest.fixture
def copied(whole, tmp_path):
    """A copy of `whole` that a test may change."""
    return Path(shutil.copytree(whole, tmp_path / "copy"))


@pytest.fixture
def target(tmp_path):
    return tmp_path / "results" / "paper"


@pytest.fixture(scope="module")
def first(whole, tmp_path_factory):
    """The folder to which both studies are published."""
    folder = tmp_path_factory.mktemp("first")
    publish(STUDIES, SCALE, whole, folder)
    return folder


@pytest.fixture
def published(first, target):
    """A copy of `first` that a test may change."""
    return Path(shutil.copytree(first, target))


def one(folder, pattern):
    (path,) = (folder / "runs").glob(pattern)
    return path


def times(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "runs").rglob("*")}


class TestCopy:
    def test_paths_in_the_command_are_not_published(self, copied, target):
        path = one(copied, "fa_*") / "run.json"
        record = json.loads(path.read_text())
        command = "walkback study mini --out '/my home/x' --data-root /d --scale smoke"
        path.write_text(json.dumps(with_hash(record | {"command": command})))
        publish(STUDIES, SCALE, copied, target)
        copied_record = json.loads((one(target, "fa_*") / "run.json").read_text())
        own = {key: copied_record[key] for key in (SHA256, LOG_HASH)}
        assert copied_record == record | {"command": "walkback study mini --scale smoke"} | own
        assert publish(STUDIES, SCALE, copied, target).written == 0

    def test_every_run_is_copied_with_its_numbers_and_without_weights(self, whole, published):
        names = {resolved.name for resolved in runs_of_studies(STUDIES.values(), SCALE)}
        assert {path.name for path in (published / "runs").iterdir()} == names
        for name in names:
            old, new = whole / "runs" / name, published / "runs" / name
            kept = {path.relative_to(old) for path in old.rglob("*.*") if path.suffix != ".safetensors"}
            assert {path.relative_to(new) for path in new.rglob("*.*")} == kept
            records = [json.loads((folder / "run.json").read_text()) for folder in (old, new)]
            assert {key for key in records[0] if records[0][key] != records[1][key]} == {SHA256, LOG_HASH}
            assert open_run(new, without=(MODEL, RULE)).log(), "it has the hash of the rounded log"
        monitored = one(published, "dfa_*s1_*")
        assert all((monitored / name).is_file() for name in FILES)
        assert one(published, "bp-*s1_*/answers.npz").is_file()
        assert list(published.rglob("*.safetensors")) == []

    def test_every_number_is_rounded_and_marked_as_such(self, whole, published):
        paths = list((published / "runs").rglob("*.npz"))
        assert len(paths) > 10
        for path in paths:
            old, new = (Measurements.load(file) for file in (whole / path.relative_to(published), path))
            assert new.facts == {**old.facts, "rounded_bits": BITS}
            assert new.arrays.keys() == old.arrays.keys()
            for name, values in old.arrays.items():
                np.testing.assert_allclose(new.arrays[name], values, rtol=2.0**-BITS, atol=0)

    def test_the_copy_is_smaller(self, whole, published):
        def size(folder):
            return sum(path.stat().st_size for path in (folder / "runs").rglob("*.npz"))

        assert size(published) < size(whole) / 2

    def test_the_pages_are_made_from_the_copied_numbers(self, whole, target, tmp_path, monkeypatch):
        monkeypatch.setattr(study_pages, "draw", figures.draw)
        publish(MINI, SCALE, whole, target)
        again = Path(shutil.copytree(target, tmp_path / "clone"))
        shutil.rmtree(again / "mini")
        assert main(["study", "mini", "--render", "--out", str(again)]) == 0
        assert {path.suffix for path in (again / "mini").iterdir()} == {
            ".html", ".json", ".md", ".pdf", ".svg", ".tex",
        }  # fmt: skip
        assert contents(again) == contents(target)

    def test_published_results_count_as_finished(self, published, monkeypatch):
        monkeypatch.setattr("walkback.runs.train_runs._train_group", lambda *_: pytest.fail("trained"))
        before = contents(published)
        assert (
            run_studies(STUDIES, SCALE, TrainOptions(out=published, device="cpu"), ProgressListener()).unfinished == 0
        )
        assert contents(published) == before

    def test_published_results_can_be_published_again(self, published, tmp_path):
        publish(STUDIES, SCALE, published, tmp_path / "again")
        assert contents(tmp_path / "again") == contents(published)


class TestAgain:
    def test_publishing_twice_changes_no_byte_and_touches_no_run(self, whole, published):
        before, when = contents(published), times(published)
        done = publish(STUDIES, SCALE, whole, published)
        assert (done.runs, done.written, done.unused_runs) == (10, 0, ())
        assert contents(published) == before
        assert times(published) == when

    def test_publishing_one_study_at_a_time_gives_the_same_files(self, whole, published, tmp_path):
        for name, study in STUDIES.items():
            publish({name: study}, SCALE, whole, tmp_path / "parts")
        assert contents(tmp_path / "parts") == contents(published)

    @pytest.mark.parametrize("name", ["measurements.npz", "run.json", "train.jsonl"])
    def test_only_damaged_files_are_written_again(self, whole, published, name):
        before, when = contents(published), times(published)
        path = one(published, f"dfa_*s1_*/{name}")
        path.write_bytes(path.read_bytes()[:-7])
        assert publish(STUDIES, SCALE, whole, published).written == 1
        assert contents(published) == before
        touched = {path for path, time in times(published).items() if time != when[path]}
        assert touched == {path, path.parent}

    def test_files_of_an_earlier_training_are_removed(self, published, copied):
        """The run was trained again, now without finite-step metrics."""
        record = one(copied, "fa_*s1_*/run.json")
        record.write_text(json.dumps(with_hash(json.loads(record.read_text()) | {"started": "another day"})))
        old = one(published, "fa_*s1_*/measurements.npz").with_name("functional.npz")
        shutil.copy(one(published, "dfa_*s1_*/functional.npz"), old)
        assert publish(STUDIES, SCALE, copied, published).written == 1
        assert not old.exists()

    def test_runs_that_no_study_needs_are_listed_and_kept(self, whole, published):
        shutil.copytree(one(published, "fa_*s1_*"), published / "runs" / "retired")
        before = contents(published)
        assert publish(MINI, SCALE, whole, published).unused_runs == ("retired",)
        assert contents(published) == before


class TestRefused:
    """Refused with an input error, and nothing is written."""

    def refused(self, message, studies, out, target):
        before = contents(target) if target.exists() else None
        with pytest.raises(InputError, match=message):
            publish(studies, SCALE, out, target)
        assert (contents(target) if target.exists() else None) == before

    @pytest.mark.parametrize("name", [*FILES, "run.json"])
    def test_a_measurement_is_missing(self, copied, target, name):
        path = one(copied, f"dfa_*s1_*/{name}")
        run = path.relative_to(copied / "runs").parts[0]
        path.unlink()
        message = "run.json is missing" if name == "run.json" else f"1 of 10 runs .*{re.escape(run)}"
        self.refused(message, STUDIES, copied, target)

    def test_a_measurement_is_truncated(self, copied, target):
        path = one(copied, "dfa_*s1_*/epochs/0002.npz")
        path.write_bytes(path.read_bytes()[:-7])
        self.refused(r"0002\.npz", STUDIES, copied, target)

    def test_runs_are_missing(self, copied, target):
        for path in (copied / "runs").glob("*_s7_*"):
            shutil.rmtree(path)
        self.refused(r"4 of 10 runs .*bp-shell=bp_\S*_s7_", STUDIES, copied, target)
        self.refused(r"10 of 10 runs", STUDIES, copied / "none", target)

    def test_onto_itself_or_onto_trained_runs(self, whole, copied):
        self.refused("would be rounded", STUDIES, copied, copied / "runs" / "..")
        self.refused(r"\.safetensors holds weights", STUDIES, whole, copied)

    def test_under_the_pages_of_another_study(self, copied, published):
        """Its pages would no longer match the runs."""
        path = one(copied, "dfa_*s1_*/measurements.npz")
        measurements = Measurements.load(path)
        arrays = {**measurements.arrays, "loss": 2 * measurements.arrays["loss"]}
        Measurements(arrays, measurements.facts).save(path)
        self.refused(r"1 run of the study other .*Publish other", MINI, copied, published)
        assert publish(STUDIES, SCALE, copied, published).written == 1


class TestCommand:
    def study(self, *words):
        return main(["study", *map(str, words)])

    def test_it_publishes_and_prints_what_it_wrote(self, whole, target, published, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(run_studies_module, "complete_runs", lambda *_: pytest.fail("trained or measured"))
        before = contents(whole)
        shutil.copytree(one(published, "fa_*s1_*"), tmp_path / "new" / "runs" / "retired")
        assert self.study("mini", "--out", whole, "--publish", tmp_path / "new") == 0
        printed = capsys.readouterr()
        assert str(tmp_path / "new" / "mini" / "index.html") in printed.out
        assert re.search(r"4 runs in .*, 4 of them", printed.out)
        assert "retired" in printed.err
        assert contents(whole) == before
        assert contents(tmp_path / "new" / "mini") == contents(published / "mini")

    def test_json(self, whole, target, capsys):
        assert self.study("all", "--out", whole, "--publish", target, "--json") == 0
        reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [report["name"] for report in reports] == list(STUDIES)

    @pytest.mark.parametrize("other", ["--render", "--dry-run"])
    def test_publish_excludes_render_and_dry_run(self, whole, target, capsys, other):
        assert self.study("mini", "--out", whole, "--publish", target, other) == 3
        assert f"--publish and {other}" in capsys.readouterr().err
        assert not target.exists()

    def test_publishing_without_results_is_refused(self, tmp_path, target, capsys):
        assert self.study("mini", "--out", tmp_path / "none", "--publish", target) == 3
        assert "4 of 4 runs" in capsys.readouterr().err
        assert not target.exists()


class TestRunsBehindAPage:
    """A page links the runs behind it, baselines included, and states the commands that reproduce it."""

    def links(self, text, pattern):
        return [unquote(unescape(link)) for link in re.findall(pattern, text)]

    @pytest.mark.parametrize(("name", "pattern"), [
        ("index.html", r'<a href="(\.\./[^"]+)"'), ("study.md", r"\]\((\.\./[^)]+)\)"),
    ])  # fmt: skip
    def test_every_run_is_linked(self, published, name, pattern):
        for study, one in STUDIES.items():
            page = published / study / name
            links = self.links(page.read_text(), pattern)
            runs = {resolved.name for resolved in runs_of_studies([one], SCALE)}
            assert {(page.parent / link).resolve().parent.name for link in links} == runs
            assert len(links) == len(runs)
            assert all((page.parent / link).is_file() for link in links)

    @pytest.mark.parametrize("name", ["index.html", "study.md", "study.json"])
    def test_the_commands_are_stated(self, published, name):
        text = (published / "mini" / name).read_text()
        assert "walkback study mini --scale smoke --out again" in text
        assert "walkback study mini --scale smoke --out .. --render" in text

    def test_the_second_command_writes_the_same_pages(self, published, monkeypatch):
        command = json.loads((published / "mini" / "study.json").read_text())["commands"][1]
        before = contents(published)
        monkeypatch.chdir(published / "mini")
        assert main(command.partition("#")[0].split()[1:]) == 0
        assert contents(published) == before

    def test_a_study_does_not_name_the_runs_of_another(self, whole):
        (study_report,) = write_reports(MINI, SCALE, whole)
        assert len(study_report.runs) == 4


def test_a_log_is_published_to_seven_digits(published, whole):
    """The precision of float32, in half the space."""
    for path in (published / "runs").glob("*/train.jsonl"):
        ours = [json.loads(line) for line in path.read_text().splitlines()]
        theirs = [json.loads(line) for line in (whole / "runs" / path.parent.name / path.name).read_text().splitlines()]
        assert [row["epoch"] for row in ours] == [row["epoch"] for row in theirs]
        for mine, other in zip(ours, theirs, strict=True):
            assert mine.keys() == other.keys()
            assert mine["loss"] == pytest.approx(other["loss"], rel=1e-6)
            assert mine["hidden"] == pytest.approx(other["hidden"], rel=1e-6)
            assert len(json.dumps(mine)) < len(json.dumps(other))

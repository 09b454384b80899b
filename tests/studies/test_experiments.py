"""Experiments of a study: stored once, resumed, refused if damaged or of other settings, rendered and published."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from walkback.core.errors import InputError
from walkback.report.cells import Cell
from walkback.report.study_report import StudyReport, Table
from walkback.runs.train_runs import ProgressListener, TrainOptions
from walkback_papers.experiments import EXPERIMENTS, Experiment, missing_experiments
from walkback_papers.publish import publish
from walkback_papers.run_studies import run_studies, write_reports
from walkback_papers.scale import SMOKE
from walkback_papers.study import Study
from walkback_papers.tables import make_study_report


class Squares(Study):
    """Two experiments; `performed` notes which were performed, `fails` names one that fails once it has begun."""

    def __init__(self, note: Path, fails: str = ""):
        self.note, self.fails = note, fails

    def runs(self, scale):
        return []

    def experiments(self, scale):
        return [Experiment(f"of-{number}", {"number": number}, self._of(number)) for number in (2, 3)]

    def _of(self, number: int):
        def perform(options: TrainOptions) -> Mapping[str, object]:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "trained").write_text("kept until the result is stored")
            if self.fails == f"of-{number}":
                raise RuntimeError(f"died in {self.fails}")
            with self.note.open("a") as file:
                file.write(f"{number} {options.resume}\n")
            return {"square": number**2}

        return perform

    def report_results(self, results, scale) -> StudyReport:
        squares = [results.of_experiment(experiment)["square"] for experiment in self.experiments(scale)]
        table = Table("squares", "Squares", ("number",), tuple((Cell(str(square)),) for square in squares), "All.")
        return make_study_report("squares", "Squares", "Which?", scale, [], [], tables=[table])


@pytest.fixture
def study(tmp_path):
    return Squares(tmp_path / "performed.txt")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def run(study, out, processes=1, **named):
    options = TrainOptions(out=out, device="cpu", command=("walkback", "study", "--out", "/my home"), **named)
    return run_studies({"squares": study}, SMOKE, options, ProgressListener(), processes=processes)


def performed(study):
    return study.note.read_text().splitlines() if study.note.exists() else []


def stored(out, name="of-2"):
    return out / "squares" / EXPERIMENTS / f"{name}.json"


def table(out):
    return (out / "squares" / "squares.md").read_text()


def test_results_are_stored_without_paths_and_the_page_shows_them(study, out):
    done = run(study, out)
    assert done.unfinished == 0
    assert [[cell.text for cell in row] for row in done.study_reports[0].tables[0].rows] == [["4"], ["9"]]
    document = json.loads(stored(out).read_text())
    assert (document["settings"], document["result"]) == ({"number": 2}, {"square": 4})
    assert document["made"]["command"] == "walkback study"
    assert not [path for path in (out / "squares" / "unfinished").rglob("*") if path.is_file()]


def test_a_result_is_made_once_and_rendering_makes_none(study, out):
    run(study, out)
    run(study, out)
    assert performed(study) == ["2 True", "3 True"]
    (out / "squares" / "squares.md").unlink()
    write_reports({"squares": study}, SMOKE, out)
    assert "| 9 |" in table(out)
    assert len(performed(study)) == 2


def test_an_interrupted_study_keeps_what_is_stored_and_what_was_trained(study, out):
    study.fails = "of-3"
    with pytest.raises(RuntimeError, match="died in of-3"):
        run(study, out)
    assert stored(out).is_file()
    assert (out / "squares" / "unfinished" / "of-3" / "trained").is_file()
    study.fails = ""
    assert run(study, out).unfinished == 0
    assert performed(study) == ["2 True", "3 True"]
    assert not (out / "squares" / "unfinished" / "of-3").exists()


def test_no_experiment_is_begun_after_the_time_limit(study, out):
    done = run(study, out, max_seconds=0.0)
    assert (done.unfinished, done.study_reports, performed(study)) == (2, (), [])


def test_a_changed_result_or_one_of_other_settings_is_refused_and_kept(study, out):
    run(study, out)
    good = stored(out).read_text()
    for bad, message in (
        (good.replace('"square": 4', '"square": 5'), "sha256 differs"),
        (good[:50], "cannot be read as JSON"),
        ("[]", "has a list; expected a JSON object"),
    ):
        stored(out).write_text(bad)
        with pytest.raises(InputError, match=message):
            run(study, out)
        assert stored(out).read_text() == bad
    stored(out).write_text(good)
    changed = Experiment("of-2", {"number": 5}, lambda options: {})
    with pytest.raises(InputError, match="other settings"):
        missing_experiments([changed], out / "squares")


def test_published_results_give_the_same_pages(study, out, tmp_path):
    target = tmp_path / "published"
    with pytest.raises(InputError, match=r"2 experiments .* of-2 of squares"):
        publish({"squares": study}, SMOKE, out, target)
    assert not target.exists()
    run(study, out)
    publish({"squares": study}, SMOKE, out, target)
    assert stored(target).read_bytes() == stored(out).read_bytes()
    assert table(target) == table(out)
    assert not (target / "squares" / "unfinished").exists()
    before = stored(target).stat().st_mtime_ns
    publish({"squares": study}, SMOKE, out, target)
    assert stored(target).stat().st_mtime_ns == before


def test_rendering_without_a_result_says_what_is_missing(study, out):
    with pytest.raises(InputError, match=r"of-2\.json is missing"):
        write_reports({"squares": study}, SMOKE, out)


@pytest.mark.slow
def test_experiments_are_shared_between_processes(study, out):
    done = run(study, out, processes=2)
    assert done.unfinished == 0
    assert sorted(performed(study)) == ["2 True", "3 True"]
    assert "| 9 |" in table(out)

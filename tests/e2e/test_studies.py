"""Two studies as a user runs them: one command, two processes, pages at the end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from walkback.core.errors import InputError
from walkback.runs.train_runs import TrainOptions
from walkback.sweeping.sweep import options_json
from walkback.sweeping.worker import run_job
from walkback.training.planning.fleet_plan import FleetGroup
from walkback.training.planning.load_balance import Workers
from walkback_papers.run_studies import runs_of_studies, studies_of
from walkback_papers.scale import SMOKE
from walkback_papers.timings import TIMINGS, Timings, timings

NAMES = ("capacity-control", "fresh-b-null")


def walkback(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "walkback", *map(str, words)], capture_output=True, text=True)


@pytest.fixture(scope="module")
def finished_studies(tmp_path_factory):
    out = tmp_path_factory.mktemp("studies")
    done = walkback("study", *NAMES, "--scale", "smoke", "--processes", 2, "--out", out)
    assert done.returncode == 0, done.stderr
    return out, done


def pages(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for name in NAMES for path in sorted((out / name).iterdir())}


@pytest.mark.slow
def test_every_run_is_trained_and_measured(finished_studies):
    out, _ = finished_studies
    expected = {resolved.name for resolved in runs_of_studies(studies_of(NAMES).values(), SMOKE)}
    assert {path.name for path in (out / "runs").iterdir()} == expected
    for name in expected:
        record = json.loads((out / "runs" / name / "run.json").read_text())
        assert record["status"] == "done"
        assert {"measurements.npz", "answers.npz"} & {path.name for path in (out / "runs" / name).iterdir()}


@pytest.mark.slow
def test_planned_and_actual_times_are_stored(finished_studies):
    out, done = finished_studies
    (entry,) = timings(out)
    runs = len(runs_of_studies(studies_of(NAMES).values(), SMOKE))
    assert entry["command"] == f"walkback study {' '.join(NAMES)} --scale smoke --processes 2"
    assert entry["processes"] == 2
    assert sum(sum(job["fleets"]) for job in entry["jobs"]) == runs
    assert 0 < entry["planning_seconds"] < entry["seconds"]
    assert entry["planned_seconds"] > 0
    ends = [job["done_after"] for job in entry["jobs"]]
    assert all(entry["planning_seconds"] < end < entry["seconds"] for end in ends)
    assert done.stderr.count(": done after ") == len(ends)


@pytest.mark.slow
def test_findings_are_printed_and_pages_written(finished_studies):
    out, done = finished_studies
    for name in NAMES:
        assert f"{name}: " in done.stdout
        assert str(out / name / "index.html") in done.stdout
        written = {path.suffix for path in (out / name).iterdir()}
        assert {".html", ".md", ".tex", ".json", ".svg", ".pdf"} <= written
    claims = [line for line in done.stdout.splitlines() if line.startswith("  ") and ": " in line]
    assert len(claims) >= len(NAMES)


@pytest.mark.slow
def test_a_claim_that_the_embedded_task_decides_is_decided(finished_studies):
    _, done = finished_studies
    findings = done.stdout.partition("capacity-control: ")[2].partition("index.html")[0]
    assert "  holds: " in findings, findings


@pytest.mark.slow
def test_rendering_without_models_gives_the_same_bytes(finished_studies):
    out, _ = finished_studies
    before = pages(out)
    for path in [*out.glob("runs/*/model.safetensors"), *out.glob("runs/*/rule.safetensors")]:
        path.unlink()
    again = walkback("study", *NAMES, "--scale", "smoke", "--render", "--out", out)
    assert again.returncode == 0, again.stderr
    assert pages(out) == before


@pytest.mark.slow
def test_complete_runs_need_no_weights(finished_studies):
    """The whole command again, with nothing left to train or measure."""
    out, done = finished_studies
    before = pages(out)
    for path in [*out.glob("runs/*/model.safetensors"), *out.glob("runs/*/rule.safetensors")]:
        path.unlink()
    again = walkback("study", *NAMES, "--scale", "smoke", "--processes", 2, "--out", out)
    assert again.returncode == 0, again.stderr
    assert again.stdout == done.stdout
    assert pages(out) == before


def test_each_command_adds_an_entry(tmp_path):
    assert timings(tmp_path) == []
    for count in (1, 2):
        Timings(TrainOptions(tmp_path, device="cpu", command=("walkback", str(count))), Workers(2), [], 0.0).keep()
        assert [entry["command"] for entry in timings(tmp_path)] == ["walkback 1", "walkback 2"][:count]


def test_damaged_timings_are_refused_and_kept(tmp_path):
    (tmp_path / TIMINGS).write_text("[{")
    with pytest.raises(InputError, match=TIMINGS):
        Timings(TrainOptions(tmp_path, device="cpu"), Workers(2), [], 0.0)
    assert (tmp_path / TIMINGS).read_text() == "[{"


def test_jobs_are_recorded_as_soon_as_they_are_done(tmp_path):
    """So that the entry of a killed command has the jobs done until then."""
    resolved_runs = runs_of_studies(studies_of(["floor"]).values(), SMOKE)
    groups = [FleetGroup((resolved,), "single", 1.0, 0, 0) for resolved in resolved_runs[:3]]
    entry_writer = Timings(TrainOptions(tmp_path, device="cpu"), Workers(2), groups, time.monotonic())
    for job in (1, 0):
        entry_writer.done(job)
    (entry,) = timings(tmp_path)
    first, second, third = (job["done_after"] for job in entry["jobs"])
    assert second <= first <= entry["seconds"]
    assert third is None


@pytest.mark.slow
def test_the_time_limit_stops_all_processes(tmp_path):
    """No job is reported as done, and nothing is trained."""
    out = tmp_path / "new"
    done = walkback("study", NAMES[0], "--scale", "smoke", "--processes", 2, "--max-seconds", 0.01, "--out", out)
    assert done.returncode == 2, done.stderr
    assert ": done after " not in done.stderr
    (entry,) = timings(out)
    assert {job["done_after"] for job in entry["jobs"]} == {None}
    assert not list((out / "runs").glob("*/run.json"))


def test_a_worker_reports_whether_it_was_stopped_by_the_time_limit(tmp_path):
    """A worker with nothing to do reports `done`, even after the time limit."""
    (name, *_) = (resolved.name for resolved in runs_of_studies(studies_of(["floor"]).values(), SMOKE))
    job = {
        "kind": "studies",
        "options": options_json(TrainOptions(tmp_path, device="cpu")),
        "studies": ["floor"],
        "scale": "smoke",
        "until": 0.0,
    }
    assert run_job({**job, "runs": [name]})["status"] == "stopped"
    assert not (tmp_path / "runs" / name).exists()
    assert run_job({**job, "runs": []})["status"] == "done"


def test_zero_processes_are_refused(tmp_path):
    done = walkback("study", "floor", "--processes", 0, "--out", tmp_path / "new")
    assert done.returncode == 3
    assert re.search(r"--processes is 0.*at least 1", done.stderr)
    assert not (tmp_path / "new").exists()

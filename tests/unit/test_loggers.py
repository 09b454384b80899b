"""Loggers of a watch: each row becomes scalars, with stand-ins for hosted services, and with a real CSV file."""

from __future__ import annotations

import csv
import subprocess
import sys
from types import SimpleNamespace

import pytest

from walkback.core.errors import InputError
from walkback.watching.csv import CSV, HEADER
from walkback.watching.mlflow import MLflow
from walkback.watching.scalars import row_scalars
from walkback.watching.tensorboard import TensorBoard
from walkback.watching.trackio import Trackio
from walkback.watching.wandb import WandB

ROW = {
    "step": 20,
    "epoch": None,
    "growth": 1.5,
    "grad_top": None,
    "direction": 0.25,
    "hidden": [1.0, 2.0],
    "grad": [None, 0.5],
    "cosine": [],
    "eval_loss": 0.7,
    "eval_acc": 0.0,
    "flags": {"D1": "raised", "D2@1024": "clear"},
    "seconds": 0.1,
}
NUMBERS = {
    "growth": 1.5,
    "direction": 0.25,
    "eval_loss": 0.7,
    "eval_acc": 0.0,
    "hidden/0": 1.0,
    "hidden/1": 2.0,
    "grad/1": 0.5,
    "raised/D1": 1.0,
    "raised/D2@1024": 0.0,
}
PROBLEM = {"step": 40, "epoch": None, "flags": {}, "problem": "nan"}


class Fake:
    """A stand-in for a service: every call of each of its methods, by name."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def method(*args, **kwargs):
            self.calls.append((name, *args, kwargs))
            return self

        return method


def logged(**prefix):
    return {f"{prefix.get('prefix', 'walkback')}/{name}": value for name, value in NUMBERS.items()}


def test_a_row_is_its_numbers_and_its_failed_detectors():
    assert row_scalars(ROW) == NUMBERS
    assert row_scalars(PROBLEM) == {}


def test_tensorboard_gets_each_scalar():
    writer = Fake()
    TensorBoard(writer)(ROW)
    assert writer.calls == [("add_scalar", name, value, 20, {}) for name, value in logged().items()]


def test_wandb_gets_the_step_as_a_value_of_its_own():
    run = Fake()
    WandB(run, prefix="p")(ROW)
    assert run.calls == [
        ("define_metric", "p/*", {"step_metric": "p/step"}),
        ("log", {**logged(prefix="p"), "p/step": 20}, {}),
    ]


def test_mlflow_gets_names_that_it_accepts():
    tracker = Fake()
    MLflow(tracker)(ROW)
    expected = {name.replace("@", "_at_"): value for name, value in logged().items()}
    assert tracker.calls == [("log_metrics", expected, {"step": 20})]


def test_trackio_gets_values_and_step():
    run = Fake()
    Trackio(run)(ROW)
    assert run.calls == [("log", logged(), {"step": 20})]


@pytest.mark.parametrize(("module", "logger"), [("wandb", WandB), ("trackio", Trackio)])
def test_a_name_starts_a_run_of_that_project(module, logger, monkeypatch):
    run = Fake()
    started = []
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(init=lambda project: started.append(project) or run))
    logger("mine")(ROW)
    assert started == ["mine"]
    assert [call for call in run.calls if call[0] == "log"]


def test_mlflow_itself_is_the_default(monkeypatch):
    module = Fake()
    monkeypatch.setitem(sys.modules, "mlflow", module)
    MLflow()(ROW)
    assert [call[0] for call in module.calls] == ["log_metrics"]


MISSING = {"wandb": lambda: WandB("p"), "trackio": lambda: Trackio("p"), "mlflow": MLflow}


@pytest.mark.parametrize("module", MISSING)
def test_a_missing_package_is_named_with_its_extra(module, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"pip install 'walkback\[{module}\]', or pass "):
        MISSING[module]()


def lines(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


class TestCSV:
    def test_every_number_has_a_line_and_a_later_logger_appends(self, tmp_path):
        path = tmp_path / "new" / "watch.csv"
        CSV(path)(ROW)
        CSV(path, prefix="p")({**PROBLEM, "growth": 2e-9})
        head, *rest = lines(path)
        assert tuple(head) == HEADER
        assert [(int(step), name, float(value)) for step, name, value in rest] == [
            *((20, name, value) for name, value in logged().items()),
            (40, "p/growth", 2e-9),
        ]

    def test_a_row_without_numbers_adds_nothing(self, tmp_path):
        CSV(tmp_path / "w.csv")(PROBLEM)
        assert lines(tmp_path / "w.csv") == [list(HEADER)]

    def test_a_file_of_something_else_is_left_alone(self, tmp_path):
        path = tmp_path / "mine.csv"
        path.write_text("a,b\n1,2\n")
        with pytest.raises(InputError, match=r"mine\.csv is not a file of this logger"):
            CSV(path)
        assert path.read_text() == "a,b\n1,2\n"

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="Could not write"):
            CSV(tmp_path / "file" / "watch.csv")


def test_importing_the_loggers_imports_none_of_their_packages(tmp_path):
    names = ("csv", "mlflow", "tensorboard", "trackio", "wandb")
    code = (
        f"import importlib, sys; [importlib.import_module('walkback.watching.' + name) for name in {names}]; "
        "sys.exit(bool({'torch', 'mlflow', 'trackio', 'wandb'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path).returncode == 0

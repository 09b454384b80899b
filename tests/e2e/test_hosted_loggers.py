"""The loggers of a watch with the packages that they write to, without a network."""

from __future__ import annotations

import pytest

from walkback.watching.mlflow import MLflow
from walkback.watching.trackio import Trackio
from walkback.watching.wandb import WandB

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

ROWS = [
    {"step": step, "growth": 1.0 + step, "hidden": [0.5, None], "flags": {"D1": "raised", "D2@1024": "clear"}}
    for step in (0, 100, 200)
]


def test_wandb_has_the_last_values(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    with wandb.init(project="p", mode="offline", dir=tmp_path) as run:
        logger = WandB(run)
        for row in ROWS:
            logger(row)
        summary = {name: run.summary[name] for name in ("walkback/step", "walkback/growth", "walkback/raised/D1")}
    assert summary == {"walkback/step": 200, "walkback/growth": 201.0, "walkback/raised/D1": 1.0}
    assert list(tmp_path.rglob("*.wandb"))


def test_mlflow_has_the_history_of_each_value(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.create_experiment("p", artifact_location=(tmp_path / "files").as_uri())
    mlflow.set_experiment("p")
    with mlflow.start_run() as run:
        logger = MLflow()
        for row in ROWS:
            logger(row)
    client = mlflow.MlflowClient()
    history = client.get_metric_history(run.info.run_id, "walkback/growth")
    assert [(each.step, each.value) for each in history] == [(0, 1.0), (100, 101.0), (200, 201.0)]
    assert client.get_run(run.info.run_id).data.metrics["walkback/raised/D2_at_1024"] == 0.0


def test_trackio_has_the_values_and_their_steps(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    trackio = pytest.importorskip("trackio")
    storage = pytest.importorskip("trackio.sqlite_storage").SQLiteStorage
    run = trackio.init(project="p", name="r", embed=False)
    logger = Trackio(run)
    for row in ROWS:
        logger(row)
    trackio.finish()
    found = [(each["step"], each["walkback/growth"]) for each in storage.get_logs("p", "r")]
    assert found == [(0, 1.0), (100, 101.0), (200, 201.0)]

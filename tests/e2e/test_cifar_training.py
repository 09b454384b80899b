"""On real CIFAR-10: one epoch of backprop reaches 40 %."""

from __future__ import annotations

import json
import os

import pytest

from walkback.cli.main import main

ROOT = os.environ.get("WALKBACK_TEST_DATA", "")
pytestmark = [pytest.mark.data, pytest.mark.slow, pytest.mark.skipif(not ROOT, reason="WALKBACK_TEST_DATA is not set")]


def test_one_epoch_of_backprop_reaches_forty_percent(tmp_path, capsys):
    words = ["train", "--method", "bp", "--arch", "resmlp", "--data", "cifar10", "--seeds", "42", "--epochs", "1"]
    assert main([*words, "--data-root", ROOT, "--out", str(tmp_path), "--json"]) == 0
    (result,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert result["test_acc"] >= 0.40

"""Depth in nats a token: margins of losses, the line of 0.05, chance, cards, and an audit of a language model."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fake_measurements import ALL

import walkback as wb
from walkback.cli.main import main
from walkback.core.errors import InputError
from walkback.core.measurements import Measurements
from walkback.judge.card import read_card
from walkback.judge.evidence import Evidence
from walkback.judge.report import judge
from walkback.judge.statistics import loss_margin, paired_margin, window_margin
from walkback.judge.thresholds import DiagnosticThresholds

BASELINES = {"method_shell": [2.10, 2.12, 2.11], "bp_shell": [2.00, 2.02, 2.01]}
BP = [1.50, 1.52, 1.51]


def judged(ours, frozen=BASELINES, bp=BP, entropy=2.5, **settings):
    taken = ALL["healthy"]()
    taken = Measurements(taken.arrays, {**taken.facts, "unigram_entropy": entropy})
    known = Evidence.of(headline_loss=ours, frozen_baseline_loss=frozen, bp_loss=bp, **settings)
    return judge(taken, known, context={"seed": 1})


@pytest.mark.parametrize(
    ("ours", "outcome"),
    [
        ([1.70, 1.73, 1.70], "stands"),
        ([2.09, 2.12, 2.10], "walked_back"),
        ([2.05, 2.06, 2.07], "inconclusive"),
        ([2.10, 2.14, 1.90], "inconclusive"),
    ],
)
def test_the_line_is_five_hundredths_of_a_nat(ours, outcome):
    report = judged(ours)
    assert report.claims["depth"].outcome == outcome
    assert report.flags["D3"].unit == report.margin.unit == "nats"
    assert report.flags["D3"].threshold == 0.05


def test_a_smaller_loss_is_a_positive_margin_with_the_interval_of_the_same_accuracies():
    losses = loss_margin([1.0, 1.1, 1.3], [1.2, 1.4, 1.4])
    points = paired_margin([0.2, 0.4, 0.4], [0.0, 0.1, 0.3])
    assert losses.mean == pytest.approx(0.2)
    assert losses.interval == pytest.approx([end / 100 for end in points.interval])
    assert losses.p_value(0.05) == pytest.approx(points.p_value(5.0))


def test_one_seed_is_decided_over_windows_and_is_about_this_checkpoint():
    draws = np.random.default_rng(0)
    shell = draws.normal(2.1, 0.2, 500)
    better = shell - draws.normal(0.3, 0.1, 500)
    windows = {"headline": better, "method_shell": shell, "bp": better, "bp_shell": shell}
    kinds = {"method_shell": shell.mean(), "bp_shell": shell.mean()}
    report = judged(float(better.mean()), kinds, float(better.mean()), window_losses=windows)
    claim = report.claims["depth"]
    assert (claim.outcome, claim.scope) == ("stands", "this checkpoint")
    assert "500 windows" in claim.reason
    differences = shell - better
    half = 1.9647 * differences.std(ddof=1) / np.sqrt(500)
    expected = (differences.mean() - half, differences.mean() + half)
    assert window_margin(better, shell).interval == pytest.approx(expected, rel=1e-4)
    without = judged(float(better.mean()), kinds, float(better.mean()))
    assert without.claims["depth"].outcome == "inconclusive"


def test_where_backprop_is_not_under_the_entropy_nothing_was_learned():
    claim = judged([1.70, 1.73, 1.70], entropy=1.4).claims["depth"]
    assert claim.outcome == "not_informative"
    assert "entropy" in claim.reason
    spread = judged([1.70, 1.73, 1.70], bp=[1.3, 1.5, 1.7], entropy=1.6).claims["depth"]
    assert spread.outcome == "not_informative", "the mean is under it, the bound is not"


def test_where_backprop_gains_less_than_the_line_depth_is_not_needed():
    shells = {"method_shell": [2.10, 2.12, 2.11], "bp_shell": [1.51, 1.53, 1.52]}
    assert judged([2.09, 2.11, 2.10], shells).claims["depth"].outcome == "not_informative"
    assert judged([2.09, 2.11, 2.10], {**shells, "bp_shell": [1.4, 1.4, 1.4]}).flags["D3"].status == "raised"
    same = {"method_shell": [1.4, 1.4, 1.4], "bp_shell": [1.4, 1.4, 1.4]}
    assert judged([1.7, 1.7, 1.7], same).flags["D3"].status == "not_informative"


def test_a_card_in_nats_can_be_read_and_another_line_given():
    card = judged([2.05, 2.06, 2.07]).to_json()
    assert read_card(json.loads(json.dumps(card)))["claim"]["losses"]["headline"] == [2.05, 2.06, 2.07]
    assert card["statistics"]["unit"] == "nats"
    report = judged([2.03, 2.05, 2.04]).rejudge(DiagnosticThresholds(frozen_loss_margin_nats=0.02))
    assert report.claims["depth"].outcome == "stands"


def test_a_card_of_accuracies_has_no_losses():
    card = judge(ALL["healthy"](), Evidence.of(0.6, 0.3), context={"seed": 1}).to_json()
    assert "losses" not in card["claim"]
    assert card["statistics"]["unit"] == "pp"


@pytest.mark.parametrize("loss", [-0.1, float("nan"), float("inf"), "x"])
def test_a_loss_that_is_none_is_refused(loss):
    with pytest.raises(InputError, match="nats"):
        Evidence.of(headline_loss=loss)


def test_a_baselines_loss_needs_the_methods():
    with pytest.raises(InputError, match="headline_loss"):
        Evidence.of(headline_acc=0.5, frozen_baseline_loss=1.0)


PLACE = {"arch": "gpt_mini:d=8,depth=2,heads=2,mlp_ratio=2", "data": "markov:train=256,test=1024,length=4,vocabulary=5"}


@pytest.fixture(scope="module")
def audited(tmp_path_factory) -> wb.Audit:
    out = tmp_path_factory.mktemp("language")
    return wb.audit(["fa"], seeds=[1], epochs=2, batch=64, lr=0.01, oracle="none", out=out, device="cpu",
                    predict=False, **PLACE)  # fmt: skip


def test_an_audit_of_a_language_model_is_in_nats(audited):
    (row,) = audited.table.rows
    (card,) = row.cards
    runs = {result.method: result for result in audited.results}
    losses = card["claim"]["losses"]
    assert losses["headline"] == [runs["fa"].test_loss]
    assert losses["frozen"]["method_shell"] == [runs["fa:shell=method"].test_loss]
    assert card["statistics"]["mean"] == pytest.approx(runs["fa:shell=method"].test_loss - runs["fa"].test_loss)
    assert card["statistics"]["n"] == 1024
    assert "nats" in str(audited)
    assert "1024 windows" in row.claims["depth"].reason
    measured = Measurements.load(audited.out / runs["fa"].run / "measurements.npz")
    assert measured.arrays["test_loss"].mean() == pytest.approx(runs["fa"].test_loss, rel=1e-6)


def test_its_card_is_verified(audited, capsys):
    path = audited.out / next(result.run for result in audited.results if result.method == "fa")
    assert main(["verify", str(path / "report.json"), str(path)]) == 0
    assert "confirmed" in capsys.readouterr().out


def test_learning_rates_of_a_language_model_are_chosen_by_the_loss(tmp_path):
    (result,) = wb.train("bp", tune="lr=1e-5,1e-4,1e-2", seeds=1, epochs=1, batch=64, out=tmp_path, predict=False,
                         device="cpu", **PLACE)  # fmt: skip
    table = json.loads((tmp_path / "tuning.json").read_text())["tables"][0]["methods"][0]
    assert table["unit"] == "nats"
    means = {each["lr"]: each["held_out"][0] for each in table["scores"]}
    assert table["chosen"] == min(means, key=means.get) == wb.load(result.path).record["config"]["lr"]

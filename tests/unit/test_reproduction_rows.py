"""Ours, found in stored results, and one row of it beside a published figure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import Bed
from planted_methods import LOOK

from walkback.core.errors import InputError
from walkback.training.resolved_run import resolve
from walkback_papers.published.figure import Ask, figures
from walkback_papers.published.finder import Finder
from walkback_papers.published.quantities import QUANTITIES
from walkback_papers.published.reproduce import VariantFinder, locate_figure, reproduce_figures
from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.tables import with_penalty
from walkback_papers.variants import variants

# Ours, found in stored results


def read(bed: Bed, study: str, quantity: str, **ask):
    """What a quantity gives: plain values, seed by seed."""
    find = Finder(bed.results(), SMOKE, study)
    found = QUANTITIES[quantity](Ask(quantity, **{"ours": "DFA"} | ask), find)
    return [value if isinstance(value, str) else value.known for value in found]


SHORT = {"epochs": "short", "penalty": 1e-2}
WIDE = {"ours": "BP", "place": "wide", "over": "DFA shell", "over_place": "resmlp"}
GROUPS = {"methods": ("BP", "EP"), "others": ("DFA", "State Bridge", "Credit Bridge")}
READ = [
    ("primary-audit", "accuracy", {}, [0.30, 0.34]),
    ("temporal-replay", "accuracy_at", {"epoch": 2}, [0.3, 0.3]),
    ("primary-audit", "difference", {"over": "DFA shell"}, [-5.0, -2.0]),
    ("primary-audit", "difference", {"ours": "BP", "over": "DFA shell"}, [25.0, 26.0]),
    ("representative", "difference", WIDE, [15.0, 14.0]),
    ("primary-audit", "growth", {}, [3.0, 3.0]),
    ("primary-audit", "hidden", {}, None),
    ("primary-audit", "gradient", {}, [2e-5, 2e-5]),
    ("primary-audit", "gradient", {"layer": 2}, [2e-5 * 1.5**2] * 2),
    ("early-epochs", "gradient", {"layer": 3, "epoch": 1}, [2e-5 * 1.5] * 2),
    ("temporal-replay", "gradient", {"epoch": 0}, [8e-3] * 2),
    ("temporal-replay", "block_outputs", {}, [10 * 10**0.5] * 2),
    ("temporal-replay", "block_move", {}, [20.0] * 2),
    ("temporal-replay", "matrix_move", {}, [20.0] * 2),
    ("temporal-replay", "matrix_product", {}, None),
    ("temporal-replay", "hidden_at", {"epoch": 3}, [700.0] * 2),
    ("temporal-replay", "gradient_at", {"epoch": 1}, [1e-5] * 2),
    ("primary-audit", "direction", {}, [0.25] * 2),
    ("per-layer", "cosine", {"layer": 0}, [0.4] * 2),
    ("early-epochs", "cosine", {"layer": 0, "epoch": 1}, [0.5] * 2),
    ("primary-audit", "gamma", {}, [0.12] * 2),
    ("early-epochs", "deep", {}, [0.05] * 2),
    ("early-epochs", "deep", {"epoch": 1}, [0.025] * 2),
    ("early-epochs", "deep_early", {}, [0.0375] * 2),
    ("primary-audit", "deep_not_exact", {}, [0.0] * 2),
    ("early-epochs", "deep_least", {"epoch": 1}, [0.01] * 2),
    ("early-epochs", "deep_least", {"epoch": 3}, [0.2] * 2),
    ("early-epochs", "deep_most", {"epoch": 1}, [0.04] * 2),
    ("temporal-replay", "first_epoch", {"check": "D2", "floor": 8e-7}, [2.0] * 2),
    ("temporal-replay", "first_epoch", {"check": "D2"}, [3.0] * 2),
    ("temporal-replay", "first_epoch", {"check": "D1"}, [3.0] * 2),
    ("temporal-replay", "first_epoch", {"ours": "BP", "check": "D1"}, ["never"] * 2),
    ("temporal-replay", "saved", {}, [1 - 2 / 12] * 2),
    ("temporal-replay", "silent", {"ours": "BP", "places": ("resmlp",)}, ["yes"] * 2),
    ("temporal-replay", "silent", {"places": ("resmlp",)}, ["no"] * 2),
    ("early-epochs", "rho", {}, [0.25] * 2),
    ("early-epochs", "rho_gradient", {}, [0.997] * 2),
    ("early-epochs", "rho_random", {}, [0.01] * 2),
    ("functional-metrics", "nudging", SHORT, [-1e-3] * 2),
    ("functional-metrics", "nudging_lead", {"ours": "FA", "over": "DFA"} | SHORT, [2.0] * 2),
    ("functional-metrics", "nudging_leader", {"methods": ("DFA", "FA")} | SHORT, ["FA"] * 2),
    ("functional-metrics", "loss", SHORT, [-0.5] * 2),
    ("functional-metrics", "loss_lead", {"ours": "FA", "over": "DFA"} | SHORT, [2.0] * 2),
    ("functional-metrics", "loss_leader", {"methods": ("DFA", "FA")} | SHORT, ["FA"] * 2),
    ("functional-metrics", "deep_order", {"methods": ("DFA", "FA")} | SHORT, ["DFA > FA"] * 2),
    ("primary-audit", "verdict", {"ours": "BP"}, ["trustworthy"] * 2),
    ("primary-audit", "verdict", {"edition": "four"}, ["walked back"] * 2),
    ("primary-audit", "verdict_by", {}, ["walked back by D3"] * 2),
    ("primary-audit", "passes", {"check": "D1"}, ["yes"] * 2),
    ("primary-audit", "passes", {"ours": "State Bridge", "check": "D1"}, ["no"] * 2),
    ("primary-audit", "mode_1", {}, ["no"] * 2),
    ("primary-audit", "mode_1", {"ours": "State Bridge"}, ["yes"] * 2),
    ("decision-utility", "caught", {"strategy": "S2"}, ["no"] * 2),
    ("decision-utility", "caught", {"strategy": "S3"}, ["yes"] * 2),
    ("decision-utility", "caught_of", {"strategy": "full", "methods": ("BP", "DFA", "State Bridge")}, [2.0] * 2),
    ("aggregation-spread", "ways_least", {}, None),
    ("aggregation-spread", "ways_most", {}, None),
    ("aggregation-spread", "ways_ratio", {}, None),
    ("aggregation-spread", "ways_flip", {}, ["no"] * 2),
    ("fresh-b-null", "fresh", SHORT, None),
    ("fresh-b-null", "fresh_width", SHORT, None),
    ("fresh-b-null", "fresh_score", SHORT, None),
    ("aggregation-spread", "fresh_gamma", {}, None),
    ("threshold-sensitivity", "growth_healthy", GROUPS, [5.0] * 2),
    ("threshold-sensitivity", "growth_degenerate", GROUPS, [3.0] * 2),
    ("threshold-sensitivity", "growth_gap", GROUPS, [0.6] * 2),
    ("threshold-sensitivity", "floor_healthy", GROUPS, [1e-4] * 2),
    ("threshold-sensitivity", "floor_degenerate", GROUPS, [2e-5] * 2),
    ("threshold-sensitivity", "floor_gap", GROUPS, [5.0] * 2),
    ("primary-audit", "setting", {"field": "lr"}, ["0.01"]),
    ("primary-audit", "setting", {"field": "seeds"}, ["1, 2"]),
    ("primary-audit", "setting", {"field": "epochs"}, ["12"]),
    ("primary-audit", "setting", {"field": "arch"}, ["resmlp"]),
]  # fmt: skip


@pytest.mark.parametrize(("study", "quantity", "ask", "expected"), READ, ids=[f"{s}-{q}" for s, q, *_ in READ])
def test_ours_is_read_from_stored_results(bed, study, quantity, ask, expected):
    wanted = _worked_out(bed, quantity) if expected is None else expected
    assert read(bed, study, quantity, **ask) == [v if isinstance(v, str) else pytest.approx(v) for v in wanted]


def test_a_network_before_its_first_step_is_not_that_of_the_end(bed):
    first, last = (read(bed, "temporal-replay", "hidden", **ask) for ask in ({"epoch": 0}, {}))
    assert last == pytest.approx([3.0**4 * size for size in first])


def test_every_quantity_is_tested():
    assert {quantity for _, quantity, *_ in READ} == set(QUANTITIES)


def _worked_out(bed: Bed, quantity: str) -> list[float]:
    """From the stored arrays, where the planted numbers have no plain value."""
    short = quantity.startswith("fresh") and quantity != "fresh_gamma"
    runs = SMOKE.runs([with_penalty(METHODS["DFA"], 1e-2 if short else 0.0)], epochs="short" if short else "full")
    found = []
    for case in bed.results().cases(runs):
        arrays, a = case.measurements.arrays, case.report.quantities.aggregates
        drawn = arrays["null_fresh"][0 if quantity == "fresh_gamma" else 1 :].mean(axis=0)
        ways = [number.known for number in (a.a1, a.a2, a.a3, a.a4)]
        deep = float(np.nanmean(arrays["credit_cos"][1:], axis=1).mean())
        found.append(
            {
                "hidden": float(arrays["hidden_norm"][-1].mean()),
                "matrix_product": 30**2 * float(np.prod(_first_sizes(case)) ** (1 / 4)),
                "ways_least": min(ways),
                "ways_most": max(ways),
                "ways_ratio": max(map(abs, ways)) / min(map(abs, ways)),
                "fresh": drawn.mean(),
                "fresh_width": drawn.std(ddof=1),
                "fresh_score": (deep - drawn.mean()) / drawn.std(ddof=1),
                "fresh_gamma": drawn.mean(),
            }[quantity]
        )
    return found


def _first_sizes(case) -> list[float]:
    """Of every block: |w1| |w2| of the first weights."""
    params = case.resolved.params()
    sizes = {name: float(np.linalg.norm(leaf.double().numpy())) for name, leaf in params.items()}
    return [sizes[f"blocks.{block}.w1.weight"] * sizes[f"blocks.{block}.w2.weight"] for block in range(4)]


# One row


def row(bed: Bed, **changes):
    """DFA's accuracy, 0.30 and 0.34 in the planted runs, beside a printed figure."""
    figure = replace(figures()["primary-audit/dfa-accuracy@P1"], **changes)
    return locate_figure(figure, Finder(bed.results(), SMOKE, figure.study))


def test_a_row_agrees_or_differs_by_the_rule(bed):
    found = row(bed, text="0.306 ± 0.006")
    assert (found.outcome, found.ours, found.off) == ("agrees", "0.320 ± 0.028", "+1.4 pp (±5.8)")
    assert found.values == pytest.approx((0.30, 0.34))
    assert row(bed, text="0.500 ± 0.006").outcome == "differs"


def test_gradients_are_compared_in_one_convention(bed):
    figure = figures()["primary-audit/dfa-gradient-1024@P1"]
    find = Finder(bed.results(), SMOKE, figure.study)
    # Planted: 2e-5 @128.
    for text, batch, outcome in (("2.5e-6", 1024, "agrees"), ("2.5e-6", 128, "differs"), ("2.0e-5", 128, "agrees")):
        assert locate_figure(replace(figure, text=text, batch=batch), find).outcome == outcome


def test_words_must_be_the_same_in_every_seed(bed):
    verdict = replace(figures()["primary-audit/dfa-verdict@P1"], ask=Ask("verdict", "DFA", edition="three"))
    find = Finder(bed.results(), SMOKE, "primary-audit")
    assert locate_figure(verdict, find).outcome == "agrees"
    assert locate_figure(replace(verdict, text="trustworthy"), find).outcome == "differs"
    answer = replace(verdict, kind="answer", text="✗", means="no", ask=Ask("passes", "State Bridge", check="D1"))
    assert locate_figure(answer, find).outcome == "agrees"
    assert locate_figure(replace(answer, means="yes"), find).outcome == "differs"


def test_seeds_that_say_different_things_do_not_agree(tmp_path):
    planted, runs = Bed(tmp_path), SMOKE.runs([METHODS["DFA"]])
    for config, growth in zip(runs, (100.0, 2.0), strict=True):
        planted.plant([config], shell=0.4, look=LOOK | {"growth": growth})
    figure = figures()["cross-architecture/resmlp-dfa-scale@P2"]
    find = Finder(planted.results(), SMOKE, figure.study)
    for means in ("yes", "no"):
        found = locate_figure(replace(figure, means=means), find)
        assert (found.outcome, found.ours) == ("differs", "no, yes")


def test_an_epoch_that_never_comes_differs_from_one_that_does(bed):
    figure = figures()["temporal-replay/b-resmlp@O"]
    find = Finder(bed.results(), SMOKE, figure.study)
    never = replace(figure, ask=replace(figure.ask, ours="BP"))
    assert locate_figure(replace(figure, text="3–4"), find).outcome == "agrees"  # At 2, in both seeds.
    assert locate_figure(replace(figure, text="never"), find).outcome == "differs"
    assert locate_figure(replace(never, text="3–4"), find).outcome == "differs"
    assert locate_figure(replace(never, text="never"), find) == locate_figure(
        replace(never, text="never", kind="answer"), find
    )
    assert locate_figure(replace(never, text="never"), find).outcome == "agrees"


def test_what_is_not_there_is_named(bed):
    found = row(bed, ask=Ask("accuracy", "FA"))
    names = [resolve(config).name for config in SMOKE.runs([METHODS["FA"]])]
    assert found.outcome == "not measured"
    assert found.reason == f"no finished runs {', '.join(names)}"
    assert row(bed, missing="nobody looked").reason == "nobody looked"
    # A figure must not lean on runs that its study's command does not make.
    assert "the study primary-audit has no run" in row(bed, ask=Ask("accuracy", "DFA", place="wide")).reason
    seen = row(bed, ask=Ask("rho", "State Bridge"))
    assert seen.outcome == "not measured"
    assert "functional.npz is missing" in seen.reason
    assert str(bed.folder) not in seen.reason


def test_a_number_that_may_not_be_used_is_not_measured(tmp_path):
    noisy = Bed(tmp_path)
    noisy.plant(SMOKE.runs([METHODS["DFA"]]), shell=0.4, look=LOOK | {"replay_cos": 0.5})
    found = row(noisy, kind="cosine", text="0.10", ask=Ask("gamma", "DFA"))
    assert found.outcome == "not measured"
    assert found.reason.startswith("INVALID: ")
    assert found.values == ()


def test_variants_stand_beside_what_differs_and_nothing_else(tmp_path):
    planted = Bed(tmp_path)
    planted.plant(SMOKE.runs([METHODS["DFA"]]), accuracy=0.9, shell=0.4, look=LOOK)
    known = {variant.name: variant for variant in variants(SMOKE)}
    planted.plant(known["raw error"].runs(SMOKE, "DFA"), accuracy=[0.30, 0.31], shell=0.2)
    rows = {found.figure.id: found for found in reproduce_figures(planted.results(), SMOKE).rows}
    trials = dict(rows["primary-audit/dfa-accuracy@P1"].trials)
    assert next(iter(trials)) == "the recipe"  # It trains shorter there than the figure's own runs do.
    assert (trials["raw error"].ours, trials["raw error"].outcome) == ("0.305 ± 0.007", "agrees")
    assert trials["site output"].outcome == "not measured"
    assert trials["site output"].reason.startswith("no finished runs dfa-")
    # A margin is over the variant's own shell.
    assert dict(rows["primary-audit/dfa-margin@P1"].trials)["raw error"].values == pytest.approx((10, 11))
    assert not any(found.trials for found in rows.values() if found.outcome != "differs")


def test_a_variant_does_not_answer_for_runs_it_does_not_have(bed):
    known = {variant.name: variant for variant in variants(SMOKE)}
    find = VariantFinder(bed.results(), SMOKE, known["raw error"])
    for ask in ({"name": "FA"}, {"name": "DFA", "place": "wide"}, {"name": "DFA", "penalty": 1e-2}):
        with pytest.raises(InputError, match="the variant has no"):
            find.cases(**ask)

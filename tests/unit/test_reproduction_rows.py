"""Our values, read from stored results, and their comparison with one published figure."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from planted import PlantedRuns
from planted_methods import MEASURED

from walkback.core.errors import InputError
from walkback.training.resolved_run import resolve
from walkback_papers.published.figure import FigureQuery, figures
from walkback_papers.published.finder import Finder
from walkback_papers.published.quantities import QUANTITIES
from walkback_papers.published.reproduce import VariantFinder, reproduce_figure, reproduce_figures
from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.tables import with_penalty
from walkback_papers.variants import variants

# Our values from stored results


def read(planted_runs: PlantedRuns, study: str, quantity: str, **query):
    """The plain values of a quantity, seed by seed."""
    finder = Finder(planted_runs.results(), SMOKE, study)
    found = QUANTITIES[quantity](FigureQuery(quantity, **{"ours": "DFA"} | query), finder)
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
    ("primary-audit", "deep_not_exact", {}, [0.05] * 2),
    ("functional-metrics", "deep_not_exact", {"ours": "FA"} | SHORT, [0.0] * 2),
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


@pytest.mark.parametrize(("study", "quantity", "query", "expected"), READ, ids=[f"{s}-{q}" for s, q, *_ in READ])
def test_quantities_are_read_from_stored_results(planted_runs, study, quantity, query, expected):
    wanted = _expected_values(planted_runs, quantity) if expected is None else expected
    assert read(planted_runs, study, quantity, **query) == [
        v if isinstance(v, str) else pytest.approx(v) for v in wanted
    ]


def test_epoch_0_and_the_end_are_different_networks(planted_runs):
    first, last = (read(planted_runs, "temporal-replay", "hidden", **query) for query in ({"epoch": 0}, {}))
    assert last == pytest.approx([3.0**4 * size for size in first])


def test_every_quantity_is_tested():
    assert {quantity for _, quantity, *_ in READ} == set(QUANTITIES)


def _expected_values(planted_runs: PlantedRuns, quantity: str) -> list[float]:
    """Computed from the stored arrays, for quantities whose planted value is not a round number."""
    short = quantity.startswith("fresh") and quantity != "fresh_gamma"
    runs = SMOKE.runs([with_penalty(METHODS["DFA"], 1e-2 if short else 0.0)], epochs="short" if short else "full")
    found = []
    for case in planted_runs.results().cases(runs):
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
    """|w1| |w2| of every block's initial weights."""
    params = case.resolved.params()
    sizes = {name: float(np.linalg.norm(leaf.double().numpy())) for name, leaf in params.items()}
    return [sizes[f"blocks.{block}.w1.weight"] * sizes[f"blocks.{block}.w2.weight"] for block in range(4)]


# Comparing one figure


def row(planted_runs: PlantedRuns, **changes):
    """DFA's accuracy, 0.30 and 0.34 in the planted runs, compared with a printed figure."""
    figure = replace(figures()["primary-audit/dfa-accuracy@P1"], **changes)
    return reproduce_figure(figure, Finder(planted_runs.results(), SMOKE, figure.study))


def test_a_row_agrees_or_differs_by_the_rule(planted_runs):
    found = row(planted_runs, text="0.306 ± 0.006")
    assert (found.outcome, found.ours) == ("too noisy to tell", "0.320 ± 0.028")
    assert re.fullmatch(r"\+1\.4 pp \[-\d\d\.\d, \+\d\d\.\d\]", found.off)
    assert found.values == pytest.approx((0.30, 0.34))
    assert row(planted_runs, text="0.900 ± 0.006").outcome == "differs"


def test_gradients_are_compared_in_one_convention(planted_runs):
    figure = figures()["primary-audit/dfa-gradient-1024@P1"]
    finder = Finder(planted_runs.results(), SMOKE, figure.study)
    # Planted: 2e-5 @128.
    for text, batch, outcome in (("2.5e-6", 1024, "agrees"), ("2.5e-6", 128, "differs"), ("2.0e-5", 128, "agrees")):
        assert reproduce_figure(replace(figure, text=text, batch=batch), finder).outcome == outcome


def test_words_must_be_the_same_in_every_seed(planted_runs):
    verdict = replace(figures()["primary-audit/dfa-verdict@P1"], query=FigureQuery("verdict", "DFA", edition="three"))
    finder = Finder(planted_runs.results(), SMOKE, "primary-audit")
    assert reproduce_figure(verdict, finder).outcome == "agrees"
    assert reproduce_figure(replace(verdict, text="trustworthy"), finder).outcome == "differs"
    answer = replace(
        verdict, kind="answer", text="✗", means="no", query=FigureQuery("passes", "State Bridge", check="D1")
    )
    assert reproduce_figure(answer, finder).outcome == "agrees"
    assert reproduce_figure(replace(answer, means="yes"), finder).outcome == "differs"


def test_seeds_with_different_answers_do_not_agree(tmp_path):
    planted, runs = PlantedRuns(tmp_path), SMOKE.runs([METHODS["DFA"]])
    for config, growth in zip(runs, (100.0, 2.0), strict=True):
        planted.plant([config], shell=0.4, measured=MEASURED | {"growth": growth})
    figure = figures()["cross-architecture/resmlp-dfa-scale@P2"]
    finder = Finder(planted.results(), SMOKE, figure.study)
    for means in ("yes", "no"):
        found = reproduce_figure(replace(figure, means=means), finder)
        assert (found.outcome, found.ours) == ("differs", "no, yes")


def test_never_differs_from_an_epoch(planted_runs):
    figure = figures()["temporal-replay/b-resmlp@O"]
    finder = Finder(planted_runs.results(), SMOKE, figure.study)
    never = replace(figure, query=replace(figure.query, ours="BP"))
    assert reproduce_figure(replace(figure, text="3–4"), finder).outcome == "agrees"  # At 2, in both seeds.
    assert reproduce_figure(replace(figure, text="never"), finder).outcome == "differs"
    assert reproduce_figure(replace(never, text="3–4"), finder).outcome == "differs"
    assert reproduce_figure(replace(never, text="never"), finder) == reproduce_figure(
        replace(never, text="never", kind="answer"), finder
    )
    assert reproduce_figure(replace(never, text="never"), finder).outcome == "agrees"


def test_missing_runs_and_measurements_are_named(planted_runs):
    found = row(planted_runs, query=FigureQuery("accuracy", "FA"))
    names = [resolve(config).name for config in SMOKE.runs([METHODS["FA"]])]
    assert found.outcome == "not measured"
    assert found.reason == f"no finished runs {', '.join(names)}"
    assert row(planted_runs, missing="not defined").reason == "not defined"
    # A figure must not use runs that its study's command does not make.
    assert (
        "the study primary-audit has no run"
        in row(planted_runs, query=FigureQuery("accuracy", "DFA", place="wide")).reason
    )
    unmeasured = row(planted_runs, query=FigureQuery("rho", "State Bridge"))
    assert unmeasured.outcome == "not measured"
    assert "functional.npz is missing" in unmeasured.reason
    assert str(planted_runs.folder) not in unmeasured.reason


def test_a_number_that_may_not_be_used_is_not_measured(tmp_path):
    noisy = PlantedRuns(tmp_path)
    noisy.plant(SMOKE.runs([METHODS["DFA"]]), shell=0.4, measured=MEASURED | {"replay_cos": 0.5})
    found = row(noisy, kind="cosine", text="0.10", query=FigureQuery("gamma", "DFA"))
    assert found.outcome == "not measured"
    assert found.reason.startswith("INVALID: ")
    assert found.values == ()


def test_variants_are_tried_only_where_a_figure_differs(tmp_path):
    planted = PlantedRuns(tmp_path)
    planted.plant(SMOKE.runs([METHODS["DFA"]]), accuracy=0.9, shell=0.4, measured=MEASURED)
    known = {variant.name: variant for variant in variants(SMOKE)}
    planted.plant(known["raw error"].runs(SMOKE, "DFA"), accuracy=[0.30, 0.31], shell=0.2)
    rows = {found.figure.id: found for found in reproduce_figures(planted.results(), SMOKE).rows}
    trials = dict(rows["primary-audit/dfa-accuracy@P1"].trials)
    assert next(iter(trials)) == "the recipe"  # It trains for fewer epochs than the figure's own runs.
    assert (trials["raw error"].ours, trials["raw error"].outcome) == ("0.305 ± 0.007", "too noisy to tell")
    assert trials["site output"].outcome == "not measured"
    assert trials["site output"].reason.startswith("no finished runs dfa-")
    # A margin is over the variant's own frozen baseline.
    assert dict(rows["primary-audit/dfa-margin@P1"].trials)["raw error"].values == pytest.approx((10, 11))
    assert not any(found.trials for found in rows.values() if found.outcome != "differs")


def test_a_variant_refuses_runs_it_does_not_have(planted_runs):
    known = {variant.name: variant for variant in variants(SMOKE)}
    finder = VariantFinder(planted_runs.results(), SMOKE, known["raw error"])
    for query in ({"name": "FA"}, {"name": "DFA", "place": "wide"}, {"name": "DFA", "penalty": 1e-2}):
        with pytest.raises(InputError, match="the variant has no"):
            finder.cases(**query)

"""Published figures, the rule of agreement, how ours are found in stored results, and the page."""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent.parent / "studies"))
from planted import Bed, sight

from walkback.cli.main import main
from walkback.core.errors import InputError
from walkback.published.agree import KINDS, WIDTH, compare, distance, tolerance
from walkback.published.figure import Ask, figures, sections
from walkback.published.finder import Finder, recipes_at
from walkback.published.page import page, spans, summary
from walkback.published.printed import Printed, parse
from walkback.published.quantities import QUANTITIES
from walkback.published.reproduce import VariantFinder, locate, reproduce
from walkback.render.markdown import escape
from walkback.studies.catalog.sensitivity import variants
from walkback.studies.conduct import studies_of
from walkback.studies.results import Results
from walkback.studies.scale import METHODS, PAPER, SMOKE
from walkback.studies.telling import penalised
from walkback.training.recipe import resolve

NUMBERS = Path(__file__).with_name("published_numbers.txt")
"""Our transcription of every number the papers' results hold, by section; labels such as epochs and λ are left out."""

# What is printed


@pytest.mark.parametrize(
    ("text", "low", "high", "spread", "half", "digits"),
    [
        ("0.615 ± 0.003", 0.615, 0.615, 0.003, 0.0005, 3),
        ("+26.6 pp", 26.6, 26.6, None, 0.05, 3),
        ("−14.4 pp", -14.4, -14.4, None, 0.05, 3),
        ("~4e-4", 4e-4, 4e-4, None, 0.5e-4, 1),
        ("4.0 ± 0.1e4", 4e4, 4e4, 1e3, 500, 2),
        ("9.0 ± 0.9e-7", 9e-7, 9e-7, 0.9e-7, 0.05e-7, 2),
        ("12000", 12000, 12000, None, 500, 2),
        ("24,338×", 24338, 24338, None, 0.5, 5),
        ("1e7–1e8×", 1e7, 1e8, None, 0.5e8, 1),
        ("+0.39…+0.43", 0.39, 0.43, None, 0.005, 2),
        ("96%", 0.96, 0.96, None, 0.005, 2),
        ("0.10", 0.10, 0.10, None, 0.005, 2),
        ("≈ 0", 0, 0, None, 0.5, 1),
        ("> 1e-6", 1e-6, 1e-6, None, 0.5e-6, 1),
    ],
)
def test_a_printed_figure_is_read_with_its_spread_and_its_digits(text, low, high, spread, half, digits):
    found = parse(text)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.spread == (None if spread is None else pytest.approx(spread))
    assert found.half == pytest.approx(half)
    assert found.digits == digits


@pytest.mark.parametrize("text", ["", "about 3", "0.3 ±", "1 2", "0.3 - 0.4"])
def test_what_is_no_figure_is_refused(text):
    with pytest.raises(InputError, match="Cannot read the printed figure"):
        parse(text)


# The rule

NUMERIC = [name for name, kind in KINDS.items() if kind.by in ("difference", "ratio")]
VALUES = st.floats(1e-3, 1e3)


def exact(value: float, spread: float | None = None, sign: str = "") -> Printed:
    return Printed(value, value, spread, sign, 1e-9 * value, 9)


@given(st.sampled_from(NUMERIC), VALUES, st.integers(1, 5))
def test_the_same_figure_agrees(kind, value, seeds):
    assert compare(kind, exact(value), [value] * seeds).outcome == "agrees"


@given(st.sampled_from(NUMERIC), VALUES, st.floats(0.01, 0.5), st.floats(1.0, 3.0), st.floats(1.0, 3.0))
def test_farther_away_never_agrees_better(kind, value, width, near, more):
    """The same spread (of logarithms, for ratios), moved away."""

    def at(factor: float) -> str:
        seeds = [value * factor * math.exp(width * step) for step in (-1, 0, 1)]
        if KINDS[kind].by == "difference":
            seeds = [value + (factor - 1) * value + width * step for step in (-1, 0, 1)]
        return compare(kind, exact(value, 0.01), seeds).outcome

    if at(near) == "differs" and more > 1:
        assert at(near * more) == "differs"


@given(st.sampled_from(NUMERIC), VALUES, st.lists(VALUES, min_size=2, max_size=4), st.floats(0, 1), st.floats(0, 1))
def test_a_wider_spread_never_turns_agreement_into_difference(kind, value, ours, spread, more):
    if compare(kind, exact(value, spread), ours).outcome == "agrees":
        assert compare(kind, exact(value, spread + more), ours).outcome == "agrees"


@given(VALUES, st.lists(VALUES, min_size=2, max_size=4), st.integers(-6, 6))
def test_a_ratio_does_not_depend_on_the_unit(value, ours, power):
    one = compare("norm_g", exact(value), ours)
    other = compare("norm_g", exact(value).times(2.0**power), [v * 2.0**power for v in ours])
    assert one.outcome == other.outcome


def test_the_rule_is_two_standard_deviations_of_both_sides_and_rounding():
    assert tolerance(0.3, 0.4, 0.0) == pytest.approx(WIDTH * 0.5)
    assert tolerance(None, 0.4, 0.3) == pytest.approx(WIDTH * math.sqrt(0.4**2 + 0.4**2 + 0.3**2))
    assert tolerance(0.3, None, 0.0) == pytest.approx(WIDTH * math.sqrt(0.18))
    assert tolerance(None, None, 0.0) == 0
    # Three seeds of spread 0.01 against 0.615 ± 0.003: the limit is 2 sqrt(0.01² + 0.003² + r²) = 0.02089.
    ours = [-0.01, 0.0, 0.01]
    assert compare("accuracy", parse("0.615 ± 0.003"), [0.6358 + x for x in ours]).outcome == "agrees"
    assert compare("accuracy", parse("0.615 ± 0.003"), [0.6360 + x for x in ours]).outcome == "differs"


def test_what_is_printed_roughly_may_be_off_by_a_factor_of_two_and_no_more():
    assert compare("norm_h", parse("~200"), [399.0, 399.0]).outcome == "agrees"
    assert compare("norm_h", parse("~200"), [401.0, 401.0]).outcome == "differs"
    assert compare("norm_h", parse("~200"), [101.0, 101.0]).outcome == "agrees"
    assert compare("norm_h", parse("5e3"), [2.4e3, 2.4e3]).outcome == "differs"
    assert compare("norm_h", parse("2.1e2"), [240.0, 240.0]).outcome == "differs"
    assert compare("norm_h", parse("2.1e2"), [212.0, 212.0]).outcome == "agrees"


def test_rounding_excuses_little_of_a_cosine():
    assert compare("cosine", parse("≈ 1"), [0.96, 0.96]).outcome == "agrees"
    assert compare("cosine", parse("≈ 1"), [0.94, 0.94]).outcome == "differs"
    assert compare("cosine", parse("≈ 0"), [-0.06, -0.06]).outcome == "differs"


def test_another_sign_or_zero_never_agrees_by_ratio():
    for ours in ([1e-3, 1e-3], [0.0, 0.0], [-1e-3, 1e-3]):
        assert compare("nudging", parse("−1e-3"), ours).outcome == "differs"
    found = compare("nudging", parse("−1e-3"), [-2e-3, -2e-3])
    assert found.shown.startswith("×2, +0.30 orders (")


def test_bounds_and_ranges():
    assert compare("norm_g", parse("> 1e-6"), [2e-6, 3e-6]).outcome == "agrees"
    assert compare("norm_g", parse("> 1e-6"), [2e-6, 9e-7]).outcome == "differs"
    assert "above it in 1 of 2" in compare("norm_g", parse("> 1e-6"), [2e-6, 9e-7]).shown
    assert compare("growth", parse("< 10"), [9.0, 2.0]).outcome == "agrees"
    assert distance(0.2, 0.05, 0.18) == pytest.approx(0.02)
    assert distance(0.01, 0.05, 0.18) == pytest.approx(-0.04)
    assert distance(0.1, 0.05, 0.18) == 0
    assert compare("factor", parse("4–40×"), [39.0, 39.0]).outcome == "agrees"
    assert compare("factor", parse("4–40×"), [300.0, 300.0]).outcome == "differs"
    assert compare("factor", parse("4–40×"), [3.8, 3.8]).outcome == "differs"
    # A range is their spread already: ours does not stand for it as well.
    assert compare("cosine", parse("0.43–0.99"), [0.02, 0.21]).outcome == "differs"
    assert compare("cosine", parse("0.43"), [0.02, 0.21]).outcome == "agrees"


def test_first_firings_must_lie_in_the_range_give_or_take_an_epoch():
    assert compare("epoch", parse("8–11"), [7, 9, 12]).outcome == "agrees"
    assert compare("epoch", parse("8–11"), [9, 9, 13]).outcome == "differs"
    assert compare("epoch", parse("1"), [2, 1]).outcome == "agrees"
    assert compare("count", parse("3"), [3, 3]).outcome == "agrees"
    assert compare("count", parse("3"), [3, 4]).outcome == "differs"


def test_a_spread_over_draws_counts_as_that_of_their_mean():
    ours = [0.030, 0.030]
    assert compare("cosine", parse("+0.002 ± 0.022"), ours).outcome == "agrees"
    assert compare("cosine", parse("+0.002 ± 0.022"), ours, draws=20).outcome == "differs"


# The published figures


def test_every_number_of_the_papers_results_has_a_row():
    """By section, and as often as it is printed there."""
    token = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|[✓✗]")
    listed = dict(line.split(": ") for line in NUMBERS.read_text().splitlines())
    assert list(listed) == [section.name for section in sections()]
    for section in sections():
        # One figure may stand beside several methods of ours: it is printed once.
        once = {figure.id.partition(":")[0]: figure.text for figure in section.figures}
        texts = " ".join(once.values()).replace("−", "-").replace("–", " ").replace("…", " ")
        rows = Counter(found.lstrip("+").rstrip(",") for found in token.findall(texts))
        wanted = Counter(listed[section.name].split())
        assert not wanted - rows, f"{section.name} lacks {dict(wanted - rows)}"


def test_ids_are_unique_and_everything_named_is_known():
    every = [figure for section in sections() for figure in section.figures]
    assert len({figure.id for figure in every}) == len(every) > 300
    known = {variant.name for variant in variants(PAPER)}
    for figure in every:
        assert figure.missing or figure.ask.quantity in QUANTITIES, figure.id
        assert set(figure.variants) <= known, figure.id
        assert (figure.batch is None) == (figure.kind != "norm_g"), figure.id
        assert not figure.twin or figure.twin in figures(), figure.id
        assert figure.printed is not None or KINDS[figure.kind].by in ("words", "epoch"), figure.id
    studies_of(sorted({figure.study for figure in every}))


def test_every_quantity_is_used():
    assert {figure.ask.quantity for figure in figures().values() if not figure.missing} == set(QUANTITIES)


def test_figures_in_two_conventions_differ_by_about_eight():
    """What makes 1024 the batch of one of them."""
    pairs = [(figure, figures()[figure.twin]) for figure in figures().values() if figure.twin]
    assert len(pairs) == 5
    for one, other in pairs:
        assert (one.batch, other.batch) == (1024, 128)
        assert 7 < parse(other.text).low / parse(one.text).low < 9.5


CLOSE = ("deep", "cosine", "hidden", "gradient", "deep_least", "deep_most")
"""What may be asked for after an epoch, of a network that was measured in full there."""


@pytest.mark.parametrize("scale", [SMOKE, PAPER], ids=lambda scale: scale.name)
def test_the_study_of_a_figure_takes_what_the_figure_needs(scale):
    """Its runs, its looks after an epoch, its finite steps: the command on the page makes them."""
    for name in {figure.study for figure in figures().values()}:
        (study,) = studies_of([name]).values()
        runs = recipes_at(name, scale.name)
        closely = {(resolve(config).name, epoch) for config, epochs in study.closely(scale) for epoch in epochs}
        finite = {resolve(config).name for config in study.functional(scale)}
        find = Finder(Results(Path("nowhere")), scale, name)
        for figure in figures().values():
            ask = figure.ask
            if figure.study != name or figure.missing or not ask.ours:
                continue
            for config in [] if ask.places else find.runs(ask.ours, ask.place, ask.epochs, ask.penalty):
                run = resolve(config).name
                assert run in runs, figure.id
                if ask.quantity in CLOSE and ask.epoch is not None:
                    assert (run, ask.epoch) in closely, figure.id
                if ask.quantity == "block_outputs":
                    assert (run, 0) in closely, figure.id
                if ask.quantity.startswith(("rho", "nudging")):
                    assert run in finite, figure.id


# Ours, found in stored results

LOOK = {"growth": 3.0, "grad": 2e-5, "cosines": [0.4, 0.1, 0.0, -0.1, 0.2], "group_cos": 0.25, "fresh": 0.03}


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    """Backprop and FA healthy, DFA exploded, at different sizes in both seeds."""
    made = Bed(tmp_path_factory.mktemp("planted"))
    log = [
        sight(1, growth=2, grad=1e-5, accuracy=0.2, loss=2.5),
        sight(2, growth=20, grad=7e-7, accuracy=0.3, loss=2.0),
        sight(3, growth=70, grad=5e-8, accuracy=0.31, loss=1.5),
    ]
    made.plant(SMOKE.runs([METHODS["BP"]], place="wide"), accuracy=0.5, shell=0.1)
    made.plant(SMOKE.runs([METHODS["BP"]]), accuracy=[0.60, 0.62], shell=0.4, look={"cosines": 1.0}, log=[sight(1)])
    made.plant(
        SMOKE.runs([METHODS["DFA"]]),
        accuracy=[0.30, 0.34],
        shell=[0.35, 0.36],
        look=LOOK | {"branch": [30.0, 300.0, 30.0, 300.0]},
        weights=(20.0, 30.0),
        log=log,
        close={
            0: LOOK | {"growth": 1.0, "grad": 8e-3, "branch": 3.0},
            1: LOOK | {"cosines": [0.5, 0.01, 0.02, 0.03, 0.04]},
            2: LOOK,
            3: LOOK | {"cosines": [-0.9, 0.2, 0.3, 0.2, 0.3]},
        },
        functional={"rho": 0.7, "rho_one_sided": [0.9, 0.1, 0.2, 0.3, 0.4], "rho_random": 0.01},
    )
    for name, nudge in (("DFA", -1e-3), ("FA", -2e-3)):
        made.plant(
            SMOKE.runs([penalised(METHODS[name], 1e-2)], epochs="short"),
            accuracy=0.5,
            shell=0.4,
            look=LOOK,
            log=[sight(1, loss=2.0), sight(2, loss=2.0 + 500 * nudge)],
            functional={"nudge_credit": nudge},
        )
    for name, growth, grad in (("State Bridge", 100.0, 1e-9), ("Credit Bridge", 60.0, 1e-8), ("EP", 5.0, 1e-4)):
        made.plant(SMOKE.runs([METHODS[name]]), accuracy=0.3, shell=0.4, look={"growth": growth, "grad": grad})
    return made


@pytest.fixture(scope="module")
def whole(bed):
    return reproduce(bed.results(), SMOKE)


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
    runs = SMOKE.runs([penalised(METHODS["DFA"], 1e-2 if short else 0.0)], epochs="short" if short else "full")
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
    params = case.recipe.params()
    sizes = {name: float(np.linalg.norm(leaf.double().numpy())) for name, leaf in params.items()}
    return [sizes[f"blocks.{block}.w1.weight"] * sizes[f"blocks.{block}.w2.weight"] for block in range(4)]


# One row


def row(bed: Bed, **changes):
    """DFA's accuracy, 0.30 and 0.34 in the planted runs, beside a printed figure."""
    figure = replace(figures()["primary-audit/dfa-accuracy@P1"], **changes)
    return locate(figure, Finder(bed.results(), SMOKE, figure.study))


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
        assert locate(replace(figure, text=text, batch=batch), find).outcome == outcome


def test_words_must_be_the_same_in_every_seed(bed):
    verdict = replace(figures()["primary-audit/dfa-verdict@P1"], ask=Ask("verdict", "DFA", edition="three"))
    find = Finder(bed.results(), SMOKE, "primary-audit")
    assert locate(verdict, find).outcome == "agrees"
    assert locate(replace(verdict, text="trustworthy"), find).outcome == "differs"
    answer = replace(verdict, kind="answer", text="✗", means="no", ask=Ask("passes", "State Bridge", check="D1"))
    assert locate(answer, find).outcome == "agrees"
    assert locate(replace(answer, means="yes"), find).outcome == "differs"


def test_seeds_that_say_different_things_do_not_agree(tmp_path):
    planted, runs = Bed(tmp_path), SMOKE.runs([METHODS["DFA"]])
    for config, growth in zip(runs, (100.0, 2.0), strict=True):
        planted.plant([config], shell=0.4, look=LOOK | {"growth": growth})
    figure = figures()["cross-architecture/resmlp-dfa-scale@P2"]
    find = Finder(planted.results(), SMOKE, figure.study)
    for means in ("yes", "no"):
        found = locate(replace(figure, means=means), find)
        assert (found.outcome, found.ours) == ("differs", "no, yes")


def test_an_epoch_that_never_comes_differs_from_one_that_does(bed):
    figure = figures()["temporal-replay/b-resmlp@O"]
    find = Finder(bed.results(), SMOKE, figure.study)
    never = replace(figure, ask=replace(figure.ask, ours="BP"))
    assert locate(replace(figure, text="3–4"), find).outcome == "agrees"  # At 2, in both seeds.
    assert locate(replace(figure, text="never"), find).outcome == "differs"
    assert locate(replace(never, text="3–4"), find).outcome == "differs"
    assert locate(replace(never, text="never"), find) == locate(replace(never, text="never", kind="answer"), find)
    assert locate(replace(never, text="never"), find).outcome == "agrees"


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
    rows = {found.figure.id: found for found in reproduce(planted.results(), SMOKE).rows}
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


# The page


def table_rows(text: str) -> dict[str, list[str]]:
    """Cells of the page's rows by their number."""
    lines = [line for line in text.splitlines() if re.match(r"\| \d+\.\d+ \|", line)]
    return {
        cells[0]: cells[1:] for cells in ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)
    }


def test_the_page_shows_the_stored_numbers(bed, whole):
    rows = table_rows(page(whole, bed.folder.parent, bed.folder.parent / "page.md"))
    numbered = {f"{n}.{m}": r for n, part in enumerate(whole.parts, 1) for m, r in enumerate(part.rows, 1)}
    assert list(rows) == list(numbered)
    for name, found in numbered.items():
        what, published, ours, off, outcome, study = rows[name]
        assert what == escape(found.figure.what)
        assert published.startswith(escape(found.figure.text))
        assert f"[{found.figure.source}]" in published
        assert ours == (escape(found.found.ours) or "–")
        assert found.outcome in outcome
        assert ("calibration" in outcome) == (bool(found.figure.calibration) and found.figure.kind != "setting")
        assert ("×8" in off) == (found.figure.batch == 1024 and bool(found.found.off))
        assert study == f'<a href="{found.figure.study}/study.md">{found.figure.study}</a>'
    # From the run's own record, past everything that reads it.
    seeds = [json.loads(path.read_text())["result"]["test_acc"] for path in _records(bed, METHODS["DFA"])]
    shown = f"{np.mean(seeds):.3f} ± {np.std(seeds, ddof=1):.3f}"
    assert ["DFA, test accuracy", "0.306 ± 0.006 [P1]", shown] in [cells[:3] for cells in rows.values()]


def _records(bed: Bed, method: str) -> list[Path]:
    return [bed.folder / resolve(config).name / "run.json" for config in SMOKE.runs([method])]


def test_the_summary_adds_up(whole):
    rows = whole.rows
    total, *parts, fitted, taken, neither = map(int, re.findall(r"\d+", summary(rows)))
    assert total == len(rows) == sum(parts)
    assert parts == [sum(r.outcome == word for r in rows) for word in ("agrees", "differs", "not measured")]
    agreeing = [r.figure for r in rows if r.outcome == "agrees"]
    assert taken == sum(figure.kind == "setting" for figure in agreeing) > 0
    assert fitted == sum(figure.kind != "setting" and bool(figure.calibration) for figure in agreeing) > 0
    assert fitted + taken + neither == parts[0]
    assert min(parts) > 0


def test_every_row_renders_where_there_is_no_run(tmp_path):
    (tmp_path / "runs").mkdir()
    whole = reproduce(Results(tmp_path / "runs"), PAPER)
    assert {found.outcome for found in whole.rows} == {"not measured"}
    assert all(found.found.reason for found in whole.rows)
    text = page(whole, tmp_path, tmp_path / "page.md")
    assert len(table_rows(text)) == len(figures())
    assert "`walkback study penalty-sweep --scale paper --out" in text
    assert "no finished runs bp\\_resmlp\\_cifar10\\_s42" in text
    for run in whole.runs:
        assert f"`{run}`" in text


def test_rows_that_differ_say_what_was_tested(bed, whole):
    text = page(whole, bed.folder.parent, bed.folder.parent / "page.md")
    assert re.search(r"\n- 2\.\d+: The error's scale, the size of B, .* Fitted to it: the recipe's error scale", text)
    assert "  - sensitivity, raw error: not run" in text
    assert re.search(r"\n- [\d., to]+: Nothing has been tested to explain it\.", text)
    assert spans(["2.1", "2.4", "2.5", "2.6", "2.9", "2.10"]) == "2.1, 2.4 to 2.6, 2.9, 2.10"


# The command


@pytest.fixture
def here(bed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(bed.folder.parent)
    return ["reproduction", "--results", "results", "--scale", "smoke", "--out", "docs/reproduction.md"]


def test_the_command_writes_the_page_and_sees_whether_it_is_up_to_date(here, capsys, tmp_path):
    out = tmp_path / "docs" / "reproduction.md"
    assert main(here) == 0
    text = out.read_text()
    assert capsys.readouterr().out.splitlines()[0] in text
    assert '<a href="../results/primary-audit/study.md">' in text
    assert str(tmp_path) not in text
    assert main([*here, "--check"]) == 0  # Made again, it is the same to the byte.
    other = text.replace("0.320", "0.306")
    assert other != text
    out.write_text(other)
    capsys.readouterr()
    assert main([*here, "--check"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert out.read_text() == other


def test_the_command_prints_rows_as_json(here, capsys, tmp_path):
    assert main([*here, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [found["id"] for found in rows] == list(figures())
    by = {found["id"]: found for found in rows}
    assert by["primary-audit/dfa-accuracy@P1"]["values"] == pytest.approx([0.30, 0.34])
    assert not (tmp_path / "docs").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--results", "nowhere"],
            r"There is no folder nowhere/runs\. `walkback study all --scale smoke --out nowhere`",
        ),
        (["--check"], r"There is no page docs/reproduction\.md to check\. Leave --check out"),
        (["--check", "--json"], r"--check and --json were both given; expected one\."),
        (["--scale", "large"], r"argument --scale: invalid choice: 'large'"),
        (["--out", "mine.txt/page.md"], r"Could not create mine\.txt"),
    ],
)
def test_the_command_refuses(here, capsys, tmp_path, words, sentence):
    (tmp_path / "mine.txt").write_text("mine")
    assert main([*here, *words]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert re.search(sentence, said.err)
    assert not (tmp_path / "docs").exists()


@pytest.mark.slow
def test_a_page_of_real_runs_is_written_again_the_same(tmp_path, monkeypatch):
    """Trained, measured and told at smoke scale, then read twice."""
    from walkback.studies.conduct import conduct
    from walkback.studies.run import Listener, Options

    monkeypatch.chdir(tmp_path)
    done = conduct(studies_of(["fresh-b-null"]), SMOKE, Options(out=Path("results"), device="cpu"), Listener())
    assert done.unfinished == 0
    words = ["reproduction", "--results", "results", "--scale", "smoke", "--out", "docs/reproduction.md"]
    assert main(words) == 0
    assert main([*words, "--check"]) == 0
    rows = {found.figure.id: found for found in reproduce(Results(Path("results/runs")), SMOKE).rows}
    story = json.loads(Path("results/fresh-b-null/study.json").read_text())
    published = [
        r for r in story["tables"][0]["rows"] if r[0]["text"] == "0.01" and r[2]["text"].startswith("published")
    ]
    own = rows["penalty/fresh-own@P2"].found
    assert own.outcome != "not measured"
    assert [f"{value:+.3f}" for value in own.values] == [r[3]["text"] for r in published]
    fresh = rows["penalty/fresh@P1"].found
    assert [f"{value:+.3f}" for value in fresh.values] == [r[4]["text"] for r in published]

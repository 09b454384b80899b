"""Drawn figures: subscripts and powers of ten, labels beside curves, no text over another or cut off."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawn_text import drawn_texts, faults_of, unexplained_codes
from walkback.report import figure_labels
from walkback.report.figure_labels import spread
from walkback.report.figure_text import tick_label, typeset
from walkback.report.study_report import CellGrid, Figure, Plot, Series
from walkback_papers.figure_notes import with_checks_explained
from walkback_papers.plots import in_same_range, listed, message

NAMES = ("BP", "FA", "DFA", "State Bridge", "Credit Bridge", "DFA raw")


def figure(*plots, title="A title of the figure that takes more than a single line of its width", **given):
    return Figure("f", title, plots, "caption", **given)


def curves(ends, **given):
    """One curve for each of `NAMES`, from 0.5 to its end."""
    series = tuple(Series(name, (0, 1), (0.5, end), **given) for name, end in zip(NAMES, ends, strict=False))
    return Plot("Plot", "epoch", "‖g_L‖ @128", series, levels={"D2 floor": 0.5})


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("‖g_L‖ @128", "‖$g_{L}$‖ @128"),
        ("‖h_l+1‖ / ‖h_l‖", "‖$h_{l+1}$‖ / ‖$h_{l}$‖"),
        ("cos(a_0, g_l[i])", "cos($a_{0}$, $g_{l}$[i])"),
        ("the_name of x_label", "the_name of x_label"),
        ("1e-7 and 8e-07", "10⁻⁷ and 8×10⁻⁷"),
        ("5.5e8", "5.5×10⁸"),
        ("a1e7", "a1e7"),
        ("-0.5 to well-known", "−0.5 to well-known"),
        ("cost $5", r"cost \$5"),
    ],
)
def test_subscripts_and_powers_of_ten_are_typeset(text, drawn):
    assert typeset(text) == drawn


@pytest.mark.parametrize(
    ("value", "label"),
    [(0, "0"), (0.01, "0.01"), (1e-3, "10⁻³"), (2e-4, "2×10⁻⁴"), (500, "500"), (1000, "10³"), (-1e6, "−10⁶")],
)
def test_ticks_have_powers_of_ten_where_numbers_are_long(value, label):
    assert tick_label(value) == label


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.floats(-50, 250), st.sampled_from([11.0, 22.0])), max_size=9))
def test_spread_labels_do_not_overlap(labels):
    wanted, tall = [at for at, _ in labels], [size for _, size in labels]
    places = spread(wanted, tall, 200.0)
    boxes = sorted((at - size / 2, at + size / 2) for at, size in zip(places, tall, strict=True))
    assert all(after[0] >= before[1] - 1e-6 for before, after in pairwise(boxes))
    if sum(tall) <= 200:
        assert all(low >= -12 and high <= 212 for low, high in boxes)


def test_a_label_far_from_others_stays_at_its_curve():
    assert spread([20.0, 100.0, 104.0], [10.0] * 3, 200.0) == [20.0, 97.0, 107.0]


@pytest.mark.parametrize("ends", [(0.5,) * 6, (0, 0.1, 0.12, 0.14, 0.9, 1)])
def test_curves_are_labelled_where_they_end(ends):
    drawn = figure(curves(ends), curves(ends[::-1]))
    texts = [text for text, _ in drawn_texts(drawn)]
    assert all(texts.count(name) == 2 for name in NAMES)
    assert texts.count("D2 floor") == 2
    assert faults_of(drawn) == []


def test_the_check_finds_covered_and_cut_off_texts(monkeypatch):
    monkeypatch.setattr(figure_labels, "spread", lambda wanted, tall, height: list(wanted))
    assert "'BP' and 'FA'" in faults_of(figure(curves((1.0,) * 6)))
    wide = Plot("w" * 90, "", "", (Series("BP", (0, 1), (0, 1)),))
    assert any("is cut off" in fault for fault in faults_of(figure(wide)))


def test_a_curve_that_ends_early_is_labelled_there():
    series = (Series("BP", (0, 1, 2), (1, 1.5, 2)), Series("DFA", (0, 10), (0, 0)))
    drawn = figure(Plot("", "", "", series))
    boxes = dict(drawn_texts(drawn))
    assert boxes["BP"][0] < boxes["DFA"][0] - 50
    assert faults_of(drawn) == []


def test_more_labels_than_fit_are_in_a_legend_that_is_not_cut_off():
    series = tuple(Series(f"a curve with a rather long name {n}", (0, 1), (n, n)) for n in range(15))
    drawn = figure(Plot("", "", "", series), columns=1)
    assert len([text for text, _ in drawn_texts(drawn) if text.startswith("a curve")]) == 15
    assert faults_of(drawn) == []


def test_names_beside_points_cover_neither_points_nor_each_other():
    points = [(0.1 * (n % 3), 0.05 * n) for n in range(12)]
    x, y = zip(*points, strict=True)
    series = Series("points", x, y, mark="points", names=[f"point {n}" for n in range(12)])
    drawn = figure(Plot("", "x", "y", (series,)), zoom=1.5)
    assert {f"point {n}" for n in range(12)} <= {text for text, _ in drawn_texts(drawn)}
    assert faults_of(drawn) == []


def test_rows_events_breaks_and_grids_are_drawn_without_overlap():
    rows = ("a short one", "a row with a long name", "c")
    marks = tuple(replace(Series(n, range(3), (1e-9, 1e-3, 2)), mark="points") for n in NAMES[:3])
    across = Plot("Rows", "", "‖g_L‖", marks, y_log=True, levels={"D2 floor": 1e-7}, ticks=rows, horizontal=True)
    events = ((1.0, "D1"), (1.01, "D2 at 1e-7"), (9.0, "D2 at 8e-7"))
    along = Plot("Events", "epoch", "", (Series("BP", range(10), range(10)),), events=events, breaks=(4.5,))
    grid = CellGrid("Grid", ("State Bridge", "B"), ("S0: accuracy alone", "S1"), (("clear", "raised"), ("open", "x")))
    drawn = figure(across, across, along, grid)
    texts = [text for text, _ in drawn_texts(drawn)]
    assert texts.count("a row with a long name") == 1
    assert "D2 at 8×10⁻⁷" in texts
    assert faults_of(drawn) == []


def test_the_title_is_in_the_figure():
    assert "One message" in [text for text, _ in drawn_texts(figure(curves((0, 1)), title="One message"))]


def test_a_title_claims_only_what_holds():
    assert [message(holds, "claim", "neutral") for holds in (True, False, None)] == ["claim", "neutral", "neutral"]
    assert [listed(names) for names in ((), "a", "ab", "abc")] == ["none", "a", "a and b", "a, b and c"]


def test_plots_in_the_same_range_include_all_their_values():
    low = Plot("", "", "", (Series("a", (0, 1), (1e-9, None), low=(1e-10, None), high=(1e-8, None)),), y_log=True)
    high = Plot("", "", "", (Series("a", (0,), (5.0,)),), y_log=True, levels={"limit": 50.0})
    first, second = in_same_range([low, high])
    assert first.y_range == second.y_range
    assert first.y_range[0] < 1e-10
    assert 50 < first.y_range[1] < 5000


def test_codes_of_checks_are_explained_where_the_labels_do_not():
    axes = Plot("growth (D1)", "", "", (Series("BP", (0,), (1,)),), levels={"D1 limit": 50, "D2 floor": 1e-7})
    bare = figure(axes)
    assert unexplained_codes(bare) == {"D2"}
    explained = with_checks_explained(bare)
    assert unexplained_codes(explained) == set()
    assert explained.caption.startswith("caption D2: ")
    assert with_checks_explained(explained) == explained
    strategies = CellGrid("", ("BP",), ("S0: accuracy alone", "+(a)"), (("clear",), ("clear",)))
    assert unexplained_codes(figure(strategies)) == {"+(a)"}

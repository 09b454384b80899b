"""The audit page: every mark and cell is a stored number, plots share their axes, and tables repeat the plots."""

from __future__ import annotations

import json
import math
import re
from statistics import fmean, stdev
from xml.etree import ElementTree

import fake_audit
import page_tables
import pytest
from fake_measurements import ALL

from walkback.judge.audit_table import worst_outcome
from walkback.judge.card import seal
from walkback.judge.evidence import Evidence
from walkback.judge.report import judge
from walkback.judge.threshold_sweep import STRATEGIES, strategies
from walkback.report.audit_page.grid import outcome
from walkback.report.audit_page.page import audit_page
from walkback.report.cells import tidy

SIGNS = {"trustworthy": "✓ passes", "walked_back": "✗ walked back", "inconclusive": "? not decidable"}


@pytest.fixture(scope="module")
def reports():
    return fake_audit.reports()


@pytest.fixture(scope="module")
def cards(reports):
    return [report.to_json() for report in reports]


@pytest.fixture(scope="module")
def source(reports, cards):
    return audit_page(cards, "Audit", logs=fake_audit.logs(reports))


def rows_of(source, anchor):
    """The rows of the tables after the first occurrence of `anchor`."""
    return page_tables.read("html", source[source.index(anchor) :])


def section(source, name):
    """The HTML of the section with this id."""
    return re.search(rf'<section id="{name}">(.*?)\n</section>\n</details>', source, re.DOTALL)[1]


def panels(source, name):
    """The parsed plots of a section, by method."""
    cells = re.findall(r'<section class="multiple">(.*?)</section>', section(source, name), re.DOTALL)
    assert len(cells) == len(fake_audit.MADE)
    return {
        method: [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", cell, re.DOTALL)]
        for method, cell in zip(fake_audit.MADE, cells, strict=True)
    }


def marks(svg, kind):
    """The marks of one CSS class, by their titles."""
    found = [each for each in svg.iter() if each.get("class", "").split()[:1] == [kind]]
    return {each.find("title").text: each for each in found}


def by_method(cards):
    return {method: [card for card in cards if card["claim"]["method"] == method] for method in fake_audit.MADE}


READ = {0: (lambda layer: None if layer["credit"] is None else layer["credit"]["cos"], "+.3f"),
        1: (lambda layer: layer["grad_norm_128"], ".3g")}  # fmt: skip


@pytest.mark.parametrize("row", READ)
def test_every_seed_of_every_layer_is_a_mark_or_a_cross(source, cards, row):
    read, spec = READ[row]
    values = 0
    for method, found in by_method(cards).items():
        svg = panels(source, "layers")[method][row]
        specks, crosses = marks(svg, "speck"), marks(svg, "cross")
        for card in found:
            for layer in card["layers"]:
                about = f"layer {layer['layer']}, seed {card['claim']['seed']}: "
                given = read(layer)
                if given is None or given["status"] != "ok":
                    word = "INVALID" if given and given["status"] == "invalid" else "NOT MEASURED"
                    assert f"{about}{word}" in crosses
                    assert not [title for title in specks if title.startswith(about)]
                else:
                    assert tidy(f"{about}{given['value']:{spec}}") in specks
                    values += 1
    assert values > 40


def test_a_mean_is_drawn_only_where_every_seed_has_a_value(source, cards):
    for method, found in by_method(cards).items():
        dots = marks(panels(source, "layers")[method][0], "dot")
        for layers in zip(*(card["layers"] for card in found), strict=True):
            cosines = [layer["credit"] and layer["credit"]["cos"] for layer in layers]
            titles = [title for title in dots if title.startswith(f"layer {layers[0]['layer']}, all seeds: ")]
            if all(cosine and cosine["status"] == "ok" for cosine in cosines):
                values = [cosine["value"] for cosine in cosines]
                # A mean of zero has no minus sign.
                shown = f"{fmean(values):+.3f} ± {stdev(values):.3f}".replace("-0.000 ", "+0.000 ")
                assert titles == [f"layer {layers[0]['layer']}, all seeds: {shown}"]
            else:
                assert titles == []
    # One seed of kp is noise at its last two layers, so no line is drawn there.
    curve = next(each for each in panels(source, "layers")["kp"][0].iter() if each.get("class") == "curve")
    assert len(curve.get("points").split()) == 3


@pytest.mark.parametrize(
    ("name", "row", "log"),
    [("layers", 0, False), ("layers", 1, True), ("epochs", 0, True), ("epochs", 1, True), ("epochs", 2, False)],
)
def test_all_panels_of_a_row_have_the_same_axis(source, name, row, log):
    """The heights of all dots in a row of panels are one linear function of their values."""
    points = []
    for found in panels(source, name).values():
        for title, mark in marks(found[row], "speck").items():
            value = float(title.rpartition(": ")[2])
            points.append((math.log10(value) if log else value, float(mark.get("cy"))))
    (x0, y0), (x1, y1) = min(points), max(points)
    slope = (y1 - y0) / (x1 - x0)
    assert slope < -5
    for x, y in points:
        assert y == pytest.approx(y0 + slope * (x - x0), abs=0.4)  # Titles are rounded to three digits.


def test_the_plotted_numbers_are_in_a_table_too(source, cards):
    found = page_tables.read("html", section(source, "layers"))[""]
    cosines, norms = found[: len(fake_audit.MADE)], found[len(fake_audit.MADE) :]
    for (method, each), cosine_row, norm_row in zip(by_method(cards).items(), cosines, norms, strict=True):
        assert cosine_row[0] == norm_row[0] == method
        for at, (cosine, norm) in enumerate(zip(cosine_row[1:], norm_row[1:], strict=True)):
            values = [card["layers"][at]["grad_norm_128"]["value"] for card in each]
            assert norm == " to ".join(dict.fromkeys(tidy(f"{value:.3g}") for value in sorted(values)))
            if method == "kp" and at > 2:
                assert cosine == "INVALID in 1 of 2"
            elif method == "mine":
                assert cosine == "NOT MEASURED"
            else:
                values = [card["layers"][at]["credit"]["cos"]["value"] for card in each]
                assert float(cosine.split(" ± ")[0]) == pytest.approx(fmean(values), abs=5.1e-4)
                assert float(cosine.split(" ± ")[1]) == pytest.approx(stdev(values), abs=5.1e-4)


KEYS = {0: ("growth", ".3g"), 1: ("grad_top", ".3g"), 2: ("test_acc", ".3f")}


@pytest.mark.parametrize("row", KEYS)
def test_every_logged_number_is_a_mark(source, row):
    key, spec = KEYS[row]
    for method, found in panels(source, "epochs").items():
        svg = found[row]
        logs = {seed: [row for row in fake_audit.log(method, seed) if key in row] for seed in fake_audit.SEEDS}
        known = {seed: rows for seed, rows in logs.items() if rows}
        expected = {
            f"epoch {row['epoch']}, seed {seed}: {'not finite' if row[key] is None else format(row[key], spec)}"
            for seed, rows in known.items()
            for row in rows
        }
        shown = {*marks(svg, "speck"), *marks(svg, "cross")}
        if len(known) == 2:
            assert shown == expected
        elif len(known) == 1:  # The curve of a single seed has dots instead of specks.
            assert {title.replace(":", ", seed 1:") for title in marks(svg, "dot")} == expected
        else:
            assert shown == set()
            words = "no training log" if method == "mine" else "not watched while training"
            assert words in "".join(svg.itertext())


def test_first_alarms_are_marked_in_the_plots_and_listed(source):
    x = {}
    dfa = panels(source, "epochs")["dfa:scale=unit_error,site=input"]
    for title, mark in marks(dfa[2], "speck").items():
        x[int(re.match(r"epoch (\d+)", title)[1])] = float(mark.get("cx"))
    lines = [[each for each in svg.iter() if each.get("class", "").startswith("fired")] for svg in dfa]
    placed = [[(each.get("class"), float(each.get("x1"))) for each in found] for found in lines]
    # 2 * 6^2 = 72 is the first growth above 50; 1e-3 * 10^-4.5 the first gradient under 1e-7, in the first seed only.
    assert placed == [[("fired D1", x[2])], [("fired D2", x[4])], [("fired D1", x[2]), ("fired D2", x[4])]]
    assert "D1 at 2" in "".join(dfa[0].itertext())
    assert "D2 at 4 in 1 of 2" in "".join(dfa[1].itertext())
    rows = {row[0]: row[1:] for row in rows_of(source, 'class="first-alarms"')[""][:7]}
    assert rows["dfa:scale=unit_error,site=input"] == ["2", "4, never", "3, never", "6"]
    assert rows["bp"] == ["never", "never", "never", "6"]
    assert rows["kp"] == ["6", "never", "never", "6"]  # Its growth ends not finite.
    assert rows["state_bridge"] == ["never (1 of 2 not watched)"] * 3 + ["6"]
    assert rows["mine"] == ["no training log"] * 3 + ["–"]
    assert rows["sdfa"] == ["not watched while training"] * 3 + ["6"]


def test_missing_logs_are_named_in_the_plots(cards):
    source = audit_page(cards, "Audit")
    for found in panels(source, "epochs").values():
        assert all("no training log" in "".join(svg.itertext()) for svg in found)


def test_the_grid_shows_the_conclusions_of_the_strategies(source, reports):
    (rows,) = page_tables.read("html", section(source, "utility")).values()
    for method, row in zip(fake_audit.MADE, rows, strict=True):
        found = [strategies(report) for report in reports if report.method_name == method]
        assert row[0] == method
        for name, cell in zip(STRATEGIES, row[1:], strict=True):
            assert cell.replace("\xa0", " ").startswith(SIGNS[worst_outcome([each[name] for each in found])])
    words = {cell.replace("\xa0", " ") for row in rows for cell in row[1:]}
    assert {"✗ walked back (D1, D2, D3)", "? not decidable (D3)"} <= words
    assert any(word.endswith("in 1 of 2 seeds") for word in words)


@pytest.mark.parametrize("case", ALL)
def test_strategies_conclude_the_same_from_a_card_as_from_its_report(case):
    for evidence in (Evidence(), fake_audit.GOOD, fake_audit.BAD, Evidence.of(0.3, 0.4)):
        report = judge(ALL[case](), evidence, method_name="x")
        card = json.loads(json.dumps(report.to_json()))
        assert {name: outcome(card, rules)[0] for name, rules in STRATEGIES.items()} == strategies(report)


def test_the_grid_keeps_a_withheld_verdict_inconclusive():
    card = fake_audit.report("fa", 1, missing="rule.safetensors is missing").to_json()
    assert card["verdict"] == "inconclusive"
    assert {outcome(card, STRATEGIES[name])[0] for name in ("S3", "full")} == {"inconclusive"}


def test_every_caption_states_n_ddof_data_and_recipe(source):
    captions = re.findall(r'<p class="caption">(.*?)</p>', source)
    assert len(captions) == 5
    for caption in captions:
        for part in ("resmlp on prototypes", "6 epochs, batch 64, AdamW lr 0.01", "n = 2 seeds (1, 2)", "ddof = 1"):
            assert part in caption


def test_a_card_without_a_run_has_no_recipe_and_one_seed_has_no_spread():
    card = judge(ALL["healthy"](), Evidence.of(0.5, 0.3), method_name="mine").to_json()
    source = audit_page([card], "Audit")
    assert re.search(r"recipe not recorded; n = 1 .*no ±", source)


def test_no_unformatted_float_is_shown(source):
    shown = re.sub(r"<style.*?</style>|<script.*?</script>|<[^>]*>", " ", source, flags=re.DOTALL)
    assert not re.findall(r"\d\.0*[1-9]\d{4,}|\bnan\b|\binf\b|\bNone\b", shown)


def test_networks_of_different_depths_share_the_layer_axis():
    deep = fake_audit.report("fa", 1)
    flat = judge(
        ALL["one block"](), fake_audit.GOOD, method_name="flat", context=deep.context | {"arch": "resmlp:depth=1"}
    )
    source = audit_page([deep.to_json(), flat.to_json()], "Audit")
    cells = re.findall(r'<section class="multiple">(.*?)</section>', section(source, "layers"), re.DOTALL)
    first, second = (
        marks(ElementTree.fromstring(re.search(r"<svg.*?</svg>", cell, re.DOTALL)[0]), "dot") for cell in cells
    )
    places = [{title[:7]: each.get("cx") for title, each in found.items()} for found in (first, second)]
    assert len(places[0]) == 5
    assert places[1].items() <= places[0].items()
    table = page_tables.read("html", section(source, "layers"))[""]
    assert table[1][3:] == ["–"] * 3


def test_a_gradient_of_zero_and_a_long_training_are_drawn():
    log = [{"epoch": e, "test_acc": 0.5, "growth": 1.0, "grad_top": 0.0 if e > 150 else 1e-4} for e in range(1, 201)]
    reports = [fake_audit.report("bp", seed) for seed in fake_audit.SEEDS]
    source = audit_page([report.to_json() for report in reports], "Audit", logs=[log, log])
    svg = ElementTree.fromstring(re.findall(r"<svg.*?</svg>", section(source, "epochs"), re.DOTALL)[1])
    assert "D2 at 151" in "".join(svg.itertext())
    assert marks(svg, "speck") == {}
    assert len(next(each for each in svg.iter() if each.get("class") == "curve").get("points").split()) == 200
    ticks = [each.text for each in svg.iter() if each.text and re.fullmatch(r"\d+", each.text)]
    assert ticks == ["1", "50", "100", "150", "200"]


def test_cards_without_the_numbers_for_judging_again_have_no_sliders(cards, source):
    older = [seal({key: card[key] for key in card if key not in ("rejudging", "blocks", "hash")}) for card in cards]
    page = audit_page(older, "Audit")
    assert "<input" in source
    assert "<input" not in page
    assert "walkback diagnose" in page
    # The cosines of older cards are by layer.
    assert "measured by layer only" in page
    assert "measured by layer only" not in source

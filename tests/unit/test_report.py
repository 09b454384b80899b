"""Rendered cards: the same numbers in every format, no invalid number shown, and every text escaped."""

from __future__ import annotations

import copy
import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import resources
from statistics import mean, stdev

import page_tables
import pytest
from fake_measurements import ALL, healthy
from hypothesis import given
from hypothesis import strategies as st

from walkback.cli.main import main
from walkback.core.errors import InputError
from walkback.core.measurements import Measurements
from walkback.judge.card import read_card, seal
from walkback.judge.evidence import Evidence
from walkback.judge.report import judge
from walkback.report import latex, markdown
from walkback.report.audit_page.page import audit_page
from walkback.report.cards import view
from walkback.report.cells import tidy
from walkback.report.formats import FORMATS, PAGES, render
from walkback.report.html import html
from walkback.report.overview import OVERVIEW_NUMBERS, overview_latex, overview_markdown, overview_text

SEEDS = Evidence.of([0.61, 0.62, 0.60], {"method_shell": [0.35, 0.35, 0.34], "bp_shell": 0.42}, [0.6, 0.6, 0.6])
CONTEXT = {
    "arch": "resmlp",
    "data": "cifar10",
    "digest": "3552bc907d78bea24cf445f10143debd93400cc63cfc2c099b56fb85ebd06764",
    "provenance": {"versions": {"python": "3.11"}, "config": {"method": {"name": "dfa"}}, "loss": float("nan")},
    "rerun": ["walkback diagnose runs/dfa --protocol three"],
}
RESULT_WORDS = {"PASS": "passes", "FAIL": "fails"}
"""Displayed words by stored result; other results are displayed as stored."""
NASTY = "<script>alert(1)</script> a_b 50% & #1 {x} \\y $z$ ~^ |h| [i] --é ‖ 中 `*"


def report_of(case="exploded", evidence=SEEDS, **given):
    return judge(ALL[case](), evidence, **({"method_name": "DFA", "context": CONTEXT} | given))


def card_of(case="exploded", evidence=SEEDS, **given):
    return report_of(case, evidence, **given).to_json()


class Page(HTMLParser):
    """A page's text and elements; asserts that every tag is closed."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.texts, self.elements, self.open = [], [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "wbr", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def strings(shown):
    """Every string a format must show."""
    yield from (shown.verdict_text, shown.explanation, shown.facts, shown.title, *shown.summary_lines)
    for section in shown.sections:
        yield section.title
        yield from section.heads
        yield from (cell for row in section.rows for cell in row)
        yield from (text for _, text in section.notes)


def normal(text):
    return " ".join(text.split())


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("evidence", [Evidence(), Evidence.of(0.306, 0.349), SEEDS])
def test_every_format_shows_the_same_strings(case, evidence):
    card = card_of(case, evidence)
    pages = {
        "md": (normal(render(card, "md")), markdown.markdown_escape),
        "tex": (normal(render(card, "tex").replace(r"\allowbreak{}", "")), latex.latex_escape),
        "html": (Page(render(card, "html")).text, normal),
    }
    for text in strings(view(card)):
        for form, (page, escape) in pages.items():
            # A command is not escaped in an indented block.
            assert escape(text) in page or (form == "md" and text in card["rerun"]), (form, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2e+02 to 2.1e+02", "200 to 210"),
        ("0.00039 to 0.0004", "3.9e-4 to 4e-4"),
        ("1e-07, 3e+05, 1.23e-12", "1e-7, 3e5, 1.23e-12"),
        ("9.99e+03 and 1.00e+04", "9990 and 1.00e4"),
        ("-0.00042", "-4.2e-4"),
        ("+0.0001 ± 0.0003", "+0.0001 ± 0.0003"),
        ("bp:penalty=0.0001", "bp:penalty=0.0001"),
        ("0.0012, 0.000, run 47e3ab, v1.0.0004", "0.0012, 0.000, run 47e3ab, v1.0.0004"),
    ],
)
def test_tidy_shortens_numbers_but_not_settings_and_hashes(text, expected):
    assert tidy(text) == expected


@given(st.floats(1e-30, 1e30), st.integers(1, 6))
def test_tidy_never_changes_the_value_of_a_number(value, digits):
    text = f"{value:.{digits}g}"
    assert float(tidy(text)) == float(text)
    assert tidy(tidy(text)) == tidy(text)


def test_the_shown_strings_are_the_cards_numbers():
    card = card_of("fresh")
    shown = view(card)
    for check, row in zip(card["checks"], shown.section("checks").rows, strict=True):
        assert row[1] == tidy(f"{check['value']:.3g} {check['unit']}".strip())
        assert row[3].endswith(tidy(f" {check['threshold']:g}"))
        assert row[4] == RESULT_WORDS.get(check["shown"], check["shown"])
        assert row[6].startswith(str(check["n"]))
    for layer, row in zip(card["layers"], shown.section("layers").rows, strict=True):
        assert row[1] == f"{layer['hidden_norm']['value']:.3g}"
        assert row[2] == tidy(f"{layer['grad_norm_128']['value']:.3g}")
        assert row[3] == f"{layer['cos64']['median']:.4f}"
        assert row[6] == f"{layer['credit']['cos']['value']:+.3f}"
        assert row[7] == f"±{3 * layer['credit']['null_std']:.3f}"
    statistics = dict(shown.section("statistics").rows)
    assert statistics["margin over the frozen baseline"] == f"{card['statistics']['mean']:+.2f} pp"
    assert statistics["n"] == "3 paired seeds, by seed"
    assert dict(shown.numbers)["D1"] == shown.section("checks").rows[0][1]


def agrees(text, value, digits=None, places=None, unit=""):
    """Assert that the text is this number, to `digits` significant digits or `places` after the point."""
    assert text.endswith(f" {unit}" if unit else ""), text
    at = -places if places is not None else math.floor(math.log10(abs(value))) - digits + 1 if value else 0
    assert abs(float(text.removesuffix(unit)) - value) <= 0.5000001 * 10.0**at, (text, value)


def agrees_or_word(text, number, **precision):
    """Assert the same for a number of the card, or its word where it has no value."""
    if number["status"] == "ok":
        agrees(text, number["value"], **precision)
    else:
        assert text == {"invalid": "INVALID", "missing": "NOT MEASURED"}[number["status"]]


@pytest.mark.parametrize("form", PAGES)
@pytest.mark.parametrize(
    ("case", "evidence", "verdict"),
    [
        ("healthy", SEEDS, "trustworthy"),
        ("exploded", SEEDS, "walked_back"),
        ("noise", Evidence(), "walked_back"),
        ("no credit", Evidence(), "inconclusive"),
        ("fresh", Evidence.of(0.306, 0.349), "inconclusive"),
    ],
)
def test_the_numbers_read_back_from_a_page_are_the_cards_numbers(tmp_path, form, case, evidence, verdict):
    report_of(case, evidence).save(tmp_path)
    card = json.loads((tmp_path / "report.json").read_text())
    assert card["verdict"] == verdict
    rows = page_tables.read(form, (tmp_path / f"report.{form}").read_text())
    for check, row in zip(card["checks"], rows["Checks"], strict=True):
        _, measured, ends, fails, result, flips, n = row
        assert result == RESULT_WORDS.get(check["shown"], check["shown"])
        assert int(n.split()[0]) == check["n"]
        assert fails[0] == {"above": ">", "below": "<"}[check["side"]]
        agrees(fails[2:], check["threshold"], digits=6)
        if check["value"] is None:
            assert measured in ("see reason", "INVALID", "NOT MEASURED")
        else:
            agrees(measured, check["value"], digits=3, unit=check["unit"])
        if check["interval"] is None:
            assert ends == "–"
        else:
            for text, value in zip(ends.strip("[]").split(", "), check["interval"], strict=True):
                agrees(text, value, digits=3)
        if check["flips_at"] is None:
            assert flips == "–"
        else:
            agrees(flips, check["flips_at"], digits=3)
    for layer, row in zip(card["layers"], rows["Layer by layer"], strict=True):
        index, hidden, grad, replay, direction, clamp, cosine, null, z, _ = row
        assert (int(index), direction, clamp) == (
            layer["layer"],
            layer["direction"]["status"],
            layer["clamp"]["status"],
        )
        agrees_or_word(hidden, layer["hidden_norm"], digits=3)
        agrees_or_word(grad, layer["grad_norm_128"], digits=3)
        agrees(replay, layer["cos64"]["median"], places=4)
        credit = layer["credit"]
        if credit is None:
            assert (cosine, null, z) == ("NOT MEASURED", "–", "–")
        else:
            agrees_or_word(cosine, credit["cos"], places=3)
            agrees_or_word(z, credit["z"], places=1)
            assert null[0] == "±"
            agrees(null[1:], 3 * credit["null_std"], places=3)
    for (name, number), row in zip(card["aggregates"].items(), rows["Alignment over layers"], strict=True):
        assert row[0] == name
        agrees_or_word(row[1], number, places=1 if name.endswith("_z") else 3)
    statistics, found = card["statistics"], dict(rows["Statistics"])
    assert int(found["n"].split()[0]) == statistics["n"]
    if statistics["mean"] is None:
        assert found["margin over the frozen baseline"] == "–"
    else:
        agrees(found["margin over the frozen baseline"], statistics["mean"], places=2, unit="pp")
    if statistics["interval"] is not None:
        ends = found["95% interval"].removesuffix(" pp").strip("[]").split(", ")
        for text, value in zip(ends, statistics["interval"], strict=True):
            agrees(text, value, places=2)
    given = card["claim"]["headline_acc"]
    shown = dict(rows["What was audited"])["accuracy"]
    assert shown == "not given" or [float(text) for text in shown.split(", ")] == [round(x, 3) for x in given]
    assert (shown == "not given") == (not given)
    if form == "tex":
        quoted = page_tables.macros((tmp_path / "report.tex").read_text())
        if card["checks"][0]["shown"] in ("PASS", "FAIL"):
            agrees(quoted["DOne"], card["checks"][0]["value"], digits=3, unit="x")
        for name, macro in (("A1", "AlignAOne"), ("deep_mean", "AlignDeepMean")):
            agrees_or_word(quoted[macro].split(" (")[0], card["aggregates"][name], places=3)


@pytest.mark.parametrize("form", PAGES)
def test_an_invalid_number_is_shown_as_a_word_with_its_reason(form):
    card = card_of("noise")
    reason = card["layers"][4]["credit"]["cos"]["reason"]
    assert reason
    text = render(card, form)
    text = Page(text).text if form == "html" else text.replace(r"\allowbreak{}", "")
    escape = {"md": markdown.markdown_escape, "tex": latex.latex_escape, "html": normal}[form]
    assert f"INVALID ({escape(reason)})" in normal(text)
    check = next(check for check in card["checks"] if check["shown"] == "INVALID")
    assert f"INVALID ({check['reason']})" == dict(view(card).numbers)[check["id"]]
    # Without a credit the word is NOT MEASURED.
    text = render(card_of("no credit"), form)
    assert "NOT MEASURED (no credit was measured)" in normal(Page(text).text if form == "html" else text)


def test_an_invalid_check_shows_no_value_even_if_the_card_has_one():
    card = card_of("noise")
    check = next(check for check in card["checks"] if check["shown"] == "INVALID")
    check |= {"value": 0.123456, "flips_at": 0.123456, "interval": [0.123456, 0.2]}
    for form in PAGES:
        assert "0.123" not in render(seal(card), form)


def test_failing_checks_and_differing_editions_are_shown_with_the_verdict():
    card = card_of("noise", protocol="three")
    assert card["verdict"] == "trustworthy"
    for form in PAGES:
        text = render(card, form)
        assert "D2 fails" in text
        assert re.search(r"Edition four .*NEEDS WALK-BACK", text)
        assert re.search(r"alignment[^\n]*walked back", text)


@pytest.mark.parametrize("case", ALL)
def test_the_page_is_self_contained_and_small(case):
    source = render(card_of(case), "html")
    page = Page(source)
    assert len(source.encode()) < 60_000
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "use", "image"}
    for _, attributes in page.elements:
        assert not attributes.keys() & {"src", "srcset", "action", "style", "onload", "onclick"}
        assert attributes.get("href", "#").startswith("#")
    assert not re.search(r"https?://|@import|url\(|javascript:", source)
    assert [tag == "svg" and attributes.get("role") == "img" for tag, attributes in page.elements].count(True) == 4
    assert source.index('class="verdict') < source.index("<section")


@pytest.mark.parametrize("case", ALL)
def test_no_reason_is_said_twice(case):
    """The reasons of D2 and of the claims stand once on a card's page, beside what they are about."""
    card = card_of(case)
    text = Page(render(card, "html")).text
    claims = card["claims"].values()
    for reason in {card["checks"][1]["reason"], *(claim["reason"] for claim in claims)}:
        assert text.count(normal(tidy(reason))) == max(1, sum(reason == claim["reason"] for claim in claims)), reason


def test_a_card_links_to_its_audit():
    card = card_of()
    assert ("a", "../au%26dit.html") in [
        (tag, at.get("href")) for tag, at in Page(html(card, "../au&dit.html")).elements
    ]


def test_the_page_of_a_deep_network_is_small():
    card = judge(healthy(blocks=48, cosines=[0.1] * 49, growth=1.02), SEEDS, method_name="deep").to_json()
    assert len(render(card, "html").encode()) < 95_000


def test_the_layer_strip_has_the_floor_the_null_and_the_values():
    source = render(card_of("exploded"), "html")
    assert 'class="floor"' in source
    assert "floor 1e-7" in source
    assert 'class="null"' in source
    assert ">layer 0: +0.400</text>" in source
    assert 'class="cross"' not in source
    assert 'class="cross"' in render(card_of("noise"), "html")
    assert ">exact</text>" in render(card_of("backprop"), "html")


@pytest.mark.parametrize("value", [0.0, 1e-300, 5e-324, 1e300, 1.7e308])
def test_extreme_norms_are_drawn(value):
    card = card_of("healthy")
    for layer in card["layers"]:
        layer["hidden_norm"]["value"] = layer["grad_norm_128"]["value"] = value
    source = render(seal(card), "html")
    Page(source)
    assert not re.search(r'"(nan|inf|-inf)"', source)


def test_names_and_notes_are_escaped():
    card = card_of(method_name=NASTY, notes=NASTY, context=CONTEXT | {"arch": NASTY, "rerun": [NASTY]})
    page = Page(render(card, "html"))
    assert NASTY in page.text
    assert "script" not in {tag for tag, _ in page.elements}
    assert "<script>" not in render(card, "md").replace(f"    {NASTY}", "")
    assert r"a\_b 50\% \& \#1 \{x\} \textbackslash{}y \$z\$" in render(card, "tex")
    assert r"-{}-é \ensuremath{\|} {[}U+4E2D{]}" in render(card, "tex")


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("name", ["DFA", NASTY])
def test_the_latex_has_balanced_braces_and_escaped_characters(case, name):
    source = render(card_of(case, method_name=name, notes=name), "tex")
    assert r"\newcommand{\wbVerdict}{" in source
    body = "\n".join(line for line in source.splitlines() if not line.startswith("%"))
    bare = re.sub(r"\\[\\{}%_&#$|]", "", body)  # Without escaped characters.
    depth = 0
    for character in bare:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert not re.search(r"[%#$_^~|<>]", bare)
    for line in bare.splitlines():
        assert "&" not in line or line.count("&") in (2, 3, 6, 9)
    begun, ended = re.findall(r"\\begin\{(\w+)\}", body), re.findall(r"\\end\{(\w+)\}", body)
    assert sorted(begun) == sorted(ended)
    names = re.findall(r"\\newcommand\{(\\[^}]*)\}", body)
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"\\wb[A-Za-z]+", found) for found in names)


def test_the_template_is_in_the_package():
    assert resources.files("walkback.report").joinpath("templates", "card.html").is_file()


def test_rendering_needs_no_torch():
    code = (
        "import sys, pkgutil, importlib, walkback.report as package\n"
        "for each in pkgutil.walk_packages(package.__path__, 'walkback.report.'): importlib.import_module(each.name)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_damaged_card_is_not_rendered():
    card = copy.deepcopy(card_of())
    del card["checks"][0]["n"]
    for form in PAGES:
        with pytest.raises(InputError, match=r"lacks the key 'checks\[0\]\.n'"):
            render(card, form)


def test_a_report_saves_everything(tmp_path):
    report = report_of()
    written = report.save(tmp_path / "new" / "folder")
    assert sorted(path.name for path in written) == [
        "measurements.npz",
        "report.html",
        "report.json",
        "report.md",
        "report.tex",
    ]
    assert sorted((tmp_path / "new" / "folder").iterdir()) == sorted(written)
    card = read_card(tmp_path / "new" / "folder" / "report.json")
    assert card == report.to_json()
    for form in PAGES:
        assert (tmp_path / "new" / "folder" / f"report.{form}").read_text() == render(card, form)
    Measurements.load(tmp_path / "new" / "folder" / "measurements.npz")


class TestOverview:
    def cards(self):
        return [
            card_of("healthy", method_name="good"),
            card_of("exploded", method_name="bad"),
            card_of("noise", Evidence(), method_name="unsure"),
            card_of("no credit", Evidence.of(0.306, 0.349), method_name="one,seed"),
        ]

    def tables(self):
        """Rows by method in each format; the rows of the four LaTeX tables are joined."""
        cards = self.cards()
        found = {
            "md": page_tables.read("md", overview_markdown(cards))["Overview"],
            "html": page_tables.read("html", audit_page(cards, "All"))["Every number of each method"],
        }
        tex = page_tables.read("tex", overview_latex(cards))
        parts = zip(*(tex[part] for part in ("Accuracy", "Margins", "Measurements", "Verdicts")), strict=True)
        return found | {"tex": [first + [cell for part in rest for cell in part[1:]] for first, *rest in parts]}

    @pytest.mark.parametrize("form", PAGES)
    def test_the_cells_are_the_cards_numbers(self, form):
        for card, row in zip(self.cards(), self.tables()[form], strict=True):
            claim, checks = card["claim"], {check["id"]: check for check in card["checks"]}
            (
                method,
                n,
                accuracy,
                frozen,
                bp_frozen,
                margin,
                over_bp,
                growth,
                grad,
                deep,
                z,
                claimed,
                three,
                four,
                *claims,
            ) = row
            given = claim["headline_acc"]
            assert (method, int(n)) == (claim["method"], len(given))
            if len(given) > 1:
                assert accuracy == f"{mean(given):.3f} ± {stdev(given):.3f}"  # stdev divides by n - 1.
                assert bp_frozen == "0.420"
                low, high = card["statistics"]["interval"]
                assert margin == f"{card['statistics']['mean']:+.2f} [{low:+.2f}, {high:+.2f}]"
                assert (
                    over_bp == f"{100 * (mean(given) - 0.42):+.2f}"
                )  # The baseline is one number: not paired, so no interval.
            elif given:
                assert (accuracy, frozen, bp_frozen) == ("0.306", "0.349", "not given")
                assert (margin, over_bp) == ("-4.30 fails", "not given")
            else:
                assert (accuracy, frozen, margin) == ("not given", "not given", "NOT MEASURED")
            for text, check in ((growth, checks["D1"]), (grad, checks["D2"])):
                agrees(text.removesuffix(" fails"), check["value"], digits=3)
                assert text.endswith(" fails") == (check["shown"] == "FAIL")
            agrees_or_word(deep, card["aggregates"]["deep_mean"], places=3)
            agrees_or_word(z, card["aggregates"]["deep_mean_z"], places=1)
            for text, name in ((claimed, "claims"), (three, "three"), (four, "four")):
                word = {"trustworthy": "TRUSTWORTHY", "walked_back": "NEEDS WALK-BACK", "inconclusive": "INCONCLUSIVE"}
                sign = {"trustworthy": "✓ ", "walked_back": "✗ ", "inconclusive": "? "} if form == "html" else {}
                outcome = card["verdicts"][name]["verdict"]
                assert text.split(" (")[0] == sign.get(outcome, "") + word[outcome]
            assert tuple(claims) == tuple(card["claims"][name]["shown"] for name in ("alignment", "depth", "credit"))

    @pytest.mark.parametrize("form", PAGES)
    def test_notes_give_the_reasons_of_words_and_the_meaning_of_heads(self, form):
        make = {"md": overview_markdown, "tex": overview_latex, "html": lambda cards: audit_page(cards, "All")}[form]
        text = make(self.cards())
        text = {"md": lambda x: re.sub(r"\\(.)", r"\1", x), "tex": page_tables.untex, "html": lambda x: Page(x).text}[
            form
        ](text)
        heads = ("accuracy ↑", "frozen baseline", "over bp frozen, pp ↑", "growth (D1) ↓", "aggregate cosine Γ ↑")
        for part in ("INVALID (", "NOT MEASURED (", "ddof = 1", "95% interval", "here deep_mean", *heads):
            assert part in normal(text), part
        assert re.search(r"frozen baseline of one,seed\W+[^.]*kind[^.]*not given", normal(text))

    def test_a_margin_that_is_not_informative_is_marked(self):
        card = card_of("healthy", Evidence.of([0.8, 0.8], {"method_shell": [0.5, 0.6]}, [0.4, 0.5]))
        assert next(check for check in card["checks"] if check["id"] == "D3")["shown"] == "NOT INFORMATIVE"
        row = page_tables.read("md", overview_markdown([card]))["Overview"][0]
        assert re.fullmatch(r"\+25\.00 \[.*\] NOT INFORMATIVE", row[5])

    def test_the_audit_page_is_one_file_and_links_to_the_cards(self):
        cards = self.cards()
        links = ["a/report.html", "b=1,c/report.html", "javascript:alert(1)", "e#f?g.html"]
        source = audit_page(cards, NASTY, links)
        page = Page(source)
        assert NASTY in page.text
        outer = [found["href"] for tag, found in page.elements if tag == "a" and found["href"][0] != "#"]
        # Each card is linked from the table of claims and from that of all numbers.
        assert outer == 2 * [
            "a/report.html", "b%3D1%2Cc/report.html", "javascript%3Aalert%281%29", "e%23f%3Fg.html",
        ]  # fmt: skip
        assert not {tag for tag, _ in page.elements} & {"link", "img", "iframe", "object", "embed", "base", "form"}
        assert not re.search(r"https?://|@import|url\(", source)
        heads = [found for tag, found in page.elements if tag == "th" and "data-kind" in found]
        assert len(heads) == len(OVERVIEW_NUMBERS) + 6
        anchors = {found["id"] for _, found in page.elements if "id" in found}
        inner = {found["href"][1:] for tag, found in page.elements if tag == "a" and found["href"][0] == "#"}
        assert len(inner) > 8
        assert inner <= anchors
        assert not re.search('href="[^#]', audit_page(cards, "All"))

    def test_both_margins_are_paired_by_seed_and_only_the_deciding_one_is_judged(self):
        given, shells = [0.36, 0.35, 0.37], {"method_shell": [0.30, 0.31, 0.30], "bp_shell": [0.35, 0.35, 0.35]}
        # Differences of 6, 4 and 7 points, and of 1, 0 and 2: t(2) = 4.303 times their standard errors.
        for null, texts in {
            "method_shell": ("+5.67 [+1.87, +9.46]", "+1.00 [-1.48, +3.48]"),
            "bp_shell": ("+5.67 [+1.87, +9.46]", "+1.00 [-1.48, +3.48] fails"),
        }.items():
            card = card_of("healthy", Evidence.of(given, shells, null=null))
            row = page_tables.read("md", overview_markdown([card]))["Overview"][0]
            assert tuple(row[5:7]) == texts
            deciding = {"method_shell": "the frozen baseline", "bp_shell": "the bp frozen baseline"}[null]
            assert f"margin over {deciding} decides D3" in normal(overview_text([card]))

    def test_methods_on_different_networks_are_shown_with_their_network(self):
        cards = [card_of("healthy"), card_of("healthy", context=CONTEXT | {"arch": "vit"})]
        rows = page_tables.read("md", overview_markdown(cards))["Overview"]
        assert [row[0] for row in rows] == ["DFA (resmlp on cifar10)", "DFA (vit on cifar10)"]

    def test_no_cards_wrong_counts_and_damaged_cards_are_refused(self):
        with pytest.raises(InputError, match="no cards"):
            overview_markdown([])
        with pytest.raises(InputError, match="2 links for 1 cards"):
            audit_page([card_of()], "All", ["a", "b"])
        with pytest.raises(InputError, match="2 logs for 1 cards"):
            audit_page([card_of()], "All", logs=[[], []])
        with pytest.raises(InputError, match="format"):
            overview_latex([{}])


class TestCommand:
    @pytest.fixture
    def runs(self, tmp_path):
        for name in ("one", "two"):
            (tmp_path / "runs" / name).mkdir(parents=True)
            (tmp_path / "runs" / name / "report.json").write_text(json.dumps(card_of(method_name=name)))
        (tmp_path / "runs" / "not judged").mkdir()
        return tmp_path / "runs"

    def test_pages_are_written_next_to_their_card(self, runs, capsys):
        before = (runs / "one" / "report.json").read_bytes()
        assert main(["render", str(runs / "one"), "--format", "md", "html", "json"]) == 0
        paths = [runs / "one" / f"report.{form}" for form in ("md", "html", "json")]
        assert capsys.readouterr().out.splitlines() == list(map(str, paths))
        assert paths[0].read_text() == render(card_of(method_name="one"), "md")
        assert (runs / "one" / "report.json").read_bytes() == before
        assert not (runs / "one" / "report.tex").exists()

    def test_a_folder_of_runs_is_rendered_into_another_folder(self, runs, tmp_path):
        assert main(["render", str(runs), str(runs / "one" / "report.json"), "--out", str(tmp_path / "out")]) == 0
        names = {path.name for path in (tmp_path / "out").iterdir()}
        assert names == {f"{name}.{form}" for name in ("one", "two") for form in PAGES}

    @pytest.mark.parametrize("form", FORMATS)
    def test_stdout_prints_the_page_and_writes_nothing(self, runs, capsys, form):
        assert main(["render", str(runs / "one"), "--format", form, "--stdout"]) == 0
        assert capsys.readouterr().out == render(card_of(method_name="one"), form)
        assert [path.name for path in (runs / "one").iterdir()] == ["report.json"]

    @pytest.mark.parametrize("words", [["--stdout"], ["--stdout", "--format", "md"], ["--format", "pdf"]])
    def test_options_that_contradict_each_other_are_refused(self, runs, words, capsys):
        given = runs if "md" in words else runs / "one"
        assert main(["render", str(given), *words]) == 3
        assert capsys.readouterr().err

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("none", "There is no file or folder"),
            ("not judged", "There is no report.json in"),
            ("bad", "cannot be read as JSON"),
        ],
    )
    def test_missing_and_damaged_cards_are_refused_before_anything_is_written(self, runs, name, message, capsys):
        (runs / "bad").mkdir()
        (runs / "bad" / "report.json").write_bytes((runs / "one" / "report.json").read_bytes()[:-20])
        assert main(["render", str(runs / "one"), str(runs / name)]) == 3
        assert message in capsys.readouterr().err
        assert [path.name for path in (runs / "one").iterdir()] == ["report.json"]

    def test_two_cards_of_one_name_are_refused(self, runs, tmp_path, capsys):
        (tmp_path / "other" / "one").mkdir(parents=True)
        (tmp_path / "other" / "one" / "report.json").write_bytes((runs / "one" / "report.json").read_bytes())
        words = ["render", str(runs), str(tmp_path / "other"), "--out", str(tmp_path / "out")]
        assert main(words) == 3
        assert "would both be written as one" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()

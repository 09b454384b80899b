"""Card and audit pages in headless Chromium: opened from disk in wide, narrow and dark windows and for print."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import browser

sys.path.append(str(Path(__file__).parents[1] / "unit"))

import fake_audit
from fake_measurements import ALL

from walkback.judge.evidence import Evidence
from walkback.judge.report import judge
from walkback.report.audit_page.page import audit_page
from walkback.report.cells import tidy

SEEDS = Evidence.of([0.61, 0.62, 0.60], {"method_shell": [0.35, 0.35, 0.34], "bp_shell": 0.42}, [0.6, 0.6, 0.6])
LONG = "dfa:scale=unit_error,site=input,penalty=0.01,penalty_reduction=mean"
REPORTS = {
    "trustworthy": ("healthy", SEEDS, "DFA"),
    "walked_back": ("exploded", SEEDS, LONG),
    "inconclusive": ("noise", Evidence(), "DFA"),
}
AUDITS = {"audit of 2": 2, "audit of 7": 7}
WORDS = {"trustworthy": "TRUSTWORTHY", "walked_back": "NEEDS WALK-BACK", "inconclusive": "INCONCLUSIVE"}
SCREENS = [
    pytest.param({}, id="wide"),
    pytest.param({"width": 375, "height": 700}, id="narrow"),
    pytest.param({"dark": True}, id="dark"),
    pytest.param({"media": "print", "width": 700}, id="print"),
    pytest.param({"media": "print", "width": 700, "dark": True}, id="print from the dark"),
]

# The worst contrast (WCAG 2) between a visible text and its background, and that text.
CONTRAST = """(() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = colour => { const [r, g, b] = parts(colour).map(x => (x /= 255) <= .03928 ? x / 12.92
    : ((x + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  let worst = [99, ""];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    const style = getComputedStyle(element);
    if (!own || style.visibility === "hidden" || !element.getClientRects().length) continue;
    let behind = element;
    while (behind && (parts(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
    const back = behind ? getComputedStyle(behind).backgroundColor : "rgb(255, 255, 255)";
    const ink = element.ownerSVGElement ? style.fill : style.color;
    const [a, b] = [light(ink), light(back)].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < worst[0]) worst = [ratio, element.textContent];
  }
  return worst; })()"""

# The texts of the visible tooltips.
TIPS = """[...document.querySelectorAll(".tip")].filter(tip => getComputedStyle(tip).visibility === "visible")
  .map(tip => tip.textContent)"""


@pytest.fixture(scope="module")
def chromium():
    program = browser.browser_path()
    if program is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(browser.NAMES)} was found, so no page was opened")
    with browser.Browser(program) as opened:
        yield opened


@pytest.fixture(scope="module")
def reports():
    context = {"rerun": [f"walkback diagnose runs/{LONG}"]}
    found = {}
    for verdict, (case, evidence, name) in REPORTS.items():
        claimed = ("depth",) if verdict == "inconclusive" else ("alignment", "depth")
        found[verdict] = judge(ALL[case](), evidence, method_name=name, context=context, claimed=claimed)
    return found


@pytest.fixture(scope="module")
def pages(reports, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    for verdict, report in reports.items():
        assert report.verdict == verdict
        report.save(folder / verdict)
    links = [f"{verdict}/report.html" for verdict in reports]
    cards = [report.to_json() for report in reports.values()]
    (folder / "overview.html").write_text(audit_page(cards, "Three methods", links))
    found = {verdict: folder / verdict / "report.html" for verdict in reports} | {"overview": folder / "overview.html"}
    for count in AUDITS.values():
        made = fake_audit.reports(count)
        found[f"audit of {count}"] = folder / f"audit{count}.html"
        text = audit_page(
            [report.to_json() for report in made], "Audit", ["card.html"] * len(made), fake_audit.logs(made)
        )
        found[f"audit of {count}"].write_text(text)
    return found


def assert_quiet(chromium, page):
    """The page wrote nothing to the console and requested no other resource."""
    assert chromium.events_of("Runtime.consoleAPICalled") == []
    assert chromium.events_of("Runtime.exceptionThrown") == []
    assert chromium.events_of("Log.entryAdded") == []
    assert [event["request"]["url"] for event in chromium.events_of("Network.requestWillBeSent")] == [page.as_uri()]


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", [*REPORTS, "overview", *AUDITS])
def test_a_page_has_no_errors_enough_contrast_and_fits_its_window(chromium, pages, name, screen):
    if name not in REPORTS and "media" in screen:
        screen = screen | {"width": 1000}  # It is printed in landscape format.
    chromium.open(pages[name], **screen)
    assert_quiet(chromium, pages[name])
    width = screen.get("width", 1280)
    assert chromium.js("document.documentElement.scrollWidth") == width
    ratio, text = chromium.js(CONTRAST)
    assert ratio >= 4.5, (ratio, text)
    # A table that is wider than the window can be scrolled and has a hint above it.
    hidden = "[...document.querySelectorAll('.wide')].filter(x => x.scrollWidth > x.clientWidth).length"
    if chromium.js(hidden) and not screen.get("media"):
        assert width < 500
        assert chromium.js("getComputedStyle(document.querySelector('.hint')).display") == "block"


def test_the_browser_reports_errors_requests_and_low_contrast(chromium, tmp_path):
    """A faulty page fails what `assert_quiet` and the test of the contrast check."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<!DOCTYPE html><p style='color: #aaa; background: #fff'>faint</p><img src='missing.png'>"
        "<script>console.error('said'); missing()</script>"
    )
    chromium.open(page)
    assert len(chromium.events_of("Runtime.consoleAPICalled")) == 1
    assert len(chromium.events_of("Runtime.exceptionThrown")) == 1
    requested = [found["request"]["url"] for found in chromium.events_of("Network.requestWillBeSent")]
    assert (tmp_path / "missing.png").as_uri() in requested
    ratio, text = chromium.js(CONTRAST)
    assert text == "faint"
    assert 2 < ratio < 2.5


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("screen", [{}, {"width": 375, "height": 700}])
def test_the_verdict_is_on_the_first_screen(chromium, pages, name, screen):
    chromium.open(pages[name], **screen)
    box = chromium.js("document.querySelector('.verdict').getBoundingClientRect().toJSON()")
    assert box["left"] >= 0
    assert box["top"] >= 0
    assert box["right"] <= screen.get("width", 1280)
    assert box["bottom"] <= screen.get("height", 800)
    # Nothing covers it.
    middle = f"document.elementFromPoint({box['x'] + box['width'] / 2}, {box['y'] + box['height'] / 2})"
    assert chromium.js(f"!!{middle}.closest('.verdict')")
    assert WORDS[name] in chromium.js("document.querySelector('.verdict').innerText")


@pytest.mark.parametrize("screen", [{}, {"width": 375, "height": 700}])
def test_hovering_over_a_layer_shows_its_values(chromium, pages, reports, screen):
    chromium.open(pages["inconclusive"], **screen)
    layers = reports["inconclusive"].to_json()["layers"]
    assert chromium.js(TIPS) == []
    for layer in (1, 4):
        # Over the layer's dot in the second plot.
        dot = f"document.querySelectorAll('svg')[1].querySelectorAll('.dot')[{layer}]"
        chromium.js(f"{dot}.scrollIntoView({{block: 'center'}})")
        box = chromium.js(f"{dot}.getBoundingClientRect().toJSON()")
        chromium.mouse(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        found, credit = layers[layer], layers[layer]["credit"]["cos"]
        assert chromium.js(TIPS) == [
            tidy(f"layer {layer}: {found['hidden_norm']['value']:.3g}"),
            tidy(f"layer {layer}: {found['grad_norm_128']['value']:.3g}"),
            f"layer {layer}: {found['cos64']['median']:.4f}",
            f"layer {layer}: " + (f"{credit['value']:+.3f}" if credit["status"] == "ok" else "INVALID"),
        ]
        # The tooltip is inside the window and close to the dot.
        tip = chromium.js(
            f"document.querySelectorAll('svg')[1].querySelector('.t{layer}').getBoundingClientRect().toJSON()"
        )
        assert tip["left"] >= 0
        assert tip["right"] <= screen.get("width", 1280)
        assert abs(tip["y"] + tip["height"] / 2 - box["y"] - box["height"] / 2) < 60
    assert layers[4]["credit"]["cos"]["status"] == "invalid"
    chromium.mouse(1, 1)
    assert chromium.js(TIPS) == []


@pytest.mark.parametrize("name", REPORTS)
def test_print_shows_the_verdict_and_breaks_no_table_or_plot(chromium, pages, name):
    chromium.open(pages[name], media="print", width=700)
    assert chromium.js(TIPS) == []
    for what in (".strip", "table", "tr", "header"):
        style = f"[...document.querySelectorAll('{what}')].map(x => getComputedStyle(x).breakInside)"
        assert set(chromium.js(style)) == {"avoid"}, what
    # Browsers do not print backgrounds, so the verdict must be readable without one.
    style = "getComputedStyle(document.querySelector('.verdict'))"
    assert chromium.js(f"{style}.backgroundColor") == "rgba(0, 0, 0, 0)"
    assert chromium.js(f"{style}.color") == "rgb(0, 0, 0)"
    assert WORDS[name] in chromium.js("document.querySelector('.verdict').innerText")
    paper = chromium.pdf()
    assert paper.startswith(b"%PDF")
    assert 2 <= paper.count(b"/Type /Page\n") <= 10


def test_a_click_on_a_head_sorts_the_overview(chromium, pages):
    chromium.open(pages["overview"])
    heads = chromium.js("[...document.querySelectorAll('#methods th')].map(x => x.innerText)")
    before = chromium.js("document.querySelector('tbody').innerText")
    others = chromium.js("document.querySelector('#utility').innerText")

    def sorted_by(head):
        at = f"document.querySelectorAll('#methods th')[{heads.index(head)}]"
        box = chromium.js(f"{at}.querySelector('button').getBoundingClientRect().toJSON()")
        chromium.mouse(box["x"] + 5, box["y"] + 5, click=True)
        column = f"[...document.querySelectorAll('#methods tbody tr')].map(x => x.cells[{heads.index(head)}].innerText)"
        return chromium.js(f"{at}.ariaSort"), chromium.js(column)

    # Better values first; a second click reverses; cells without a value stay last.
    assert sorted_by("growth (D1) ↓") == ("ascending", ["1.3", "1.3", "237 fails"])
    assert sorted_by("growth (D1) ↓") == ("descending", ["237 fails", "1.3", "1.3"])
    assert sorted_by("aggregate cosine Γ ↑") == ("descending", ["+0.250", "+0.000", "INVALID"])
    assert sorted_by("aggregate cosine Γ ↑") == ("ascending", ["+0.000", "+0.250", "INVALID"])
    # Verdicts are sorted by their rank, not alphabetically.
    worst = ["✗ NEEDS WALK-BACK (D1, D2)", "? INCONCLUSIVE (D3)", "✓ TRUSTWORTHY"]
    assert sorted_by("edition three") == ("descending", worst[::-1])
    assert sorted_by("edition three") == ("ascending", worst)
    assert sorted_by("method") == ("ascending", ["DFA", "DFA", LONG])
    assert chromium.js("document.querySelectorAll('[aria-sort]').length") == 1
    assert sorted(chromium.js("document.querySelector('tbody').innerText").split("\n")) == sorted(before.split("\n"))
    assert chromium.js("document.querySelector('#utility').innerText") == others
    links = chromium.js("[...document.querySelectorAll('a')].map(x => x.href)")
    assert sorted(links) == sorted(pages[verdict].as_uri() for verdict in REPORTS)


def test_the_overview_can_be_read_without_script(chromium, pages, reports):
    chromium.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(pages["overview"])
        text = chromium.js("document.body.innerText")
        assert chromium.js("document.querySelectorAll('button').length") == 0
    finally:
        chromium.send("Emulation.setScriptExecutionDisabled", value=False)
    for verdict in reports:
        assert WORDS[verdict] in text


def test_the_table_is_sorted_from_the_keyboard_and_equal_rows_keep_their_order(chromium, pages):
    chromium.open(pages["audit of 7"])

    def column(at):
        return chromium.js(f"[...document.querySelectorAll('#methods tbody tr')].map(x => x.cells[{at}].innerText)")

    def press(key, code, text=""):
        for kind in ("keyDown", "keyUp"):
            chromium.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, text=text)

    names = [name.rstrip(" 12") for name in column(0)]
    press("Tab", 9)
    assert chromium.js("document.activeElement.closest('th').innerText") == "method"
    for _ in range(2):
        press("Tab", 9)
    assert chromium.js("document.activeElement.closest('th').innerText") == "accuracy ↑"
    assert chromium.js("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press("Enter", 13, "\r")
    assert chromium.js("document.activeElement.closest('th').ariaSort") == "descending"
    # Five rows of equal accuracy in their old order, then the lower one, then the row without an accuracy.
    same = [name for name in names if not name.startswith("dfa") and name != "mine"]
    last = [next(name for name in names if name.startswith("dfa")), "mine"]
    assert [name.rstrip(" 12") for name in column(0)] == [*same, *last]
    press(" ", 32, " ")
    assert [name.rstrip(" 12") for name in column(0)] == [last[0], *same, last[1]]


# Pairs of overlapping texts in one plot; the boxes are a little taller than their letters.
OVERLAPS = """[...document.querySelectorAll("svg")].flatMap(svg => {
  const boxes = [...svg.querySelectorAll("text")].map(x => [x.textContent, x.getBoundingClientRect()]);
  return boxes.flatMap(([a, p], at) => boxes.slice(at + 1).filter(([, q]) =>
    p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 4 && q.top < p.bottom - 4)
    .map(([b]) => [svg.ariaLabel, a, b])); })"""


@pytest.mark.parametrize("screen", [*SCREENS[:2], pytest.param({"media": "print", "width": 1000}, id="print")])
@pytest.mark.parametrize("name", AUDITS)
def test_no_texts_of_a_plot_overlap_or_leave_the_window(chromium, pages, name, screen):
    chromium.open(pages[name], **screen)
    assert chromium.js(OVERLAPS) == []
    edges = "[...document.querySelectorAll('svg text')].map(x => x.getBoundingClientRect()).map(b => [b.left, b.right])"
    for left, right in chromium.js(edges):
        assert left >= 0
        assert right <= screen.get("width", 1280)
    # The plots of one row are aligned whatever the length of the names above them.
    tops = chromium.js(
        "[...document.querySelectorAll('#layers .multiple')].slice(0, 2).map(x => x.querySelector('svg')"
        ".getBoundingClientRect().top)"
    )
    assert tops[0] == tops[1] or screen.get("width") == 375


def test_an_audit_is_printed_in_landscape_format_and_no_plot_is_split(chromium, pages):
    chromium.open(pages["audit of 7"], media="print", width=1000)
    style = "[...document.querySelectorAll('.multiple')].map(x => getComputedStyle(x).breakInside)"
    assert set(chromium.js(style)) == {"avoid"}
    assert chromium.js("getComputedStyle(document.querySelector('#methods .hint')).display") == "none"
    paper = chromium.pdf()
    assert 3 <= paper.count(b"/Type /Page\n") <= 12

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
from walkback.report.formats import render
from walkback.report.index_page import entry_of_card, index_page

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
TIPS = """[...document.querySelectorAll(".tip")].filter(tip => getComputedStyle(tip).visibility === "visible" &&
  tip.getClientRects().length).map(tip => tip.textContent)"""
UNFOLD = "document.querySelectorAll('details').forEach(part => { part.open = true; })"


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
    rows = [entry_of_card(card, link) for card, link in zip(cards, links, strict=True)]
    found["index"] = folder / "index.html"
    found["index"].write_text(index_page("Runs", rows, [("a study", "study/index.html")]))
    return found


def assert_quiet(chromium, page):
    """The page wrote nothing to the console and requested no other resource."""
    assert chromium.events_of("Runtime.consoleAPICalled") == []
    assert chromium.events_of("Runtime.exceptionThrown") == []
    assert chromium.events_of("Log.entryAdded") == []
    assert [event["request"]["url"] for event in chromium.events_of("Network.requestWillBeSent")] == [page.as_uri()]


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", [*REPORTS, "overview", "index", *AUDITS])
def test_a_page_has_no_errors_enough_contrast_and_fits_its_window(chromium, pages, name, screen):
    if name not in REPORTS and "media" in screen:
        screen = screen | {"width": 1000}  # It is printed in landscape format.
    chromium.open(pages[name], **screen)
    assert_quiet(chromium, pages[name])
    width = screen.get("width", 1280)
    assert chromium.js("document.documentElement.scrollWidth") == width
    chromium.js(UNFOLD)
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
        dot = f"document.querySelectorAll('.strip svg')[1].querySelectorAll('.dot')[{layer}]"
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
            f"document.querySelectorAll('.strip svg')[1].querySelector('.t{layer}').getBoundingClientRect().toJSON()"
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
    assert paper.count(b"/Type /Page\n") <= 2


def test_a_click_on_a_head_sorts_the_overview(chromium, pages):
    chromium.open(pages["overview"])
    chromium.js(UNFOLD)
    heads = chromium.js("[...document.querySelectorAll('#methods th')].map(x => x.innerText)")
    before = chromium.js("document.querySelector('#numbers-table tbody').innerText")
    others = chromium.js("document.querySelector('#utility').innerText")

    def sorted_by(head):
        at = f"document.querySelectorAll('#methods th')[{heads.index(head)}]"
        chromium.js(f"{at}.scrollIntoView({{block: 'center'}})")
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
    assert sorted(chromium.js("document.querySelector('#numbers-table tbody').innerText").split("\n")) == sorted(
        before.split("\n")
    )
    assert chromium.js("document.querySelector('#utility').innerText") == others
    links = chromium.js("[...document.querySelectorAll('#methods td a')].map(x => x.href)")
    assert sorted(links) == sorted(pages[verdict].as_uri() for verdict in REPORTS)


def test_the_overview_can_be_read_without_script(chromium, pages, reports):
    chromium.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(pages["overview"])
        text = chromium.js("document.body.innerText").upper()
        assert chromium.js("document.querySelectorAll('th button').length") == 0
        assert chromium.js("document.querySelector('#thresholds').getClientRects().length") == 0
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

    chromium.js(UNFOLD)
    names = [name.rstrip(" 12") for name in column(0)]
    chromium.js("document.querySelector('#methods th button').focus()")
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
    chromium.js(UNFOLD)
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
    assert paper.count(b"/Type /Page\n") <= 3
    chromium.js(UNFOLD)
    assert 3 <= chromium.pdf().count(b"/Type /Page\n") <= 14


INSIDE = """(() => { const seen = selector => [...document.querySelectorAll(selector)].map(x =>
  x.getBoundingClientRect()).map(b => b.height > 0 && b.top >= 0 && b.bottom <= innerHeight && b.right <= innerWidth);
  return ["#sentence", ".picture .verdict", ".picture .plot"].map(seen); })()"""


@pytest.mark.parametrize("screen", [{}, {"width": 375, "height": 812}])
def test_sentence_verdicts_and_picture_of_an_audit_are_on_the_first_screen(chromium, pages, screen):
    chromium.open(pages["audit of 7"], **screen)
    sentence, verdicts, plots = chromium.js(INSIDE)
    assert sentence == [True]
    assert len(verdicts) == 7
    assert all(verdicts)
    # On a telephone the last method's plots may end below the screen.
    assert len(plots) == 14
    assert all(plots[:12])


# What an audit by axe would name: one h1, no skipped heading level, landmarks, a name for everything that can be
# focused, described pictures, a label for every form control, no id used twice, links that lead somewhere.
ACCESS = """(() => {
  const faults = [], all = selector => [...document.querySelectorAll(selector)];
  const levels = all("h1, h2, h3, h4, h5").map(x => Number(x.tagName[1]));
  if (levels.filter(x => x === 1).length !== 1 || levels[0] !== 1) faults.push("h1");
  levels.forEach((x, at) => { if (at && x > levels[at - 1] + 1) faults.push(`heading ${levels[at - 1]} to ${x}`); });
  for (const landmark of ["header", "main", "footer"]) if (all(landmark).length !== 1) faults.push(landmark);
  if (!document.documentElement.lang || !document.title) faults.push("lang or title");
  const text = id => (document.getElementById(id) || {}).textContent || "";
  const labels = x => (x.getAttribute("aria-labelledby") || "").split(" ").map(text).join("");
  const name = x => x.getAttribute("aria-label") || labels(x) ||
    (x.labels && [...x.labels].map(y => y.textContent).join("")) || x.textContent;
  for (const x of all("a, button, input, select, summary, [tabindex], [role=img]"))
    if (!name(x).trim()) faults.push(`no name: ${x.outerHTML.slice(0, 80)}`);
  for (const x of all("svg")) if (!x.closest("[aria-hidden=true]") && !x.closest("[role=img]")) faults.push("svg");
  for (const x of all("input, select")) if (!x.labels.length) faults.push(`no label: ${x.id}`);
  const ids = all("[id]").map(x => x.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`twice: ${id}`);
  for (const x of all("a[href^='#']")) if (!ids.includes(x.getAttribute("href").slice(1))) faults.push(x.outerHTML);
  for (const x of all("th")) if (x.textContent && !x.scope) faults.push(`th: ${x.textContent}`);
  return faults; })()"""


@pytest.mark.parametrize("name", [*REPORTS, "index", *AUDITS])
def test_a_page_is_accessible(chromium, pages, name):
    chromium.open(pages[name])
    assert chromium.js(ACCESS) == []


def test_the_keyboard_reaches_every_control_and_shows_tooltips(chromium, pages):
    chromium.open(pages["audit of 2"])

    def press(key, code):
        for kind in ("keyDown", "keyUp"):
            chromium.send("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code)

    controls = "[...document.querySelectorAll('a, button, input, select, summary, [tabindex]')]"
    wanted = f"{controls}.filter(x => x.checkVisibility() && !x.disabled)"
    expected, reached, tips = chromium.js(f"{wanted}.length"), [], 0
    for _ in range(expected):
        press("Tab", 9)
        reached.append(chromium.js(f"{wanted}.indexOf(document.activeElement)"))
        tips += len(chromium.js(TIPS))
    assert reached == list(range(expected))
    assert tips == 4  # Two plots of each method.
    chromium.js("document.querySelector('.plot').focus()")
    assert len(chromium.js(TIPS)) == 1
    press("Escape", 27)
    assert chromium.js(TIPS) == []
    # An arrow key moves a slider, and what it decides follows.
    chromium.js("document.querySelector('#h_norm_explosion_ratio').focus()")
    press("ArrowLeft", 37)
    assert chromium.js("document.querySelector('#h_norm_explosion_ratio-value').textContent") != "50"
    assert chromium.js("document.querySelector('#changed').checkVisibility()")


def test_a_link_opens_the_folded_part_that_it_leads_into(chromium, pages):
    chromium.open(pages["audit of 2"])
    explained = "document.querySelector('#terms dt').checkVisibility()"
    assert not chromium.js(explained)
    chromium.js("document.querySelector('.chip').click()")
    chromium.wait(lambda: chromium.js(explained))


def test_names_of_methods_are_inert_and_foreign_script_is_refused(chromium, tmp_path):
    name = "</script><script>document.title = 'taken'</script><img src=x onerror='document.title = 1'>"
    card = judge(ALL["healthy"](), SEEDS, method_name=name).to_json()
    for page, text in (("audit.html", audit_page([card], "Audit")), ("card.html", render(card, "html"))):
        (tmp_path / page).write_text(text)
        chromium.open(tmp_path / page)
        assert_quiet(chromium, tmp_path / page)
        assert name in chromium.js("document.body.innerText")
        assert "taken" not in chromium.js("document.title.slice(0, 5)")
        assert chromium.js("document.images.length") == 0
        # The page's policy refuses script that is not its own.
        chromium.js("document.body.append(Object.assign(document.createElement('script'), {text: 'window.got = 1'}))")
        assert chromium.js("window.got === undefined")

"""The audit page judges like `DiagnosticReport.rejudge`: thresholds moved in Chromium, with every outcome compared."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import browser

sys.path.append(str(Path(__file__).parents[1] / "unit"))

import fake_audit
import numpy as np
from fake_measurements import ALL, changed, healthy

from walkback.judge.audit_table import make_audit_table
from walkback.judge.editions import PROTOCOLS
from walkback.judge.evidence import Evidence
from walkback.judge.report import judge
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.report.audit_page.page import audit_page
from walkback.report.audit_page.sentence import audit_sentence

SETTINGS = {"two seeds": 20, "every case": 12, "losses": 9}
SHELL, BP = "method_shell", "bp_shell"


def samples(right: int, n: int = 400) -> list[bool]:
    """The correctness of a model that gets a share of the samples right."""
    draw = random.Random(right)
    return [draw.random() < right / n for _ in range(n)]


def one_seed() -> Evidence:
    """Accuracies of one seed with their samples: a margin of 3 points, and backprop's of 8."""
    stored = {name: samples(right) for name, right in (("mine", 252), (SHELL, 240), (BP, 240), ("bp", 272))}
    acc = {name: sum(found) / len(found) for name, found in stored.items()}
    return Evidence.of(
        acc["mine"], {SHELL: acc[SHELL], BP: acc[BP]}, acc["bp"], correct=stored["mine"],
        frozen_correct={SHELL: stored[SHELL], BP: stored[BP]}, bp_correct=stored["bp"],
    )  # fmt: skip


EVIDENCE = {
    "several seeds": Evidence.of(
        [0.39, 0.40, 0.42], {SHELL: [0.36, 0.35, 0.36], BP: [0.4, 0.39, 0.41]}, [0.5, 0.51, 0.49]
    ),
    "one seed": one_seed(),
    "test samples": Evidence.of(0.40, {SHELL: 0.37, BP: 0.36}, 0.42, test_samples=10000),
    "no interval": Evidence.of(0.40, {SHELL: 0.37, BP: 0.36}, 0.42),
    "nothing": Evidence(),
    "bare": Evidence.of([0.39, 0.43], [0.36, 0.36]),
}


def fitted(**given):
    """A small gradient that a small error explains."""
    made = healthy(grad=1e-9, **given)
    return changed(made, error_norm=np.full(made.facts["samples"], 1e-6))


def one_class(**given):
    """The model predicts one class."""
    return changed(healthy(**given), {"predicted_classes": 1})


def growth_unknown(**given):
    """A hidden state is zero, so one growth is not known; the largest known one is 8."""
    made = healthy(growth=8.0, **given)
    return changed(made, hidden_norm=made.get("hidden_norm") * np.array([[1], [1], [0], [1], [1]]))


def weak(**given):
    """Credits so close to their nulls that the threshold decides."""
    return healthy(cosines=[0.05, 0.03, 0.04, 0.06, 0.035], null_std=0.011, fresh=0.0, **given)


CASES = {**ALL, "fitted": fitted, "one class": one_class, "growth unknown": growth_unknown, "weak": weak}


def evidence_missing_in_one_seed() -> list[object]:
    """One seed's feedback is missing, so that no edition concludes; the other seed is healthy."""
    return [
        judge(ALL["healthy"](), fake_audit.GOOD, method_name="missing in one",
              context={"seed": seed, "missing": "the feedback is missing" if seed == 2 else ""},
              claimed=("depth",))
        for seed in (1, 2)
    ]  # fmt: skip


def every_case() -> list[object]:
    """Every kind of measurements with every kind of accuracies, each as a method of one seed."""
    found = []
    for at, (case, measured) in enumerate(CASES.items()):
        for shift in (0, 3):
            kind = list(EVIDENCE)[(at + shift) % len(EVIDENCE)]
            context = {"missing": "the feedback is missing"} if (at, shift) == (4, 3) else {}
            claimed = ("depth",) if at % 4 == 3 else ("alignment", "depth")
            name = f"{case}, {kind}"
            found.append(judge(measured(), EVIDENCE[kind], method_name=name, context=context, claimed=claimed))
    return found + evidence_missing_in_one_seed()


def language_models() -> list[object]:
    """Test losses: the threshold of the margin is in nats."""
    losses = {"a": [1.60, 1.62, 1.59], "b": [1.95, 1.93, 1.99]}
    return [
        judge(
            ALL["healthy"](),
            Evidence.of([0.4] * 3, {SHELL: [0.3] * 3, BP: [0.3] * 3}, [0.4] * 3, headline_loss=loss,
                        frozen_baseline_loss={SHELL: [2.0, 2.01, 2.02], BP: [2.0, 2.0, 2.0]}, bp_loss=[1.5, 1.6, 1.5]),
            method_name=name,
        )
        for name, loss in losses.items()
    ]  # fmt: skip


AUDITS = {"two seeds": fake_audit.reports, "every case": every_case, "losses": language_models}

# Moves every slider to a random place, as a user does, and chooses a rule.
MOVE = """((places, edition) => { for (const [name, at] of Object.entries(places)) { const input = byId(name);
  input.value = Math.round(at * input.max); input.dispatchEvent(new Event("input")); }
  byId("edition").value = edition; byId("edition").dispatchEvent(new Event("change")); })"""
# What the page shows: its thresholds, the sentence, and the verdict and the claims of each method.
SHOWN = """({
  thresholds: Object.fromEntries(Object.keys(page.thresholds).map(name =>
    [name, Number(byId(`${name}-value`).textContent)])),
  sentence: byId("sentence").textContent,
  pictures: [...document.querySelectorAll("li.picture")].map(x => x.querySelector(".verdict .word").textContent),
  rows: [...document.querySelectorAll("#claims tbody tr")].map(x => [x.querySelector(".verdict .word").textContent,
    ...[...x.querySelectorAll(".shown")].map(y => y.textContent)]),
  chips: [...document.querySelectorAll("li.picture")].map(x => Object.fromEntries(
    [...x.querySelectorAll(".chip")].map(y => [y.dataset.chip, y.querySelector(".sign").textContent]))),
  fails: [...document.querySelectorAll("#claims .fails")].map(x =>
    [...x.querySelectorAll("[data-check]")].filter(y => y.checkVisibility()).map(y => y.dataset.check)),
  notice: !byId("changed").hidden, reset: !byId("reset").disabled })"""
WORDS = {"walked_back": "needs walk-back", "trustworthy": "trustworthy", "inconclusive": "inconclusive"}
SIGNS = {True: "✗", False: "✓", None: "?"}


@pytest.fixture(scope="module")
def chromium():
    program = browser.browser_path()
    if program is None:
        pytest.skip(f"no browser on this machine: none of {', '.join(browser.NAMES)} was found, so no page was opened")
    with browser.Browser(program) as opened:
        yield opened


def flag_of(flags):
    """Over seeds: fails if any fails, passes if all pass."""
    truths = [flag.truth for flag in flags]
    return True if True in truths else False if set(truths) == {False} else None


@pytest.mark.parametrize("name", AUDITS)
def test_moved_thresholds_give_the_verdicts_of_rejudge(chromium, tmp_path, name):
    reports = AUDITS[name]()
    page = tmp_path / "audit.html"
    page.write_text(audit_page([report.to_json() for report in reports], "Audit"))
    chromium.open(page)
    stored = chromium.js(SHOWN)
    assert not stored["notice"]
    assert not stored["reset"]
    draw = random.Random(name)
    sliders = list(stored["thresholds"])
    outcomes = set()
    for setting in range(SETTINGS[name]):
        # The first settings move one slider each; alignment is decided near the low end of its slider.
        moved = [sliders[setting]] if setting < len(sliders) else sliders
        places = {slider: draw.random() ** (2 if slider == "null_z" else 1) for slider in moved}
        edition = list(PROTOCOLS)[setting % 3]
        chromium.js(f"{MOVE}({places}, '{edition}')")
        shown = chromium.js(SHOWN)
        t = replace(DiagnosticThresholds(), **shown["thresholds"])
        judged = [report.rejudge(t, edition) for report in reports]
        table = make_audit_table([report.to_json() for report in judged])
        verdicts = [WORDS.get(row.rulings[edition].outcome, "cannot be judged") for row in table.rows]
        about = (setting, shown["thresholds"], edition)
        assert shown["pictures"] == verdicts, about
        expected = [
            [word, row.claims["depth"].shown, row.claims["alignment"].shown]
            for word, row in zip(verdicts, table.rows, strict=True)
        ]
        assert shown["rows"] == expected, about
        assert shown["sentence"] == audit_sentence(table), about
        for row, chips, fails in zip(table.rows, shown["chips"], shown["fails"], strict=True):
            seeds = [report for report in judged if report.method_name == row.method]
            truths = {check: flag_of([report.flags[check] for report in seeds]) for check in ("D1", "D2", "D3")}
            assert fails == [check for check, truth in truths.items() if truth], about
            for check in ("D1", "D2"):
                assert chips[check] == SIGNS[truths[check]], about
        assert shown["notice"]
        outcomes |= {tuple(row) for row in shown["rows"]}
    # The settings matter: methods get several verdicts.
    assert len(outcomes) > len({tuple(row) for row in stored["rows"]})
    chromium.js("byId('reset').click()")
    assert chromium.js(SHOWN) == stored
    assert chromium.events_of("Runtime.exceptionThrown") == []

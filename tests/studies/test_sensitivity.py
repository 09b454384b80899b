"""The unstated recipe: each variant changes one thing, and planted exceptions are found and named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planted import PlantedRuns, cells, holds

from walkback.training.resolved_run import resolve
from walkback_papers.scale import PAPER, SMOKE
from walkback_papers.studies.sensitivity import STUDY
from walkback_papers.variants import LEFT_OUT, RECIPE, VARIANT_NAMES, VIT_VARIANT, variants

SCALE = replace(PAPER, seeds=(42, 123))
"""Paper scale has all variants, on images; nothing is trained, so no data are read."""
ROWS = {row.name: row for row in variants(SCALE)}
HEALTHY = {"accuracy": 0.6, "shell": 0.36, "measured": {"cosines": 1.0, "groups": 2}}
STEADY = {"accuracy": 0.41, "shell": 0.35, "bp_shell": 0.36, "measured": {"growth": 10.0, "grad": 1e-5, "groups": 2}}
COLLAPSED = {
    "accuracy": 0.31,
    "shell": 0.35,
    "bp_shell": 0.36,
    "measured": {"growth": 4000.0, "grad": 2e-9, "cosines": [0.4, 0.0, 0.0, 0.0, 0.0], "groups": 2},
}
RELIEVED = STEADY | {"measured": {"growth": 3.0, "grad": 5e-6, "cosines": 0.15, "groups": 2}}
USUAL = {"BP": HEALTHY, "FA": STEADY, "DFA": COLLAPSED, "State Bridge": COLLAPSED, "Credit Bridge": COLLAPSED}


def usual(row, method):
    """The results planted by default: the published pattern."""
    if row.family == VIT_VARIANT:
        return HEALTHY if method == "BP" else COLLAPSED
    return RELIEVED if row.family != RECIPE and method == "DFA" else USUAL[method]


@pytest.fixture(scope="module")
def planted_runs(tmp_path_factory):
    made = PlantedRuns(tmp_path_factory.mktemp("variants"))
    for row in ROWS.values():
        for method in row.methods:
            made.plant(row.runs(SCALE, method), **usual(row, method))
    return made


@pytest.fixture(scope="module")
def published(planted_runs):
    return STUDY.report_results(planted_runs.results(), SCALE)


def make_report(planted_runs, exceptions, seeds=SCALE.seeds):
    """The report with some methods changed under some variants, in some seeds; the runs are restored afterwards."""
    runs = {(name, method): ROWS[name].runs(SCALE, method) for name, method in exceptions}
    for place, given in exceptions.items():
        planted_runs.plant([config for config in runs[place] if config.seed in seeds], **given)
    study_report = STUDY.report_results(planted_runs.results(), SCALE)
    for (name, method), own in runs.items():
        planted_runs.plant(own, **usual(ROWS[name], method))
    return study_report


def test_equal_variants_support_every_claim_and_nothing_flips(published):
    assert [each.id for each in published.findings if each.holds is not True] == []
    flips = cells(published, "verdicts", "flips")
    assert {name: flips[name] for name in ROWS} == {n: "–" if row.is_base else "none" for n, row in ROWS.items()}
    assert cells(published, "verdicts", "DFA")["site output"] == "walked back (D1, D2, D3)"
    assert cells(published, "verdicts", "BP")["site output"] == "–"
    assert cells(published, "dfa", "over bp frozen, pp")["raw error"] == "-5.0 [-5.0, -5.0]"
    in_mode_1 = cells(published, "conclusions", "DFA in Mode 1")
    repeats = {"B × 0.1", "B × 10", "B std 1/√d"}  # AdamW trains the recipe's own network: not counted.
    assert {name: word for name, word in in_mode_1.items() if word != "yes"} == dict.fromkeys(repeats, "–")
    assert list(cells(published, "bp", "three")) == [name for name, row in ROWS.items() if "BP" in row.methods]


def test_a_variant_without_dfas_failure_is_named_in_every_finding(planted_runs):
    study_report = make_report(planted_runs, {("raw error", "DFA"): RELIEVED})
    for finding_id in ("dfa-walked-back", "dfa-mode-1", "dfa-depth-fails", "dfa-cosine-small"):
        assert holds(study_report, finding_id) is False
        assert study_report.finding(finding_id).details.endswith("against it: raw error.")
    assert "raw error: from walked back (D1, D2, D3) to trustworthy" in study_report.finding("dfa-no-flip").details
    assert cells(study_report, "verdicts", "flips")["raw error"] == "DFA"
    assert cells(study_report, "conclusions", "DFA walked back")["raw error"] == "no"
    assert holds(study_report, "fa-no-flip") is True
    assert holds(study_report, "b-size-no-flip") is True


def test_a_site_without_a_bridges_failure_is_named(planted_runs):
    study_report = make_report(planted_runs, {("site output", "Credit Bridge"): RELIEVED})
    assert (
        "site output: from walked back (D1, D2, D3) to trustworthy"
        in study_report.finding("credit-bridge-no-flip").details
    )
    assert cells(study_report, "verdicts", "flips")["site output"] == "Credit Bridge"
    assert list(cells(study_report, "credit-bridge", "three").values()) == ["walked back (D1, D2, D3)", "trustworthy"]
    assert holds(study_report, "state-bridge-no-flip") is True


def test_seeds_that_differ_leave_a_variant_open(planted_runs):
    study_report = make_report(
        planted_runs, {("raw error", "DFA"): RELIEVED | {"accuracy": 0.5}}, seeds=SCALE.seeds[:1]
    )
    assert holds(study_report, "dfa-walked-back") is None
    assert holds(study_report, "dfa-no-flip") is None
    assert cells(study_report, "verdicts", "flips")["raw error"] == "DFA?"
    assert cells(study_report, "conclusions", "DFA in Mode 1")["raw error"] == "undecided"


def test_planted_exceptions_refute_each_claim_and_are_named(planted_runs):
    study_report = make_report(
        planted_runs,
        {
            ("no crops", "BP"): COLLAPSED | {"accuracy": 0.6},
            ("mean padding", "FA"): COLLAPSED,
            ("W2 default", "FA"): STEADY | {"accuracy": 0.34},
            ("B × 0.1", "DFA"): RELIEVED,
            ("logits − y", "DFA"): RELIEVED,
            ("λ over mean", "DFA"): COLLAPSED,
            ("λ with B × 10", "DFA"): RELIEVED | {"measured": STEADY["measured"]},
            ("ViT with cls", "DFA"): RELIEVED,
        },
    )
    against = {
        "bp-trustworthy": "no crops",
        "dfa-walked-back": "logits − y",
        "fa-not-mode-1": "mean padding",
        "fa-depth-helps": "W2 default, mean padding",
        "b-size-no-flip": "B × 0.1 (DFA)",
        "penalty-relieves-dfa": "λ over mean",
        "penalty-raises-cosine": "λ over mean, λ with B × 10",
    }
    for finding_id, names in against.items():
        assert holds(study_report, finding_id) is False
        assert study_report.finding(finding_id).details.endswith(f"against it: {names}."), finding_id
    flips = cells(study_report, "verdicts", "flips")
    changed = {"no crops": "BP", "mean padding": "FA", "W2 default": "FA", "B × 0.1": "DFA", "λ over mean": "DFA"}
    changed |= {"logits − y": "DFA", "ViT with cls": "DFA"}
    assert {name: word for name, word in flips.items() if word not in ("none", "–")} == changed
    assert all(holds(study_report, f"{method.lower()}-no-flip") is False for method in VARIANT_NAMES)


def test_a_verdict_that_depends_on_the_baseline_is_not_a_flip(planted_runs):
    study_report = make_report(planted_runs, {("W2 default", "FA"): STEADY | {"bp_shell": 0.40}})
    assert holds(study_report, "same-against-bp-baseline") is False
    assert "against it: W2 default (FA)" in study_report.finding("same-against-bp-baseline").details
    assert cells(study_report, "verdicts", "FA, bp frozen baseline")["W2 default"] == "walked back (D3)"
    assert holds(study_report, "fa-no-flip") is True


def test_without_mode_1_at_the_recipe_relief_is_open(planted_runs):
    assert holds(make_report(planted_runs, {(RECIPE, "DFA"): RELIEVED}), "penalty-relieves-dfa") is None


@pytest.mark.parametrize("scale", [SCALE, SMOKE], ids=["paper", "smoke"])
def test_each_variant_changes_what_it_names_of_its_base_and_nothing_else(scale):
    rows = {row.name: row for row in variants(scale)}
    for row in rows.values():
        assert rows[row.family].is_base
        for method in row.methods:
            ours, theirs = (_settings(each.runs(scale, method)[0]) for each in (row, rows[row.family]))
            changed = [name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)]
            assert len(changed) == (0 if row.is_base else len(row.name.split(" + "))), (row.name, method, changed)
    assert [name for name in rows if " + " in name] == (["raw error + mean padding"] * (scale is SCALE))


def _settings(config):
    """Every setting of a run, including those of its method, network and data."""
    plain = resolve(config).config.to_json()
    parts = {f"{part}.{k}": v for part in ("method", "arch", "data") for k, v in plain.pop(part).items()}
    return plain | parts


def test_variants_of_numbers_share_the_recipes_fleet():
    """A variant that only changes a number or a choice of the rule is trained together with its base."""
    base = resolve(ROWS[RECIPE].runs(SCALE, "DFA")[0]).fleet_key()
    names = ("raw error", "logits − y", "B × 0.1", "B × 10", "B std 1/√d", "λ = 0.01", "λ with B × 0.1")
    assert all(resolve(ROWS[name].runs(SCALE, "DFA")[0]).fleet_key() == base for name in names)


def test_smoke_scale_has_no_images_and_leaves_out_the_listed_variants():
    rows = variants(SMOKE)
    on_images = {"no crops", "mean padding", "raw error + mean padding", "ViT", "ViT with cls", "ViT with all tokens"}
    everything = {(name, method) for name, row in ROWS.items() for method in row.methods if name not in on_images}
    assert {(row.name, method) for row in rows for method in row.methods} == everything - LEFT_OUT["smoke"]
    assert LEFT_OUT["smoke"] < everything


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("sensitivity")
    assert holds(study_report, "bp-trustworthy") is True
    assert holds(study_report, "bp-no-flip") is True
    assert holds(study_report, "b-size-no-flip") is True
    assert "raw error: from walked back" in study_report.finding("dfa-no-flip").details

"""The unstated recipe: each variant changes one thing, and a planted exception is found and named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planted import Bed, cells, finding, holds

from walkback.training.resolved_run import resolve
from walkback_papers.scale import PAPER, SMOKE
from walkback_papers.studies.sensitivity import STUDY
from walkback_papers.variants import LEFT_OUT, RECIPE, VARIANT_NAMES, VIT_VARIANT, variants

SCALE = replace(PAPER, seeds=(42, 123))
"""All variants, on pictures; nothing is trained, so no data are read."""
ROWS = {row.name: row for row in variants(SCALE)}
CALM = {"accuracy": 0.6, "shell": 0.36, "look": {"cosines": 1.0, "groups": 2}}
STEADY = {"accuracy": 0.41, "shell": 0.35, "bp_shell": 0.36, "look": {"growth": 10.0, "grad": 1e-5, "groups": 2}}
LOST = {
    "accuracy": 0.31,
    "shell": 0.35,
    "bp_shell": 0.36,
    "look": {"growth": 4000.0, "grad": 2e-9, "cosines": [0.4, 0.0, 0.0, 0.0, 0.0], "groups": 2},
}
RELIEVED = STEADY | {"look": {"growth": 3.0, "grad": 5e-6, "cosines": 0.15, "groups": 2}}
USUAL = {"BP": CALM, "FA": STEADY, "DFA": LOST, "State Bridge": LOST, "Credit Bridge": LOST}


def usual(row, method):
    """What is planted where nothing is said: the papers' picture."""
    if row.family == VIT_VARIANT:
        return CALM if method == "BP" else LOST
    return RELIEVED if row.family != RECIPE and method == "DFA" else USUAL[method]


@pytest.fixture(scope="module")
def bed(tmp_path_factory):
    made = Bed(tmp_path_factory.mktemp("variants"))
    for row in ROWS.values():
        for method in row.methods:
            made.plant(row.runs(SCALE, method), **usual(row, method))
    return made


@pytest.fixture(scope="module")
def published(bed):
    return STUDY.report_results(bed.results(), SCALE)


def told(bed, exceptions, seeds=SCALE.seeds):
    """What is said where some methods are changed in some rows, in some seeds; afterwards all is as it was."""
    runs = {(name, method): ROWS[name].runs(SCALE, method) for name, method in exceptions}
    for place, given in exceptions.items():
        bed.plant([config for config in runs[place] if config.seed in seeds], **given)
    study_report = STUDY.report_results(bed.results(), SCALE)
    for (name, method), own in runs.items():
        bed.plant(own, **usual(ROWS[name], method))
    return study_report


def test_where_every_variant_is_alike_every_claim_holds_and_nothing_flips(published):
    assert [each.claim for each in published.findings if each.holds is not True] == []
    flips = cells(published, "verdicts", "flips")
    assert {name: flips[name] for name in ROWS} == {n: "–" if row.is_base else "none" for n, row in ROWS.items()}
    assert cells(published, "verdicts", "DFA")["site output"] == "walked back (D1, D2, D3)"
    assert cells(published, "verdicts", "BP")["site output"] == "–"
    assert cells(published, "dfa", "over bp shell, pp")["raw error"] == "-5.0 [-5.0, -5.0]"
    assert set(cells(published, "conclusions", "DFA in Mode 1").values()) == {"yes"}
    assert list(cells(published, "bp", "three")) == [name for name, row in ROWS.items() if "BP" in row.methods]


def test_a_variant_that_frees_dfa_is_named_wherever_it_matters(bed):
    study_report = told(bed, {("raw error", "DFA"): RELIEVED})
    for words in ("DFA is walked back", "DFA raises Mode 1", "do not beat their own", "deep cosine is below 0.05"):
        assert holds(study_report, words) is False
        assert finding(study_report, words).said.endswith("against it: raw error.")
    assert "raw error: from walked back (D1, D2, D3) to trustworthy" in finding(study_report, "flips DFA's").said
    assert cells(study_report, "verdicts", "flips")["raw error"] == "DFA"
    assert cells(study_report, "conclusions", "DFA walked back")["raw error"] == "no"
    assert holds(study_report, "flips FA's") is True
    assert holds(study_report, "AdamW hides it") is True


def test_a_bridge_that_its_site_frees_is_named(bed):
    study_report = told(bed, {("site output", "Credit Bridge"): RELIEVED})
    assert (
        "site output: from walked back (D1, D2, D3) to trustworthy"
        in finding(study_report, "flips Credit Bridge's").said
    )
    assert cells(study_report, "verdicts", "flips")["site output"] == "Credit Bridge"
    assert list(cells(study_report, "credit-bridge", "three").values()) == ["walked back (D1, D2, D3)", "trustworthy"]
    assert holds(study_report, "flips State Bridge's") is True


def test_seeds_that_differ_leave_a_variant_open(bed):
    study_report = told(bed, {("raw error", "DFA"): RELIEVED | {"accuracy": 0.5}}, seeds=SCALE.seeds[:1])
    assert holds(study_report, "DFA is walked back") is None
    assert holds(study_report, "flips DFA's") is None
    assert cells(study_report, "verdicts", "flips")["raw error"] == "DFA?"
    assert cells(study_report, "conclusions", "DFA in Mode 1")["raw error"] == "open"


def test_planted_exceptions_refute_each_claim_by_their_variants_names(bed):
    study_report = told(
        bed,
        {
            ("no crops", "BP"): LOST | {"accuracy": 0.6},
            ("mean padding", "FA"): LOST,
            ("W2 default", "FA"): STEADY | {"accuracy": 0.34},
            ("B × 0.1", "DFA"): RELIEVED,
            ("λ over mean", "DFA"): LOST,
            ("λ with B × 10", "DFA"): RELIEVED | {"look": STEADY["look"]},
            ("ViT with cls", "DFA"): RELIEVED,
        },
    )
    against = {
        "Backprop is trustworthy": "no crops",
        "DFA is walked back": "B × 0.1",
        "FA does not raise Mode 1": "mean padding",
        "FA's trained blocks beat": "W2 default, mean padding",
        "AdamW hides it": "B × 0.1 (DFA)",
        "relieves DFA's Mode 1": "λ over mean",
        "lifts DFA's deep cosine": "λ over mean, λ with B × 10",
    }
    for claim, names in against.items():
        assert holds(study_report, claim) is False
        assert finding(study_report, claim).said.endswith(f"against it: {names}."), claim
    flips = cells(study_report, "verdicts", "flips")
    changed = {"no crops": "BP", "mean padding": "FA", "W2 default": "FA", "B × 0.1": "DFA", "λ over mean": "DFA"}
    assert {name: word for name, word in flips.items() if word not in ("none", "–")} == changed | {
        "ViT with cls": "DFA"
    }
    assert all(holds(study_report, f"flips {method}'s") is False for method in VARIANT_NAMES)


def test_a_null_that_only_backprop_reaches_turns_verdicts_and_is_told_apart_from_flips(bed):
    study_report = told(bed, {("W2 default", "FA"): STEADY | {"bp_shell": 0.40}})
    assert holds(study_report, "against backprop's") is False
    assert "against it: W2 default (FA)" in finding(study_report, "against backprop's").said
    assert cells(study_report, "verdicts", "FA, bp shell")["W2 default"] == "walked back (D3)"
    assert holds(study_report, "flips FA's") is True


def test_without_mode_1_at_the_recipe_nothing_can_be_relieved(bed):
    assert holds(told(bed, {(RECIPE, "DFA"): RELIEVED}), "relieves DFA's Mode 1") is None


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
    """Every setting of a run, those of its parts too."""
    plain = resolve(config).config.to_json()
    parts = {f"{part}.{k}": v for part in ("method", "arch", "data") for k, v in plain.pop(part).items()}
    return plain | parts


def test_numbers_share_the_recipes_fleet():
    """A variant that only changes a number or a choice of the rule is trained together with its base."""
    base = resolve(ROWS[RECIPE].runs(SCALE, "DFA")[0]).fleet_key()
    names = ("raw error", "logits − y", "B × 0.1", "B × 10", "B std 1/√d", "λ = 0.01", "λ with B × 0.1")
    assert all(resolve(ROWS[name].runs(SCALE, "DFA")[0]).fleet_key() == base for name in names)


def test_the_embedded_task_has_no_pictures_and_leaves_out_what_it_says():
    rows = variants(SMOKE)
    on_pictures = {"no crops", "mean padding", "raw error + mean padding", "ViT", "ViT with cls", "ViT with all tokens"}
    everything = {(name, method) for name, row in ROWS.items() for method in row.methods if name not in on_pictures}
    assert {(row.name, method) for row in rows for method in row.methods} == everything - LEFT_OUT["smoke"]
    assert LEFT_OUT["smoke"] < everything


@pytest.mark.slow
def test_smoke(smoke):
    study_report = smoke("sensitivity")
    assert holds(study_report, "Backprop is trustworthy") is True
    assert holds(study_report, "flips BP's") is True
    assert holds(study_report, "AdamW hides it") is True
    assert "raw error: from walked back" in finding(study_report, "flips DFA's").said

"""The report and its card: written and read strictly, without a model or torch."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import fields, replace

import jsonschema
import pytest
from fake_measurements import ALL, exploded, healthy

from walkback.core.errors import InputError
from walkback.core.measurements import Measurements
from walkback.judge.blocks import Block
from walkback.judge.card import read_card
from walkback.judge.card_schema import schema
from walkback.judge.evidence import Evidence
from walkback.judge.report import judge
from walkback.judge.thresholds import DiagnosticThresholds

EVIDENCE = {
    "none": Evidence(),
    "bare": Evidence.of(0.306, 0.349),
    "seeds": Evidence.of([0.61, 0.62, 0.60], {"method_shell": [0.35, 0.35, 0.34], "bp_shell": 0.42}, [0.6, 0.6, 0.6]),
}
CONTEXT = {
    "arch": "resmlp",
    "data": "cifar10",
    "digest": "ab12",
    "provenance": {"versions": {"python": "3.11"}, "loss": float("nan")},
    "rerun": "walkback diagnose runs/dfa",
}


def report_of(case="exploded", evidence="bare", **given):
    given = {"method_name": "DFA", "notes": "4-block d=256 ResMLP", "context": CONTEXT} | given
    return judge(ALL[case](), EVIDENCE[evidence], **given)


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("evidence", EVIDENCE)
def test_a_card_is_unchanged_by_saving_and_reading(case, evidence, tmp_path):
    card = report_of(case, evidence).to_json()
    path = tmp_path / "report.json"
    path.write_text(json.dumps(card, allow_nan=False))
    assert read_card(path) == card
    jsonschema.validate(card, schema(), jsonschema.Draft202012Validator)


def test_the_schema_itself_is_sound():
    jsonschema.Draft202012Validator.check_schema(schema())


def places(value, path=()):
    """Every place of a card, as (path, value)."""
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        if key != "provenance":
            yield from places(item, (*path, key))


def edited(card, path, change):
    damaged = copy.deepcopy(card)
    place = damaged
    for key in path[:-1]:
        place = place[key]
    change(place, path[-1])
    return damaged


def error_message(card):
    """The reader's error message; empty if it accepts the card."""
    try:
        read_card(card)
    except InputError as error:
        return str(error)
    return ""


def test_every_damaged_place_is_refused_by_name_and_as_jsonschema_would():
    """Each value of the wrong type, and each key removed."""
    card = report_of("fresh", "seeds").to_json()
    validator = jsonschema.Draft202012Validator(schema())
    for path, _ in places(card):
        # Of layers, checks and answers only the first is tested.
        if not path or any(isinstance(key, int) and key > 0 for key in path):
            continue
        damages = [edited(card, path, lambda place, key: place.__setitem__(key, {"nonsense": 1}))]
        optional = (
            path in (("blocks",), ("rejudging",))
            or (path[0] == "blocks" and path[-1] in Block.JSON_OPTIONAL)
            or path[:-1] == ("claim", "frozen")
            or (path[:-1] == ("thresholds",) and path[-1] not in DiagnosticThresholds.JSON_REQUIRED)
        )
        if isinstance(path[-1], str) and not optional:
            damages.append(edited(card, path, lambda place, key: place.pop(key)))
        named = [key for key in path if isinstance(key, str)][-1]
        for damaged in damages:
            assert named in error_message(damaged), path
            assert not validator.is_valid(damaged), path


@pytest.mark.parametrize(
    "path", [(), ("claim",), ("layers", 0), ("layers", 0, "credit"), ("statistics",), ("checks", 0)]
)
def test_unknown_keys_are_refused(path):
    damaged = edited(report_of().to_json(), (*path, "extra"), lambda place, key: place.__setitem__(key, 1))
    assert not jsonschema.Draft202012Validator(schema()).is_valid(damaged)
    assert "extra" in error_message(damaged)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), 3, r"has the format 3; expected 1 or 2"),
        (("verdict",), "trustworthy", r"'trustworthy' at the key 'verdict'; expected 'walked_back'"),
        (("verdict",), "fine", r"at the key 'verdict'; expected one of 'trustworthy'"),
        (("checks", 0, "n"), -1, r"-1 at the key 'checks\[0\]\.n'"),
        (("checks", 0, "n"), True, r"True at the key 'checks\[0\]\.n'; expected integer"),
        (("checks", 0, "value"), float("nan"), r"nan at the key 'checks\[0\]\.value'"),
        (("checks", 0, "id"), "D2", r"has the check 'D1' 0 times"),
        (("checks", 0, "shown"), "PASS", r"'PASS' at the key 'checks\[0\]\.shown'"),
        (("checks", 1, "interval"), [1.0], r"'checks\[1\]\.interval'; expected 2 entries"),
        (
            ("claim", "headline_acc"),
            [30.6],
            r"30\.6 at the key 'claim\.headline_acc\[0\]'; expected a number from 0 to 1",
        ),
        (("layers", 0, "layer"), 3, r"at the key 'layers'; expected the 5 layers in order"),
        (("aggregates", "A1", "status"), "invalid", r"at the key 'aggregates\.A1'"),
        (("aggregates", "A1", "value"), None, r"at the key 'aggregates\.A1'"),
    ],
)
def test_damaged_cards_are_refused_by_key(path, value, message):
    damaged = edited(report_of().to_json(), path, lambda place, key: place.__setitem__(key, value))
    with pytest.raises(InputError, match=message):
        read_card(damaged)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"cannot be read as JSON"),
        (b"\xff\xfe", r"is not UTF-8 text"),
        (b"[]", r"has a list; expected a JSON object"),
        (b"{}", r"has the format None; expected 1"),
        (b'{"format": NaN}', r"it contains NaN"),
        (b'{"format": 1, "protocol": "claims", "verdict": "trustworthy", "rows": []}', r"overview .* report\.json"),
    ],
)
def test_files_that_are_no_cards(data, message, tmp_path):
    path = tmp_path / "report.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_card(path)


def test_a_missing_card_file(tmp_path):
    with pytest.raises(InputError, match=r"Could not read .*No such file"):
        read_card(tmp_path / "none.json")


@pytest.mark.parametrize("case", ALL)
def test_rejudging_equals_judging_with_the_other_thresholds(case):
    t = DiagnosticThresholds(g_norm_floor=1e-3, h_norm_explosion_ratio=1.1, concentration=0.3)
    first = report_of(case, "seeds")
    again = first.rejudge(t, "four")
    assert again.to_json() == report_of(case, "seeds", thresholds=t, protocol="four").to_json()
    assert again.rejudge(DiagnosticThresholds(), "claims").to_json() == first.to_json()


def test_judging_stored_measurements_gives_the_same_card(tmp_path):
    report = report_of()
    report.measurements.save(tmp_path / "measurements.npz")
    stored = Measurements.load(tmp_path / "measurements.npz")
    again = judge(stored, report.evidence, method_name="DFA", notes=report.notes, context=CONTEXT)
    assert again.to_json() == report.to_json()


def test_the_card_has_claim_provenance_and_limits():
    t = replace(DiagnosticThresholds(), g_norm_floor=8e-7)
    card = judge(healthy(groups=4), Evidence.of(0.6, 0.3), t, "four", "FA", "note", CONTEXT).to_json()
    assert card["claim"]["method"] == "FA"
    assert card["claim"]["arch"] == "resmlp"
    assert card["provenance"] == {"versions": {"python": "3.11"}, "loss": None}
    assert card["rerun"] == ["walkback diagnose runs/dfa"]
    limits = " ".join(card["limits"])
    assert "g_norm_floor is 8e-07, not 1e-07" in limits
    assert "Only 4 groups" in limits
    assert "null unnamed" in limits
    assert "certifies no method" in limits
    assert "concludes otherwise" in " ".join(judge(healthy(growth=60), Evidence.of(0.6, 0.3)).to_json()["limits"])


def test_a_credit_that_equals_the_gradient_without_a_label_is_in_the_limits():
    limits = judge(healthy(cosines=[1.0] * 5)).to_json()["limits"]
    assert any("The credit is the gradient itself" in line for line in limits)
    assert not any("the gradient itself" in line for line in judge(ALL["backprop"]()).to_json()["limits"])


def test_unknown_checklist_answers_stay_to_do():
    answers = {item["question"]: item["answer"] for item in judge(exploded()).to_json()["checklist"]}
    assert answers["Final-epoch weights, never the best epoch on test data?"] == "[TODO]"
    assert answers["Matched frozen-blocks baseline, and by which rule its shell was trained?"] == "[TODO]"
    assert "hash 5a3e" in answers["Which samples, how many, and their hash?"]
    assert judge(exploded()).to_json()["claim"]["method"] == "[TODO]"


def test_the_statistics_of_the_card():
    card = report_of("healthy", "seeds").to_json()["statistics"]
    assert (card["n"], card["ddof"], card["pairing"], card["unit"]) == (3, 1, "by seed", "pp")
    assert card["minimum_detectable_margin"] == pytest.approx(3.264 * card["sd"], rel=1e-3)
    assert "With 3 seeds" in card["words"]
    assert report_of("healthy", "none").to_json()["statistics"]["pairing"] == "none"


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("evidence", EVIDENCE)
def test_the_printed_report_fits_80_columns_and_begins_with_its_verdict(case, evidence):
    report = report_of(case, evidence)
    lines = str(report).splitlines()
    assert lines[0].startswith("VERDICT: ")
    assert " ".join(str(report).split()).startswith(" ".join(report.decision.line.split()))
    assert max(map(len, lines)) <= 80
    for flag in report.flags.values():
        row = next(line for line in lines if line.startswith(f"{flag.id} "))
        assert flag.displayed in row


def test_the_judge_needs_no_torch():
    code = (
        "import sys, pkgutil, importlib, walkback.judge as room\n"
        "for found in pkgutil.walk_packages(room.__path__, 'walkback.judge.'): importlib.import_module(found.name)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", [field.name for field in fields(DiagnosticThresholds)])
def test_rejudging_equals_judging_anew_whichever_threshold_is_changed(name):
    """`rejudge` uses quantities again where they do not depend on what was changed."""
    default = getattr(DiagnosticThresholds(), name)
    other = replace(DiagnosticThresholds(), **{name: default + 1 if isinstance(default, int) else 0.95 * default})
    for taken in (make() for make in ALL.values()):
        report = judge(taken)
        assert report.rejudge(other).to_json() == judge(taken, thresholds=other).to_json()

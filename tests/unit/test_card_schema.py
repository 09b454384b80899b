"""The card's schema follows its dataclasses; cards written before a check or a threshold was added stay valid."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated, Literal

import pytest
import torch
from fake_measurements import ALL

from walkback.auditing.verify import verify_card
from walkback.core.errors import InputError
from walkback.judge import check, report
from walkback.judge.audit_table import make_audit_table
from walkback.judge.card import CORE_CHECKS, read_card, seal
from walkback.judge.card_part import JsonChoice, JsonKeys, JsonLimits
from walkback.judge.card_schema import AuditCard, schema, schema_of
from walkback.judge.compare import compare_cards
from walkback.judge.evidence import Evidence
from walkback.judge.flag import Flag
from walkback.judge.number import Number
from walkback.judge.report import judge
from walkback.judge.thresholds import DiagnosticThresholds

AUDIT = Path(__file__).parents[1] / "fixtures" / "v0.8.1" / "audit"
CARDS = sorted(AUDIT.glob("*/report.json"))
NEW_CHECK = Flag("new", "a later check", "clear", "it passes", value=0.1, threshold=0.5, n=8, decides=False)


def card_of(case="healthy", **settings):
    return judge(ALL[case](), Evidence.of(0.6, 0.3), context={"seed": 1}, **settings).to_json()


def resealed(card, **changes):
    """The card with some keys replaced and a fitting hash, as a plain dict, which `read_card` checks."""
    return dict(seal({**card, **changes}))


def with_check(card, flag=NEW_CHECK):
    return resealed(card, checks=[*card["checks"], flag.to_json()])


def without_threshold(card, name):
    return resealed(card, thresholds={key: value for key, value in card["thresholds"].items() if key != name})


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (float, {"type": "number"}),
        (int | None, {"type": ["integer", "null"]}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Literal[1], {"const": 1}),
        (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
        (tuple[float, float], {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}),
        (Annotated[int, JsonLimits(0)] | None, {"type": ["integer", "null"], "minimum": 0}),
        (Annotated[str, JsonChoice(("x", "y"))], {"enum": ["x", "y"]}),
    ],
)
def test_the_schema_of_a_type(hint, expected):
    assert schema_of(hint) == expected


def test_a_mapping_with_named_keys():
    found = schema_of(Annotated[dict[str, bool], JsonKeys(("x", "y"), required=False)])
    assert found["properties"] == {"x": {"type": "boolean"}, "y": {"type": "boolean"}}
    assert found["required"] == []


def test_a_part_is_described_by_its_fields():
    found = schema_of(Number)
    assert found["properties"]["status"] == {"enum": ["ok", "invalid", "missing"]}
    assert list(Number.of(0.5).to_json()) == list(found["properties"]) == found["required"]


def test_every_key_that_a_card_has_is_in_the_schema_and_the_other_way_round():
    assert schema()["properties"].keys() == {*AuditCard.json_keys(), "hash"}
    assert card_of().keys() == schema()["properties"].keys()
    assert card_of("no credit").keys() == schema()["properties"].keys() - {"blocks"}, "nothing about blocks is known"


def test_the_schema_of_format_1_lacks_what_format_2_added():
    first, second = schema(1)["properties"], schema(2)["properties"]
    assert second["verdicts"]["properties"].keys() - first["verdicts"]["properties"].keys() == {"claims"}
    assert second["claims"]["properties"].keys() - first["claims"]["properties"].keys() == {"credit"}
    for name in ("verdicts", "claims"):
        assert set(second[name]["required"]) == second[name]["properties"].keys()


def test_every_threshold_is_in_the_schema():
    assert schema()["properties"]["thresholds"]["properties"].keys() == DiagnosticThresholds().to_json().keys()


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.parent.name)
def test_cards_of_0_8_1_are_read(path):
    assert read_card(path)["walkback"] == "0.8.1"


@pytest.fixture
def later_threshold(monkeypatch):
    """The name of a threshold that plays one added after format 1 was defined."""
    name = DiagnosticThresholds.JSON_REQUIRED[-1]
    monkeypatch.setattr(DiagnosticThresholds, "JSON_REQUIRED", DiagnosticThresholds.JSON_REQUIRED[:-1])
    schema.cache_clear()
    yield name
    schema.cache_clear()


def test_a_threshold_that_was_added_later_has_its_default(later_threshold):
    new = card_of()
    old = without_threshold(new, later_threshold)
    assert read_card(old) == old
    assert DiagnosticThresholds.from_json(old["thresholds"]) == DiagnosticThresholds()
    assert compare_cards(old, new) == []
    assert len(make_audit_table([old, new]).rows[0].cards) == 2


def test_another_value_of_a_later_threshold_is_a_difference(later_threshold):
    changed = DiagnosticThresholds(**{later_threshold: 2 * getattr(DiagnosticThresholds(), later_threshold)})
    new = card_of(thresholds=changed)
    old = without_threshold(new, later_threshold)
    assert f"thresholds.{later_threshold}" in [difference.key for difference in compare_cards(old, new)]
    with pytest.raises(InputError, match="thresholds"):
        make_audit_table([old, new])


@pytest.mark.parametrize("name", DiagnosticThresholds.JSON_REQUIRED)
def test_a_card_without_a_threshold_of_its_format_is_refused(name):
    with pytest.raises(InputError, match=rf"lacks the key 'thresholds\.{name}'"):
        read_card(without_threshold(card_of(), name))


def test_a_card_may_have_more_checks():
    card = with_check(card_of())
    assert read_card(card)["checks"][-1]["id"] == "new"


def test_a_check_that_was_added_later_is_no_difference():
    card = card_of()
    assert compare_cards(card, with_check(card)) == []
    assert compare_cards(with_check(card), with_check(card)) == []


@pytest.mark.parametrize("name", CORE_CHECKS)
def test_a_check_of_the_format_must_be_there(name):
    card = card_of()
    less = resealed(card, checks=[check for check in card["checks"] if check["id"] != name])
    assert [difference.key for difference in compare_cards(less, card)] == ["checks"]
    with pytest.raises(InputError, match=rf"check '{name}' 0 times"):
        read_card(less)


@pytest.fixture
def audited(tmp_path):
    """A copy of a run that 0.8.1 audited, with its card."""
    shutil.copytree(AUDIT, tmp_path / "audit")
    return tmp_path / "audit" / CARDS[0].parent.name


def test_an_old_card_is_confirmed_after_a_check_was_added(audited, monkeypatch):
    monkeypatch.setattr(report, "run_checks", lambda *given: {**check.run_checks(*given), "new": NEW_CHECK})
    found = verify_card(audited, audited, device=torch.device("cpu"))
    assert found.confirmed
    assert "checks.new" in found.line


def test_a_card_with_a_check_that_is_not_installed_is_neither_confirmed_nor_refuted(audited):
    path = audited / "report.json"
    path.write_text(json.dumps(with_check(json.loads(path.read_text()))))
    found = verify_card(audited, audited, device=torch.device("cpu"))
    assert found.outcome == "not_measured"
    assert "new" in found.line
    assert "install" in found.line

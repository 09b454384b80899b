"""The section of a model card: metadata that the hub can read, and the verdict with its checks and limits."""

from __future__ import annotations

import json

import pytest
import yaml
from test_report import NASTY, card_of, report_of

from walkback.cli.main import main
from walkback.core.errors import InputError
from walkback.judge.evidence import Evidence
from walkback.report.cards import view
from walkback.report.modelcard import modelcard


def metadata(text):
    start, front, _ = text.split("---\n", 2)
    assert start == ""
    return yaml.safe_load(front)


def test_the_metadata_has_accuracies_and_verdict():
    card = card_of()
    (model,) = metadata(modelcard(card))["model-index"]
    assert model["name"] == "DFA on resmlp"
    (result,) = model["results"]
    assert result["task"] == {"type": "image-classification"}
    assert result["dataset"] == {"type": "cifar10", "name": "cifar10"}
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    assert values["accuracy"] == pytest.approx(0.61)
    assert values["frozen-baseline-accuracy"] == pytest.approx(1.04 / 3)
    assert values["walkback-verdict"] == card["verdict"]


def test_a_card_that_lacks_everything_has_a_verdict_still():
    text = modelcard(card_of(evidence=Evidence(), method_name="", context={}))
    (model,) = metadata(text)["model-index"]
    (result,) = model["results"]
    assert (model["name"], result["task"], result["dataset"]["name"]) == ("model", {"type": "other"}, "unknown")
    assert [metric["type"] for metric in result["metrics"]] == ["walkback-verdict"]


def test_the_section_has_the_verdict_the_checks_the_claims_and_the_limits():
    card = card_of()
    shown, text = view(card), modelcard(card)
    assert shown.verdict_text in text
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == ["## Audit", *(f"### {shown.section(name).title}" for name in ("checks", "claims", "limits"))]
    assert "| growth" in text


def test_no_name_becomes_metadata_or_markup():
    card = card_of(method_name=f"a\n---\nlicense: mit {NASTY}")
    text = modelcard(card)
    (model,) = metadata(text)["model-index"]
    assert list(metadata(text)) == ["model-index"]
    assert model["name"].startswith("a --- license: mit <script>")
    assert "<script>" not in text.split("---\n", 2)[2].split("## Audit", 1)[1]


def test_render_writes_it_beside_the_card(tmp_path, capsys):
    (tmp_path / "report.json").write_text(json.dumps(card_of()))
    assert main(["render", str(tmp_path), "--format", "modelcard"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.modelcard.md")
    assert (tmp_path / "report.modelcard.md").read_text() == modelcard(card_of())


def test_a_changed_card_is_refused():
    with pytest.raises(InputError, match="changed"):
        modelcard({**card_of(), "limits": []})


def test_the_hub_reads_the_metadata():
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed: make test-all installs it")
    data = hub.ModelCard(modelcard(report_of().to_json())).data
    assert data.model_name == "DFA on resmlp"
    assert {found.metric_type for found in data.eval_results} == {
        "accuracy",
        "frozen-baseline-accuracy",
        "walkback-verdict",
    }

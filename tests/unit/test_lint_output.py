"""Findings for other programs: SARIF against the part of its schema that is used, and GitHub's workflow commands."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote

import jsonschema
import pytest

from walkback.cli.commands import lint as command
from walkback.cli.main import main
from walkback.core.errors import InputError
from walkback.linting.output import LINT_FORMATS
from walkback.linting.rule import rules

NORM = "import torch\n\n\ndef f(h):\n    return h.norm(-1)\n"
TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
POSITIVE = {"type": "integer", "minimum": 1}
URI = {"type": "string", "pattern": r"^[\w.~/:%!$&'()*+;=@-]+$"}
LOCATION = {
    "type": "object",
    "additionalProperties": False,
    "required": ["physicalLocation"],
    "properties": {
        "physicalLocation": {
            "type": "object",
            "additionalProperties": False,
            "required": ["artifactLocation"],
            "properties": {
                "artifactLocation": {"type": "object", "required": ["uri"], "properties": {"uri": URI}},
                "region": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["startLine"],
                    "properties": {"startLine": POSITIVE, "startColumn": POSITIVE},
                },
            },
        }
    },
}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
RULE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "shortDescription": TEXT,
        "fullDescription": TEXT,
        "help": TEXT,
        "defaultConfiguration": {"type": "object", "properties": {"level": LEVEL}},
    },
}
MESSAGE = {"message": TEXT, "level": LEVEL, "locations": {"type": "array", "items": LOCATION}}
RESULT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["message"],
    "properties": {**MESSAGE, "ruleId": {"type": "string"}, "ruleIndex": {"type": "integer", "minimum": -1}},
}
INVOCATION = {
    "type": "object",
    "additionalProperties": False,
    "required": ["executionSuccessful"],
    "properties": {
        "executionSuccessful": {"type": "boolean"},
        "toolExecutionNotifications": {
            "type": "array",
            "items": {"type": "object", "additionalProperties": False, "required": ["message"], "properties": MESSAGE},
        },
    },
}
DRIVER = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "version": {"type": "string"},
        "rules": {"type": "array", "uniqueItems": True, "items": RULE},
    },
}
SARIF = {
    "type": "object",
    "additionalProperties": False,
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["tool"],
                "properties": {
                    "tool": {"type": "object", "required": ["driver"], "properties": {"driver": DRIVER}},
                    "invocations": {"type": "array", "items": INVOCATION},
                    "results": {"type": "array", "items": RESULT},
                },
            },
        },
    },
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """One finding in a file whose name needs escapes, one in a notebook, and a file that cannot be parsed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b,c:100%.py").write_text(NORM)
    cells = [{"cell_type": "code", "source": "import torch"}, {"cell_type": "code", "source": NORM}]
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / "z.py").write_text("x = (\n")
    return tmp_path


def sarif(capsys, *words):
    code = main(["lint", *words, "--format", "sarif"])
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, SARIF)
    (run,) = document["runs"]
    return code, run


def test_sarif_has_the_findings_their_places_and_their_rules(folder, capsys):
    code, run = sarif(capsys, "a b,c:100%.py")
    assert code == 1
    (rule,) = run["tool"]["driver"]["rules"]
    assert (rule["id"], rule["fullDescription"]["text"]) == ("WB001", rules()["WB001"].why)
    (result,) = run["results"]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("WB001", 0, "warning")
    (place,) = [location["physicalLocation"] for location in result["locations"]]
    assert place["region"] == {"startLine": 5, "startColumn": 12}
    assert unquote(place["artifactLocation"]["uri"]) == "a b,c:100%.py"
    assert run["invocations"] == [{"executionSuccessful": True, "toolExecutionNotifications": []}]


def test_sarif_names_the_cell_of_a_notebook_and_files_that_were_not_checked(folder, capsys):
    code, run = sarif(capsys, "n.ipynb", "z.py")
    assert code == 1
    (result,) = run["results"]
    assert result["message"]["text"].startswith("cell 2, line 5: ")
    assert "region" not in result["locations"][0]["physicalLocation"]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    (note,) = invocation["toolExecutionNotifications"]
    assert note["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "z.py"


def test_sarif_of_clean_code_and_of_an_absolute_path(folder, capsys):
    (folder / "clean.py").write_text("x = 1\n")
    assert sarif(capsys, "clean.py")[1]["results"] == []
    place = sarif(capsys, str(folder / "n.ipynb"))[1]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == (folder / "n.ipynb").as_uri()


def test_github_lines_are_one_command_each_with_escaped_values(folder, capsys):
    assert main(["lint", ".", "--format", "github"]) == 1
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("::warning file=a b%2Cc%3A100%25.py,line=5,col=12,title=WB001::-1 ")
    assert re.match(r"::warning file=n\.ipynb,title=WB001::cell 2, line 5: ", second)
    assert third.startswith("::error file=z.py::not checked: ")


def test_github_prints_nothing_for_clean_code(folder, capsys):
    (folder / "clean.py").write_text("x = 1\n")
    assert main(["lint", "clean.py", "--format", "github"]) == 0
    assert capsys.readouterr().out == ""


def test_every_format_can_be_chosen(folder, capsys):
    assert set(command._FORMATS) == set(LINT_FORMATS)
    main(["lint", ".", "--json"])
    first = capsys.readouterr().out
    main(["lint", ".", "--format", "json"])
    assert capsys.readouterr().out == first


def test_an_explanation_is_no_scan(capsys):
    assert main(["lint", "--explain", "--format", "sarif"]) == InputError.exit_code
    assert "--format sarif" in capsys.readouterr().err

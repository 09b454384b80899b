"""The outcome of a lint run as text, as JSON, as SARIF 2.1.0 for code scanning, or as GitHub's workflow commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from walkback.core.version import __version__
from walkback.linting.engine import LintFinding, LintOutcome
from walkback.linting.rule import Rule, rules

SARIF_VERSION = "2.1.0"


def lint_text(outcome: LintOutcome) -> str:
    """One line for each finding and each file that was not checked, and the counts."""
    lines = [f"{finding.where()} {finding.code} {finding.message}" for finding in outcome.findings]
    lines += [f"{file.path}: not checked: {file.reason}" for file in outcome.unreadable]
    counts = [f"{_many(len(outcome.findings), 'finding')} in {_many(outcome.files, 'file')}"]
    counts += [f"{len(outcome.unreadable)} not checked"] if outcome.unreadable else []
    hint = ". `walkback lint --explain CODE` explains why and what to do instead." if outcome.findings else "."
    return "\n".join([*lines, ", ".join(counts) + hint])


def lint_json(outcome: LintOutcome) -> str:
    """One object with `files`, `findings` and `unreadable`; each finding with what its rule says."""
    findings = [
        {
            "path": finding.path,
            "cell": finding.cell or None,
            "line": finding.line,
            "column": finding.column,
            "message": finding.message,
            **rule_facts(rules()[finding.code]),
        }
        for finding in outcome.findings
    ]
    unreadable = [{"path": file.path, "reason": file.reason} for file in outcome.unreadable]
    return json.dumps({"files": outcome.files, "findings": findings, "unreadable": unreadable}, allow_nan=False)


def lint_sarif(outcome: LintOutcome) -> str:
    """One SARIF run. A finding in a notebook has its file only: SARIF has no cells, so its message names the cell."""
    found = sorted({finding.code for finding in outcome.findings})
    notes = [
        {"level": "error", "message": {"text": f"Not checked: {file.reason}"}, "locations": [_location(file.path)]}
        for file in outcome.unreadable
    ]
    driver = {"name": "walkback lint", "version": __version__, "rules": [_sarif_rule(rules()[code]) for code in found]}
    results = [
        {
            "ruleId": finding.code,
            "ruleIndex": found.index(finding.code),
            "level": "warning",
            "message": {"text": _message(finding)},
            "locations": [_location(finding.path, None if finding.cell else finding)],
        }
        for finding in outcome.findings
    ]
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not notes, "toolExecutionNotifications": notes}],
        "results": results,
    }
    return json.dumps({"version": SARIF_VERSION, "runs": [run]}, indent=1, allow_nan=False)


def lint_github(outcome: LintOutcome) -> str:
    """Workflow commands, which GitHub shows beside the lines of a pull request."""
    lines = []
    for finding in outcome.findings:
        place = {} if finding.cell else {"line": str(finding.line), "col": str(finding.column)}
        lines.append(_command("warning", {"file": finding.path, **place, "title": finding.code}, _message(finding)))
    lines += [_command("error", {"file": file.path}, f"not checked: {file.reason}") for file in outcome.unreadable]
    return "\n".join(lines)


LINT_FORMATS: dict[str, Callable[[LintOutcome], str]] = {
    "text": lint_text,
    "json": lint_json,
    "sarif": lint_sarif,
    "github": lint_github,
}


def rule_facts(rule: Rule) -> dict[str, Any]:
    """What a rule says about itself, for JSON."""
    return {
        "code": rule.code,
        "summary": rule.summary,
        "why": rule.why,
        "instead": rule.instead,
        "pitfalls": list(rule.pitfalls),
    }


def _many(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def _message(finding: LintFinding) -> str:
    return f"cell {finding.cell}, line {finding.line}: {finding.message}" if finding.cell else finding.message


def _sarif_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.why},
        "help": {"text": f"Instead: {rule.instead}"},
        "defaultConfiguration": {"level": "warning"},
    }


def _location(path: str, finding: LintFinding | None = None) -> dict[str, Any]:
    """A file, and the place of a finding in it."""
    given = Path(path)
    uri = given.as_uri() if given.is_absolute() else quote(given.as_posix())
    place: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    if finding is not None:
        place["region"] = {"startLine": finding.line, "startColumn": finding.column}
    return {"physicalLocation": place}


def _command(level: str, properties: dict[str, str], message: str) -> str:
    """One workflow command; a percent sign, a line break and, in a property, a colon and a comma are escaped."""
    named = ",".join(f"{key}={_escape(_escape_data(value))}" for key, value in properties.items())
    return f"::{level} {named}::{_escape_data(message)}"


def _escape_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape(text: str) -> str:
    return text.replace(":", "%3A").replace(",", "%2C")

"""Find pitfalls of alignment measurement in your evaluation code, without running it.

example: walkback lint evaluate.py analysis/ --ignore WB005

Reads Python files and notebooks. `# walkback: ignore[WB001]` suppresses that code on its line, `# walkback: ignore`
all codes. Exit codes: 0 no findings, 1 findings, 2 no findings but a file could not be parsed, 3 usage or input error.
"""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED, EXIT_WALKED_BACK

if TYPE_CHECKING:
    from walkback.linting.engine import LintOutcome
    from walkback.linting.rule import Rule


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        default=[Path()],
        metavar="PATH",
        help="Python files, notebooks or folders (default: this folder)",
    )
    parser.add_argument("--select", metavar="CODES", help="check these codes only, such as WB001,WB002")
    parser.add_argument("--ignore", metavar="CODES", help="do not check these codes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--explain", nargs="?", const="", metavar="CODE", help="explain a code; without one, list all")


def run(args: argparse.Namespace) -> int:
    from walkback.linting.engine import lint
    from walkback.linting.rule import chosen_rules, codes, rules

    if args.explain is not None:
        wanted = [rules()[code] for code in sorted(codes(args.explain))] or list(rules().values())
        if args.json:
            print(json.dumps([_facts(rule) for rule in wanted]))
        else:
            print("\n\n".join(_explanation(rule) for rule in wanted) if args.explain else _list_of_codes(wanted))
        return EXIT_DONE
    outcome = lint(args.paths, chosen_rules(args.select, args.ignore))
    print(json.dumps(_document(outcome), allow_nan=False) if args.json else _text(outcome))
    if outcome.findings:
        return EXIT_WALKED_BACK
    return EXIT_UNFINISHED if outcome.unreadable else EXIT_DONE


def _text(outcome: LintOutcome) -> str:
    lines = [f"{finding.where()} {finding.code} {finding.message}" for finding in outcome.findings]
    lines += [f"{file.path}: not checked: {file.reason}" for file in outcome.unreadable]
    counts = [f"{_many(len(outcome.findings), 'finding')} in {_many(outcome.files, 'file')}"]
    counts += [f"{len(outcome.unreadable)} not checked"] if outcome.unreadable else []
    hint = ". `walkback lint --explain CODE` explains why and what to do instead." if outcome.findings else "."
    return "\n".join([*lines, ", ".join(counts) + hint])


def _many(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'' if count == 1 else 's'}"


def _document(outcome: LintOutcome) -> dict[str, Any]:
    from walkback.linting.rule import rules

    findings = [
        {
            "path": finding.path,
            "cell": finding.cell or None,
            "line": finding.line,
            "column": finding.column,
            "message": finding.message,
            **_facts(rules()[finding.code]),
        }
        for finding in outcome.findings
    ]
    unreadable = [{"path": file.path, "reason": file.reason} for file in outcome.unreadable]
    return {"files": outcome.files, "findings": findings, "unreadable": unreadable}


def _facts(rule: Rule) -> dict[str, Any]:
    return {
        "code": rule.code,
        "summary": rule.summary,
        "why": rule.why,
        "instead": rule.instead,
        "pitfalls": list(rule.pitfalls),
    }


def _list_of_codes(wanted: list[Rule]) -> str:
    return "\n".join(f"{rule.code}  {rule.summary}" for rule in wanted)


def _explanation(rule: Rule) -> str:
    width = min(shutil.get_terminal_size().columns, 100)
    parts = [f"{rule.code}: {rule.summary}", f"Why: {rule.why}", f"Instead: {rule.instead}"]
    if rule.pitfalls:
        parts.append(f"Pitfall: {', '.join(map(str, rule.pitfalls))} of `walkback pitfalls`")
    return "\n\n".join(textwrap.fill(part, width, subsequent_indent="  ") for part in parts)

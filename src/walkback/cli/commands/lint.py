"""Find pitfalls of alignment measurement in your evaluation code, without running it.

example: walkback lint evaluate.py analysis/ --ignore WB005

Reads Python files and notebooks. `# walkback: ignore[WB001]` suppresses that code on its line, `# walkback: ignore`
all codes. `--format sarif` is for code scanning, `--format github` for a workflow on GitHub.
Exit codes: 0 no findings, 1 findings, 2 no findings but a file could not be parsed, 3 usage or input error.
"""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED, EXIT_WALKED_BACK, InputError

if TYPE_CHECKING:
    from walkback.linting.rule import Rule

_FORMATS = ("text", "json", "sarif", "github")


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
    parser.add_argument("--format", choices=_FORMATS, default="text", help="output (default: text)")
    parser.add_argument("--json", action="store_const", dest="format", const="json", help="the same as --format json")
    parser.add_argument("--explain", nargs="?", const="", metavar="CODE", help="explain a code; without one, list all")


def run(args: argparse.Namespace) -> int:
    from walkback.linting.engine import lint
    from walkback.linting.output import LINT_FORMATS, rule_facts
    from walkback.linting.rule import chosen_rules, codes, rules

    if args.explain is not None:
        wanted = [rules()[code] for code in sorted(codes(args.explain))] or list(rules().values())
        if args.format not in ("text", "json"):
            raise InputError(f"--explain is printed as text or json; got --format {args.format}. Leave one out.")
        if args.format == "json":
            print(json.dumps([rule_facts(rule) for rule in wanted]))
        else:
            print("\n\n".join(_explanation(rule) for rule in wanted) if args.explain else _list_of_codes(wanted))
        return EXIT_DONE
    outcome = lint(args.paths, chosen_rules(args.select, args.ignore))
    if text := LINT_FORMATS[args.format](outcome):
        print(text)
    if outcome.findings:
        return EXIT_WALKED_BACK
    return EXIT_UNFINISHED if outcome.unreadable else EXIT_DONE


def _list_of_codes(wanted: list[Rule]) -> str:
    return "\n".join(f"{rule.code}  {rule.summary}" for rule in wanted)


def _explanation(rule: Rule) -> str:
    width = min(shutil.get_terminal_size().columns, 100)
    parts = [f"{rule.code}: {rule.summary}", f"Why: {rule.why}", f"Instead: {rule.instead}"]
    if rule.pitfalls:
        parts.append(f"Pitfall: {', '.join(map(str, rule.pitfalls))} of `walkback pitfalls`")
    return "\n\n".join(textwrap.fill(part, width, subsequent_indent="  ") for part in parts)

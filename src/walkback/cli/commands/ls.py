"""List a catalog (methods, archs, data, diagnostics, benches, or one of a plug-in), or the runs in a folder."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from pathlib import Path
from typing import Any

from walkback.bench import BENCHES
from walkback.bench.costs import bp_steps
from walkback.core.catalog import Catalog
from walkback.core.errors import EXIT_DONE, InputError
from walkback.core.plugins import load_registered, registered
from walkback.credit import RULES
from walkback.data.catalog import DATA_SETS
from walkback.judge.checks import CHECKS
from walkback.nets import ARCHS

CATALOGS: dict[str, Catalog] = {
    "methods": RULES,
    "archs": ARCHS,
    "data": DATA_SETS,
    "diagnostics": CHECKS,
    "benches": BENCHES,
}
PLUGINS = "walkback.catalogs"
"""Entry point group of plug-in catalogs, such as studies."""
COST = "cost_in_bp_steps"
"""Key of a method's measured cost, for each device it was timed on, alone and in a fleet."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    plugins = [point.name for point in registered(PLUGINS)]
    added = f" (from plug-ins: {', '.join(plugins)})" if plugins else ""
    parser.add_argument("what", choices=(*CATALOGS, *plugins, "runs"), help=f"catalog to list{added}, or runs")
    parser.add_argument("folder", nargs="?", type=Path, help="with runs: the folder of the runs (default: runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")


def run(args: argparse.Namespace) -> int:
    if args.folder is not None and args.what != "runs":
        raise InputError(f"A folder is for `walkback ls runs` only, not for `walkback ls {args.what}`. Leave it out.")
    rows = _runs(args.folder or Path("runs")) if args.what == "runs" else _catalog(args.what)
    if args.json:
        for row in rows:
            print(json.dumps(row))
        return EXIT_DONE
    if args.what != "runs":
        print("\n".join(line for row in rows for line in _entry(row)))
        return EXIT_DONE
    from rich.table import Table

    from walkback.cli.output import console

    table = Table(box=None)
    headings = list(dict.fromkeys(key for row in rows for key in row))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*("" if row.get(heading) is None else str(row[heading]) for heading in headings))
    console().print(table if rows else "no runs")
    return EXIT_DONE


def _entry(row: dict[str, Any]) -> list[str]:
    """The lines for one entry of a catalog: its name and summary, then its facts."""
    width = min(shutil.get_terminal_size().columns, 110)
    facts = [f"{key}: {value}" for key, value in row.items() if key not in ("name", "summary", COST)]
    if row.get(COST):
        facts.append(f"cost in bp steps: {'; '.join(_cost_text(*cost) for cost in row[COST].items())}")
    first = textwrap.wrap(row["summary"], width, initial_indent=f"{row['name']:<11} ", subsequent_indent=" " * 12)
    rest = [textwrap.wrap(fact, width, initial_indent=" " * 12, subsequent_indent=" " * 14) for fact in facts]
    return [*first, *(line for lines in rest for line in lines), ""]


def _cost_text(device: str, steps: dict[str, float]) -> str:
    return f"{', '.join(f'{value:.2f} {where}' for where, value in steps.items())} ({device})"


def _catalog_of(what: str) -> Catalog:
    found: Catalog = CATALOGS.get(what) or load_registered(PLUGINS, "catalog", what)
    return found


def _catalog(what: str) -> list[dict[str, Any]]:
    return [
        {
            # Names of studies are written with hyphens on the command line.
            "name": entry.name.replace("_", "-") if what == "studies" else entry.name,
            "summary": entry.summary,
            **{key.lower(): value for key, value in entry.facts.items()},
            **(_cost(entry.name) if what == "methods" else {}),
        }
        for entry in _catalog_of(what).entries()
    ]


def _cost(method: str) -> dict[str, Any]:
    """The measured cost; empty for a rule of another package, which has not been timed."""
    found = bp_steps(method)
    return {COST: found} if found else {}


def _runs(folder: Path) -> list[dict[str, Any]]:
    from walkback.runs.store import find_runs, open_run

    rows = []
    for path in find_runs(folder):
        try:
            record = open_run(path).record
        except InputError as error:
            rows.append({"run": path.name, "status": "damaged", "reason": str(error)})
            continue
        result = record.get("result", {})
        rows.append(
            {
                "run": record["run"],
                "method": record["method"],
                "seed": record["seed"],
                "status": record["status"],
                "epochs": record["config"].get("epochs", result.get("epochs")),
                "test_acc": result.get("test_acc"),
            }
        )
    return rows

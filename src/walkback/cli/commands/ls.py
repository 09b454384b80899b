"""List methods, archs, data, diagnostics, benches or studies, one of them in detail, or the runs in a folder.

examples: walkback ls methods
          walkback ls methods dfa
          walkback ls runs
"""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap
from pathlib import Path
from typing import Any

from walkback.bench import BENCHES
from walkback.bench.costs import bp_steps
from walkback.cli.run_names import RUNS
from walkback.core.catalog import Catalog
from walkback.core.errors import EXIT_DONE, InputError, unknown
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
    parser.add_argument(
        "what",
        nargs="?",
        metavar="WHAT",
        help=f"{', '.join(CATALOGS)}{added}, runs, or a folder of runs (default: the runs in ./runs)",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="an entry, for its details; after `runs`, a folder")
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")


def run(args: argparse.Namespace) -> int:
    known = (*CATALOGS, *(point.name for point in registered(PLUGINS)), "runs")
    if args.what in known and args.what != "runs":
        return _list_catalog(args.what, args.name, args.json)
    if args.what is not None and args.what != "runs":
        if args.name is not None or not Path(args.what).is_dir():
            raise unknown("catalog", args.what, known)
        return _list_runs(Path(args.what), args.json)
    folder = Path(args.name or RUNS)
    if args.what is None and not folder.is_dir():
        print(f"There are no runs in ./{RUNS} yet: `walkback train` and `walkback audit` make them.")
        print(f"`walkback ls WHAT` lists {', '.join(known[:-1])}, or the runs in a folder.")
        return EXIT_DONE
    return _list_runs(folder, args.json)


def _list_catalog(what: str, name: str | None, as_json: bool) -> int:
    rows = _catalog(what)
    if name is not None:
        rows = [row for row in rows if row["name"] == name]
        if not rows:
            raise unknown(what.removesuffix("s"), name, [row["name"] for row in _catalog(what)])
    if as_json:
        for row in rows:
            print(json.dumps(row))
    elif name is not None:
        print("\n".join(_entry(rows[0])))
    else:
        print("\n".join(_short_list(what, rows)))
    return EXIT_DONE


def _list_runs(folder: Path, as_json: bool) -> int:
    rows = _runs(folder)
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return EXIT_DONE
    from rich.table import Table

    from walkback.cli.output import console

    # The hash at the end of a run's name is enough to name it on the command line.
    rows = [{"id": row.pop("run").rpartition("_")[2], **row} for row in rows]
    table = Table(box=None)
    headings = list(dict.fromkeys(key for row in rows for key in row))
    for heading in headings:
        table.add_column(heading.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*("" if row.get(heading) is None else str(row[heading]) for heading in headings))
    console().print(table if rows else f"no runs in {folder}")
    return EXIT_DONE


def _short_list(what: str, rows: list[dict[str, Any]]) -> list[str]:
    """One line for each entry: its name, a method's cost, and what it is."""
    width = max((len(row["name"]) for row in rows), default=0)
    with_cost = any(row.get(COST) for row in rows)
    lines = []
    for row in rows:
        cost = f"{_alone(row):>5}  " if with_cost else ""
        room = max(20, min(shutil.get_terminal_size().columns, 110) - width - len(cost) - 2)
        lines.append(f"{row['name']:<{width}}  {cost}{_fitting(row['summary'], room)}")
    if with_cost:
        lines.insert(0, f"{'':<{width}}   cost  of a training step, in steps of backprop")
    return [*lines, "", f"`walkback ls {what} NAME` prints the details of one."]


def _fitting(summary: str, room: int) -> str:
    """The summary if it fits, else the words before its colon, else its beginning."""
    short = summary.partition(":")[0]
    is_whole = len(summary) <= room or " " not in short
    return textwrap.shorten(summary if is_whole else short, room, placeholder=" …")


def _alone(row: dict[str, Any]) -> str:
    """The cost of a method that was timed alone, on the first device it was timed on."""
    found = [steps["alone"] for steps in row.get(COST, {}).values() if "alone" in steps]
    return f"{found[0]:.2f}" if found else ""


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


def catalog_names(what: str) -> list[str]:
    """The names in a catalog as they are written on the command line; none if its plug-in is not installed."""
    if what not in CATALOGS and what not in [point.name for point in registered(PLUGINS)]:
        return []
    return [row["name"] for row in _catalog(what)]


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

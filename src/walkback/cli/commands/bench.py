"""Time walkback against a plain training loop or against backprop on this machine.

example: walkback bench diagnose rules --json

Without a name, lists the benches. What is compared is timed alternately, in rounds: times are medians with quartiles
over the rounds, and ratios are taken within each round. `walkback bench rules --package` measures the costs that
`walkback ls methods` shows for this kind of device.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walkback.bench import BENCHES
from walkback.core.errors import EXIT_DONE, InputError, unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from walkback.bench.result import BenchResult, BenchRow, BenchTarget, Spread


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"benches to run: {', '.join(BENCHES.names())}")
    parser.add_argument("--repeats", type=int, help="timed rounds (default: depends on the bench)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")
    parser.add_argument(
        "--models",
        type=int,
        nargs="+",
        default=(),
        metavar="M",
        help="fleet sizes (fleet, rules, scaling, loop, convoy)",
    )
    parser.add_argument("--archs", nargs="+", default=(), metavar="ARCH", help="architectures (fleet)")
    parser.add_argument(
        "--methods", "--method", nargs="+", default=(), metavar="METHOD", help="methods (fleet, rules, loop)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, to test that the bench runs; the times mean nothing"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per bench")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results to FILE as a JSON list")
    parser.add_argument("--package", action="store_true", help="with the bench rules: store the costs in the package")


def run(args: argparse.Namespace) -> int:
    for name in args.names:
        if name not in BENCHES.names():
            raise unknown("bench", name, BENCHES.names())
    for what, least in (("repeats", args.repeats), *(("models", models) for models in args.models)):
        if least is not None and least < 1:
            raise InputError(f"--{what} is {least}; expected at least 1.")
    if args.package:
        _check_packaging(args)
    if not args.names:
        for entry in BENCHES.entries():
            print(json.dumps({"name": entry.name, "summary": entry.summary}) if args.json else _line(entry))
        return EXIT_DONE
    from walkback.core.files import write_atomic

    documents = []
    for name in dict.fromkeys(args.names):
        result, document = _timed(name, args)
        documents.append(document)
        if args.json:
            print(json.dumps(document, allow_nan=False), flush=True)
        else:
            _show(result, document)
    if args.package:
        from walkback.bench.costs import package

        package(documents[0])
    if args.out:
        write_atomic(args.out, (json.dumps(documents, indent=1, allow_nan=False) + "\n").encode())
    return EXIT_DONE


def _check_packaging(args: argparse.Namespace) -> None:
    """Refuse --package unless the whole catalog is measured at full size."""
    if args.names != ["rules"]:
        raise InputError("--package stores the results of the bench rules. Write: walkback bench rules --package.")
    if args.quick or args.methods:
        raise InputError("--package needs every method at full size. Leave --quick and --methods out.")


def _line(entry: Any) -> str:
    return f"{entry.name:<10} {entry.summary}"


def _timed(name: str, args: argparse.Namespace) -> tuple[BenchResult, dict[str, Any]]:
    from walkback.bench.result import BenchOptions
    from walkback.runs.provenance import provenance, without_paths
    from walkback.runs.train_runs import choose_device

    # On a busy machine ratios stay valid and milliseconds do not, so the load is stored with the result.
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    about = {
        **provenance(choose_device(args.device), ["walkback", *without_paths(sys.argv[1:])]),
        "cores": os.cpu_count(),
        "load": load,
    }
    with _spinner(name) as on_task:
        selection = {name: tuple(getattr(args, name)) for name in ("models", "methods", "archs")}
        options = BenchOptions(args.repeats, args.device, args.quick, on_task=on_task, **selection)
        result: BenchResult = BENCHES.get(name)(options)
    return result, {**result.to_json(), "quick": args.quick, **about}


@contextmanager
def _spinner(name: str) -> Iterator[Callable[[str], None]]:
    """Show on stderr what is being timed; yields the function that updates it. Shows nothing without a terminal."""
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    from walkback.cli.output import console

    # Redrawn rarely: a spinner that redraws often would take time from what is timed.
    with console(stderr=True).status(name, refresh_per_second=0.5) as status:
        yield lambda what: status.update(f"{name}: {what}")


def _show(result: BenchResult, document: dict[str, Any]) -> None:
    from rich.table import Table

    from walkback.cli.output import console

    title = (
        f"bench {result.bench}: medians and quartiles of {result.repeats} interleaved rounds on {document['device']}"
    )
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("", overflow="fold", min_width=min(30, max(len(row.what) for row in result.rows)))
    second = [result.second] if result.second else []
    bars = ["target"] if any(row.bars for row in result.rows) else []
    for heading in (result.time, result.ratio, *second, *bars):
        table.add_column(heading, justify="right", min_width=len(heading))
    for row in result.rows:
        if row.reason:
            table.add_row(row.what, "not timed")
            continue
        ratios = [_cell(row.ratio, result.is_share), *([_cell(row.second)] if second else [])]
        table.add_row(row.what, _cell(row.ms), *ratios, *([_bars(row, result.is_share)] if bars else []))
    drawn = console()
    drawn.print(table)
    for note in (*(f"{row.what}: {row.reason}" for row in result.rows if row.reason), *result.notes):
        drawn.print(note, markup=False)
    if document["load"] is not None and document["load"] > document["cores"] / 2:
        busy = f"{document['load']:.1f} processes were running on {document['cores']} cores when the bench started"
        drawn.print(f"The machine was busy ({busy}): trust the ratios, not the milliseconds.", markup=False)
    drawn.print()


def _cell(spread: Spread | None, is_share: bool = False) -> str:
    if spread is None:
        return ""
    middle, low, high = (_number(value, is_share) for value in (spread.median, spread.low, spread.high))
    return middle if low == high == middle else f"{middle} ({low} to {high})"


def _number(value: float, is_share: bool) -> str:
    if is_share:
        return f"{100 * value:.2f}%"
    return f"{value:.4f}" if value < 0.1 else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def _bars(row: BenchRow, is_share: bool) -> str:
    return ", ".join(f"{_bar(bar, is_share)} {'met' if row.meets(bar) else 'MISSED'}" for bar in row.bars)


def _bar(bar: BenchTarget, is_share: bool) -> str:
    sign, value = ("<=", bar.most) if bar.least is None else (">=", bar.least)
    assert value is not None, "a target has a bound"
    return f"{sign} {value:g} ms" if bar.on == "ms" else f"{sign} {_number(value, is_share)}"

"""Train BP, FA, DFA and their frozen shells on the embedded task, in under a minute, without a download.

Prints the test accuracy of each method beside that of its shell: the same network with its blocks frozen at random.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from walkback.core.errors import EXIT_DONE

if TYPE_CHECKING:
    from rich.table import Table

    from walkback.studies.run import Result

METHODS = ("bp", "fa:site=input", "dfa:site=input", "dfa:scale=unit_error,site=input")
ARCH, DATA, EPOCHS, SEED = "resmlp:d=64", "prototypes", 12, 42


def shell_of(method: str) -> str:
    """The method's frozen shell: only the blocks differ."""
    return "bp:shell=bp" if method == "bp" else f"{method},shell=method"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("demo-runs"), help="folder for the runs")
    parser.add_argument("--quiet", action="store_true", help="print nothing but the table")
    parser.add_argument("--json", action="store_true", help="print one JSON object per run")


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from walkback.api import train
    from walkback.cli.progress import Bar

    bar = Bar(quiet=args.quiet or args.json)
    methods = [*METHODS, *map(shell_of, METHODS)]
    try:
        # Going on is always right here: the runs are the demo's own, and a second demo shows the same table.
        results = train(
            methods,
            arch=ARCH,
            data=DATA,
            seeds=SEED,
            epochs=EPOCHS,
            out=args.out,
            resume=True,
            device="cpu",
            command=["walkback", *sys.argv[1:]],
            listener=bar,
        )
    finally:
        bar.close()
    if args.json:
        for result in results:
            print(json.dumps(result.to_json()))
        return EXIT_DONE
    Console(highlight=False).print(table(results))
    print("A shell is the same network with its blocks frozen at random, trained by the same\nmethod.", end=" ")
    print("Where a method does not beat its shell, its trained depth has done nothing\nfor accuracy.")
    print(f"The runs are in {args.out}/; `walkback ls runs {args.out}` lists them.")
    return EXIT_DONE


def table(results: list[Result]) -> Table:
    from rich.table import Table

    names = [*METHODS, *map(shell_of, METHODS)]
    # Without --max-seconds every run is trained to its end, so each has an accuracy.
    accuracy = {name: float(result.test_acc or 0) for name, result in zip(names, results, strict=True)}
    view = Table(title=f"{ARCH} on {DATA}, {EPOCHS} epochs, seed {SEED}", title_justify="left")
    view.add_column("method", no_wrap=True)
    for heading in ("test acc", "its shell", "difference"):
        view.add_column(heading, justify="right")
    for method in METHODS:
        own, shell = accuracy[method], accuracy[shell_of(method)]
        view.add_row(method, f"{own:.3f}", f"{shell:.3f}", f"{100 * (own - shell):+.1f} pp")
    return view

"""Train a grid of methods and seeds as one plan of fleets.

example: walkback train --method bp fa dfa dfa:scale=unit_error,site=input dfa:shell=method
             --arch resmlp --data cifar10 --seeds 42 123 456 --epochs 100

A method is NAME or NAME:key=value,key=value. Settings that every method has: shell=none|method|bp,
site=output|input, penalty=NUMBER, penalty_reduction=sum|mean. `walkback ls methods` lists the names.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from walkback.core.config import PARTS, RunConfig
from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--method", nargs="+", default=["bp"], metavar="METHOD", help="methods to train")
    parser.add_argument("--arch", default="resmlp", help="network, such as resmlp or resmlp:d=512,depth=2")
    parser.add_argument("--data", default="prototypes", help="data set, such as cifar10 or prototypes:noise=0.3")
    parser.add_argument("--seeds", nargs="+", type=int, default=[42], metavar="SEED", help="one run for each")
    parser.add_argument("--epochs", type=int, default=RunConfig.epochs, help="passes over the training data")
    parser.add_argument(
        "--set",
        nargs="+",
        default=[],
        metavar="KEY=VALUE",
        help="other settings: batch, lr, weight_decay, augment, dtype, or arch.KEY and data.KEY",
    )
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs")
    parser.add_argument("--resume", action="store_true", help="skip finished runs and go on with unfinished ones")
    parser.add_argument("--max-seconds", type=float, help="stop at the first checkpoint after this long")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")
    parser.add_argument("--driver", choices=("auto", "single", "fleet"), default="auto", help="one by one or together")
    parser.add_argument("--data-root", type=Path, help="folder of the data sets (default: $WALKBACK_DATA or a cache)")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and stop")
    parser.add_argument("--quiet", action="store_true", help="print nothing but results")
    parser.add_argument("--json", action="store_true", help="print one JSON object per run")


def run(args: argparse.Namespace) -> int:
    if args.max_seconds is not None and not args.max_seconds > 0:
        raise InputError(f"--max-seconds is {args.max_seconds}; expected more than 0.")
    settings, parts = split_settings(args.set)
    texts = {part: with_settings(getattr(args, part), parts[part]) for part in ("arch", "data")}

    from walkback.api import grid, train

    common: dict[str, Any] = {**texts, "seeds": args.seeds, "epochs": args.epochs, **settings}
    if args.dry_run:
        return _dry_run(args, grid(args.method, **common))

    from rich.console import Console

    from walkback.cli.progress import Bar, result_table

    bar = Bar(quiet=args.quiet or args.json)
    try:
        results = train(
            args.method,
            out=args.out,
            resume=args.resume,
            device=args.device,
            driver=args.driver,
            data_root=args.data_root,
            max_seconds=args.max_seconds,
            command=["walkback", *sys.argv[1:]],
            listener=bar,
            **common,
        )
    finally:
        bar.close()
    if args.json:
        for result in results:
            print(json.dumps(result.to_json()))
    else:
        Console(highlight=False).print(result_table(results))
    unfinished = [result for result in results if result.status != "done"]
    if unfinished:
        word = "run is" if len(unfinished) == 1 else "runs are"
        print(
            f"walkback: {len(unfinished)} {word} unfinished; the same command with --resume goes on.", file=sys.stderr
        )
    return EXIT_UNFINISHED if unfinished else EXIT_DONE


def _dry_run(args: argparse.Namespace, configs: list[RunConfig]) -> int:
    from rich.console import Console

    from walkback.cli.progress import plan_table
    from walkback.studies.run import Options, make_plan, refuse_twins
    from walkback.training.recipe import resolve

    recipes = [resolve(config) for config in configs]
    refuse_twins(recipes)
    options = Options(out=args.out, device=args.device, driver=args.driver)
    groups = make_plan(recipes, [()] * len(recipes), options)
    if args.json:
        for group in groups:
            methods = [recipe.method for recipe in group.recipes]
            facts = {"driver": group.driver, "seconds": group.seconds, "memory": group.memory, "methods": methods}
            print(json.dumps(facts))
    else:
        Console(highlight=False).print(plan_table(groups))
    return EXIT_DONE


def split_settings(items: list[str]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """`lr=0.01 arch.d=512` as the run's own settings and those of its parts."""
    settings: dict[str, str] = {}
    parts: dict[str, dict[str, str]] = {part: {} for part in PARTS}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals or not key or not value:
            raise InputError(f"Cannot read --set {item}. Write --set key=value, such as lr=0.01 or arch.d=512.")
        part, dot, name = key.partition(".")
        if dot and part == "method":
            raise InputError(f"--set {item}: a method's settings go into its own text, such as dfa:scale=unit_error.")
        if dot and part not in PARTS:
            raise InputError(f"--set {item}: expected arch.KEY or data.KEY, not {part}.KEY.")
        target, name = (parts[part], name) if dot else (settings, key)
        if name in target:
            raise InputError(f"--set {key} is given twice. Give it once.")
        if name in ("method", "arch", "data", "seed", "epochs") and not dot:
            raise InputError(f"--set {item}: this has an option of its own, --{name.replace('seed', 'seeds')}.")
        target[name] = value
    return settings, parts


def with_settings(text: str, settings: dict[str, str]) -> str:
    """`resmlp` with {d: 512} as `resmlp:d=512`; a key given both ways is refused when the text is parsed."""
    extra = ",".join(f"{key}={value}" for key, value in settings.items())
    if not extra:
        return text
    return f"{text},{extra}" if ":" in text else f"{text}:{extra}"

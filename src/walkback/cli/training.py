"""Options shared by the commands that train: which runs (the grid) and how to train them."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from walkback.core.configuration import PARTS, RunConfig
from walkback.core.errors import InputError
from walkback.core.settings import Spec, parse_arch, parse_pairs
from walkback.core.tuning import TuneOptions

PRECISIONS = {"fp32": "float32", "fp64": "float64", "tf32": "tf32"}
"""`--precision` choices and the run dtype each of them sets."""


def add_methods_argument(parser: argparse.ArgumentParser, help_text: str) -> None:
    """Add `--methods`, which may also be written `--method`."""
    parser.add_argument("--methods", "--method", nargs="+", metavar="METHOD", help=help_text)


def add_grid_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the runs, except the methods."""
    parser.add_argument(
        "--arch",
        default="resmlp",
        help="network, such as resmlp:d=512,depth=2, or your own module: my_nets:ResNet14, path.py:ResNet14",
    )
    parser.add_argument("--data", default="prototypes", help="data set, such as cifar10 or prototypes:noise=0.3")
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[42], metavar="SEED", help="random seeds, one run for each"
    )
    parser.add_argument("--epochs", type=int, default=RunConfig.epochs, help="passes over the training data")
    parser.add_argument("--optimizer", help="adamw, adam or sgd with settings, such as sgd:momentum=0.9,nesterov=true")
    parser.add_argument(
        "--schedule", help="learning rate over the run: cosine, constant, step:every=30 or warmup_cosine:warmup=0.05"
    )
    parser.add_argument(
        "--precision",
        choices=tuple(PRECISIONS),
        help="arithmetic of the training steps, stored with the run; tf32 applies on a GPU only (default: fp32)",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="other settings of the run: batch, lr, weight_decay, augment, dtype, arch.KEY, data.KEY",
    )


def add_tuning_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose each method's own learning rate."""
    parser.add_argument(
        "--tune",
        metavar="lr=RATE,RATE,...",
        help="choose each method's learning rate (and each baseline's) on held-out training samples, from this grid",
    )
    parser.add_argument(
        "--tune-seeds", nargs="+", type=int, default=[], metavar="SEED", help="seeds of the tuning runs"
    )
    parser.add_argument(
        "--tune-held-out", type=float, default=0.2, metavar="SHARE", help="share of training samples held out"
    )


def tune_options(args: argparse.Namespace) -> TuneOptions | None:
    """What `--tune` and its options ask for; None without it."""
    found = TuneOptions.of(args.tune)
    if found is None and args.tune_seeds:
        raise InputError("--tune-seeds is given without --tune. Add --tune lr=1e-4,3e-4,1e-3,3e-3.")
    return found and replace(found, seeds=tuple(args.tune_seeds), held_out=args.tune_held_out)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to train; none of them changes the configuration of a run."""
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs")
    parser.add_argument("--resume", action="store_true", help="skip finished runs and continue unfinished ones")
    parser.add_argument("--max-seconds", type=float, help="stop at the first checkpoint after this time")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")
    add_memory_argument(parser)
    parser.add_argument(
        "--driver",
        choices=("auto", "single", "fleet"),
        default="auto",
        help="train runs one by one (single) or together (fleet)",
    )
    parser.add_argument(
        "--data-root", type=Path, help="folder of the data sets (default: $WALKBACK_DATA or the cache folder)"
    )
    parser.add_argument("--quiet", action="store_true", help="print results only")


def add_memory_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory", metavar="SIZE", help="memory limit for the plan, such as 2GiB")


def memory_of(text: str | None) -> int | None:
    """Convert `2GiB` or `500MB` to bytes; None stays None."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?", text.strip().lower())
    size = 0
    if found:
        number, prefix, binary = found.groups()
        size = int(float(number) * (1024 if binary else 1000) ** (" kmgt".index(prefix) if prefix else 0))
    if size < 1:
        raise InputError(f"--memory is '{text}'; expected a size such as 2GiB, 500MB or a number of bytes.")
    return size


def grid_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The grid's keyword arguments for `train`, `audit` and `core.configuration.grid`."""
    settings, parts = split_settings(args.set)
    if args.precision:
        dtype = PRECISIONS[args.precision]
        if settings.setdefault("dtype", dtype) != dtype:
            raise InputError(
                f"--precision {args.precision} is dtype={dtype}, but --set has dtype={settings['dtype']}. "
                "Give one of them."
            )
    for name in ("optimizer", "schedule"):
        text = getattr(args, name)
        if text is not None and settings.setdefault(name, text) != text:
            raise InputError(f"--{name} {text} is given, but --set has {name}={settings[name]}. Give one of them.")
    specs = {part: _with_settings(part, getattr(args, part), parts[part]) for part in ("arch", "data")}
    return {**specs, "seeds": args.seeds, "epochs": args.epochs, **settings}


def run_settings(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `train` and `audit` that say how to train."""
    if args.max_seconds is not None and not args.max_seconds > 0:
        raise InputError(f"--max-seconds is {args.max_seconds}; expected more than 0.")
    names = ("out", "resume", "device", "driver", "data_root", "max_seconds")
    return {**{name: getattr(args, name) for name in names}, "memory": memory_of(args.memory)}


def split_settings(items: list[str]) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Split `lr=0.01 arch.d=512` into settings of the run and settings of its parts (arch, data)."""
    settings: dict[str, str] = {}
    parts: dict[str, dict[str, str]] = {part: {} for part in PARTS}
    for key, value in parse_pairs(items, "--set", "--set key=value, such as lr=0.01 or arch.d=512").items():
        part, dot, name = key.partition(".")
        if dot and part == "method":
            raise InputError(f"--set {key}={value}: write a method's settings after its name: dfa:scale=unit_error.")
        if dot and part not in PARTS:
            raise InputError(f"--set {key}={value}: expected arch.KEY or data.KEY, not {part}.KEY.")
        if key in ("method", "arch", "data", "seed", "epochs"):
            raise InputError(f"--set {key}={value}: use the option --{key.replace('seed', 'seeds')} instead.")
        if dot:
            parts[part][name] = value
        else:
            settings[key] = value
    return settings, parts


def _with_settings(part: str, text: str, settings: dict[str, str]) -> Spec:
    """The thing named by `--arch` or `--data`, with the settings that `--set arch.KEY=VALUE` adds to it."""
    spec = parse_arch(text) if part == "arch" else Spec.parse(text)
    for key in settings:
        if key in spec.settings:
            raise InputError(f"'{key}' is given twice: in --{part} {text} and as --set {part}.{key}. Give it once.")
    return Spec(spec.name, {**spec.settings, **settings})

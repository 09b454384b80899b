"""The options of commands that train: which grid, and how."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from walkback.core.configuration import PARTS, RunConfig
from walkback.core.errors import InputError

PRECISIONS = {"fp32": "float32", "fp64": "float64", "tf32": "tf32"}
"""What `--precision` sets the run's dtype to."""


def add_grid_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs are asked for, but for the methods."""
    parser.add_argument("--arch", default="resmlp", help="network, such as resmlp or resmlp:d=512,depth=2")
    parser.add_argument("--data", default="prototypes", help="data set, such as cifar10 or prototypes:noise=0.3")
    parser.add_argument("--seeds", nargs="+", type=int, default=[42], metavar="SEED", help="one run for each")
    parser.add_argument("--epochs", type=int, default=RunConfig.epochs, help="passes over the training data")
    parser.add_argument(
        "--precision",
        choices=tuple(PRECISIONS),
        help="arithmetic of the training, recorded (default: fp32, without TF32; tf32 concerns a GPU's training steps)",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="KEY=VALUE",
        help="other settings: batch, lr, weight_decay, augment, dtype, or arch.KEY and data.KEY",
    )


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """How they are trained; nothing here changes what a run computes."""
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs")
    parser.add_argument("--resume", action="store_true", help="skip finished runs and go on with unfinished ones")
    parser.add_argument("--max-seconds", type=float, help="stop at the first checkpoint after this long")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where to compute")
    add_memory_argument(parser)
    parser.add_argument("--driver", choices=("auto", "single", "fleet"), default="auto", help="one by one or together")
    parser.add_argument("--data-root", type=Path, help="folder of the data sets (default: $WALKBACK_DATA or a cache)")
    parser.add_argument("--quiet", action="store_true", help="print nothing but results")


def add_memory_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory", metavar="SIZE", help="plan for no more memory than this, such as 2GiB")


def memory_of(text: str | None) -> int | None:
    """`2GiB` or `500MB` in bytes; None where nothing was said."""
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
    """The grid's settings, as `wb.grid` and `wb.train` take them."""
    settings, parts = split_settings(args.set)
    if args.precision:
        dtype = PRECISIONS[args.precision]
        if settings.setdefault("dtype", dtype) != dtype:
            raise InputError(
                f"--precision {args.precision} is dtype={dtype}, but --set says dtype={settings['dtype']}. "
                "Give one of them."
            )
    texts = {part: with_settings(getattr(args, part), parts[part]) for part in ("arch", "data")}
    return {**texts, "seeds": args.seeds, "epochs": args.epochs, **settings}


def run_settings(args: argparse.Namespace) -> dict[str, Any]:
    """How to train, as `wb.train` takes it."""
    if args.max_seconds is not None and not args.max_seconds > 0:
        raise InputError(f"--max-seconds is {args.max_seconds}; expected more than 0.")
    names = ("out", "resume", "device", "driver", "data_root", "max_seconds")
    return {**{name: getattr(args, name) for name in names}, "memory": memory_of(args.memory)}


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

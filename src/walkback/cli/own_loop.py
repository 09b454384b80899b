"""`walkback audit --train`: an audit of the user's own training function."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from walkback.cli.judge_options import parse_thresholds
from walkback.core.configuration import RunConfig
from walkback.core.errors import InputError, unknown
from walkback.core.settings import parse_pairs

if TYPE_CHECKING:
    from walkback.auditing.audit import Audit
    from walkback.runs.train_runs import ProgressListener

OPTIONS = "AUDIT"
"""The name of a dict in the training function's module: keyword arguments of `wb.audit` for it."""
_BUILT_IN = {
    "arch": "resmlp", "data": "prototypes", "epochs": RunConfig.epochs, "precision": None, "set": [], "driver": "auto",
    "memory": None, "data_root": None,
}  # fmt: skip
"""Options that a training function does not get, and their defaults."""
_GIVEN_HERE = (
    "methods",
    "seeds",
    "out",
    "resume",
    "device",
    "max_seconds",
    "oracle",
    "force",
    "executor",
    "jobs",
    "slurm",
)


def add_own_loop_arguments(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("your own training function")
    own.add_argument("--train", metavar="MODULE:FUNCTION", help="function of a walkback.Job, returns walkback.Trained")
    own.add_argument("--build", metavar="MODULE:FUNCTION", help="builds the untrained model")
    own.add_argument("--eval-batches", metavar="MODULE:FUNCTION", help="returns the (x, y) batches to measure on")
    own.add_argument(
        "--credit", metavar="MODULE:FUNCTION", help="the method's credit: of a frozen pass and the feedback"
    )
    own.add_argument(
        "--describe", nargs="+", default=[], metavar="KEY=TEXT", help="what only you know: data, recipe, arch"
    )
    own.add_argument(
        "--force", action="store_true", help="with --resume, go on although source files changed; the cards name them"
    )
    own.add_argument("--executor", choices=("local", "ray", "slurm"), help="train in processes, on Ray or on Slurm")
    own.add_argument("--jobs", type=int, metavar="N", help="jobs at once, with --executor")
    own.add_argument(
        "--slurm", nargs="+", default=[], metavar="KEY=VALUE", help="parameters of submitit, such as timeout_min=600"
    )


def refuse_without_train(args: argparse.Namespace) -> None:
    """Refuse options of a training function where none is named."""
    for name in ("build", "eval_batches", "credit", "describe", "force", "executor", "jobs", "slurm"):
        if getattr(args, name):
            raise InputError(f"--{name.replace('_', '-')} goes with --train MODULE:FUNCTION.")


def audit_of_train(args: argparse.Namespace, listener: ProgressListener) -> Audit:
    """Run the audit that the command line describes."""
    import walkback
    from walkback.cli.commands.sweep import slurm_settings
    from walkback.core.load_named import load_named

    if args.methods is None:
        raise InputError(
            "--methods is missing; name the methods your training function knows, such as --methods mine bp."
        )
    for name, default in _BUILT_IN.items():
        if getattr(args, name) != default:
            raise InputError(f"--{name.replace('_', '-')} is for walkback's own methods; your function decides it.")
    train = load_named(args.train, "--train")
    options = _options_in(sys.modules[train.__module__])
    for name in ("build", "eval_batches", "credit"):
        if getattr(args, name) is not None:
            options[name] = load_named(getattr(args, name), f"--{name.replace('_', '-')}")
    if args.describe:
        options["describe"] = {
            **options.get("describe", {}),
            **parse_pairs(args.describe, "--describe", "--describe key=text, such as data=CIFAR-10"),
        }
    judging = {"thresholds": parse_thresholds(args.threshold), "protocol": args.protocol, "null": args.null}
    given = {
        "methods": args.methods,
        "seeds": args.seeds,
        "oracle": None if args.oracle is None else args.oracle != "none",
        "out": args.out,
        "resume": args.resume,
        "device": args.device,
        "max_seconds": args.max_seconds,
        "force": args.force,
        "executor": args.executor,
        "jobs": args.jobs,
        "slurm": slurm_settings(args.slurm) or None,
        "claims": args.claims,
        **judging,
    }
    audited: Callable[..., Audit] = walkback.audit
    return audited(train, **{**options, **given}, listener=listener)


def _options_in(module: Any) -> dict[str, Any]:
    """The keyword arguments that the module of the training function gives."""
    found = getattr(module, OPTIONS, {})
    if not isinstance(found, Mapping):
        raise InputError(f"{OPTIONS} in {module.__name__} is a {type(found).__name__}; expected a dict.")

    import walkback

    known = [name for name in inspect.signature(walkback.audit).parameters if name not in _GIVEN_HERE]
    for name in found:
        if name not in known:
            raise unknown(f"key of {OPTIONS} in {module.__name__}", name, known)
    return dict(found)

"""Check this machine: versions, device, precision, a training step, data, disk."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from walkback.core.errors import EXIT_DONE, EXIT_UNFINISHED, WalkbackError
from walkback.core.machine import cores

_Finding = tuple[bool, str]
"""Whether the check passed, and what was found."""

FLOAT32_ERROR = 1e-5
"""Bound on the relative error: float32 is far below it, TF32 (about 3e-4) far above."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data-root", type=Path, help="folder of the data sets (default: $WALKBACK_DATA or the cache folder)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per check")


def run(args: argparse.Namespace) -> int:
    checks: dict[str, Callable[[], _Finding]] = {
        "walkback": _walkback,
        "python": _python,
        "torch": _torch,
        "device": _device,
        "precision": _precision,
        "step": _step,
        "data": lambda: _data(args.data_root),
        "disk": _disk,
    }
    all_passed = True
    for name, check in checks.items():
        try:
            passed, finding = check()
        except (ImportError, WalkbackError, RuntimeError) as error:
            passed, finding = False, str(error)
        all_passed &= passed
        if args.json:
            print(json.dumps({"check": name, "ok": passed, "seen": finding}))
        else:
            print(f"{'passes' if passed else 'fails '} {name:<9} {finding}")
    return EXIT_DONE if all_passed else EXIT_UNFINISHED


def _walkback() -> _Finding:
    from walkback.core.version import __version__

    return True, __version__


def _python() -> _Finding:
    return sys.version_info >= (3, 11), f"{platform.python_version()} (3.11 or newer is needed)"


def _torch() -> _Finding:
    version = importlib.metadata.version("torch")
    enough = tuple(int(part) for part in version.split("+")[0].split(".")[:2]) >= (2, 6)
    return enough, f"{version} (2.6 or newer is needed)"


def _device() -> _Finding:
    import torch

    from walkback.runs.provenance import describe_device
    from walkback.runs.train_runs import choose_device

    return True, f"{describe_device(choose_device('auto'))}; {cores()} cores, torch uses {torch.get_num_threads()}"


def _precision() -> _Finding:
    """The error of float32 against float64 on the device, in a product and a convolution; either would reveal TF32."""
    import torch
    from torch.nn.functional import conv2d

    from walkback.core.random_streams import generator
    from walkback.runs.train_runs import choose_device
    from walkback.training.driver import set_exact_arithmetic

    device, draws = choose_device("auto"), generator(0, "doctor")
    set_exact_arithmetic(device)

    def error(multiply: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> float:
        factors = [torch.randn(shape, generator=draws).to(device) for shape in shapes]
        true = multiply(*(factor.double() for factor in factors))
        found: float = ((multiply(*factors) - true).norm() / true.norm()).item()
        return found

    product, convolution = error(torch.matmul, (256, 256), (256, 256)), error(conv2d, (8, 64, 16, 16), (64, 64, 3, 3))
    errors = f"relative error of float32 is {product:.0e} in products and {convolution:.0e} in convolutions"
    return max(product, convolution) < FLOAT32_ERROR, f"{errors}; TF32 is used only with --precision tf32"


def _step() -> _Finding:
    """Train one step of a tiny fleet on the device: vmap, fused AdamW and, on a GPU, graph capture."""
    from walkback.core.configuration import grid
    from walkback.runs.train_runs import choose_device
    from walkback.training.fleet import Fleet
    from walkback.training.resolved_run import resolve

    configs = grid(["bp", "bp:shell=bp"], arch="resmlp:d=8,depth=1", data="prototypes:train=64,test=64", batch=64)
    resolved_runs = [resolve(config) for config in configs]
    fleet = Fleet(resolved_runs, resolved_runs[0].source.load(None), choose_device("auto"))
    losses = [log["loss"] for log in fleet.train_epoch(lambda _: None)]
    return all(0 < loss < 10 for loss in losses), f"a fleet of two trains (losses {losses[0]:.2f}, {losses[1]:.2f})"


def _data(root: Path | None) -> _Finding:
    from walkback.data import cifar
    from walkback.data.cifar_spec import CIFAR_SPECS
    from walkback.data.where import data_root

    folder = data_root(root)
    states = []
    for name, spec in CIFAR_SPECS.items():
        try:
            cifar.locate_cifar(spec, folder)
            states.append(f"{name} present")
        except cifar.NotFoundError:
            states.append(f"{name} absent")
    return True, f"{', '.join(states)} in {folder}; prototypes is embedded in the package"


def _disk() -> _Finding:
    free = shutil.disk_usage(Path.cwd()).free
    writable = os.access(Path.cwd(), os.W_OK)
    return writable and free > 2**30, f"{free / 2**30:.0f} GiB free here{'' if writable else ', but not writable'}"

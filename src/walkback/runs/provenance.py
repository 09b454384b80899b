"""Where a run comes from: versions, git commit, device, command."""

from __future__ import annotations

import platform
import shlex
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy
import torch

from walkback.core.version import __version__

PATHS = ("--out", "--data-root")
"""Options of commands whose values are paths."""


def provenance(device: torch.device, command: Sequence[str]) -> dict[str, Any]:
    return {
        "versions": {
            "walkback": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
        },
        "git_commit": git_commit(),
        "device": describe_device(device),
        "command": shlex.join(command),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def without_paths(words: Sequence[str]) -> list[str]:
    """A command without the values of its path options, which are specific to one machine."""
    kept, skips = [], False
    for word in words:
        if not skips and word.partition("=")[0] not in PATHS:
            kept.append(word)
        skips = not skips and word in PATHS
    return kept


def describe_device(device: torch.device) -> str:
    if device.type == "cuda":
        return f"cuda: {torch.cuda.get_device_name(device)}"
    return f"cpu: {platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def git_commit() -> str | None:
    """The git commit of the checkout this package runs from, marked if files differ; None outside a checkout."""
    folder = Path(__file__).resolve().parent
    try:
        inside = _git(folder, "ls-files", "--error-unmatch", Path(__file__).name)
        commit = _git(folder, "rev-parse", "HEAD") if inside else None
        if commit is None:
            return None
        return commit + ("+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.TimeoutExpired):
        return None


def _git(folder: Path, *words: str) -> str | None:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10, check=False)
    return done.stdout.strip() if done.returncode == 0 else None

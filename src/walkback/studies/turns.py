"""Turns on a GPU: one process computes while others trace and compile what they will train next.

Fleets that compute on one GPU at the same time take longer than one after the other; tracing and compiling need the
processor alone.
"""

from __future__ import annotations

import fcntl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch


@contextmanager
def turn(device: torch.device, folder: Path | None = None) -> Iterator[float]:
    """Wait until no other process has its turn on this GPU; the seconds waited. The CPU is free for all."""
    if device.type != "cuda":
        yield 0.0
        return
    path = (folder or Path(tempfile.gettempdir())) / f"walkback-{_name(device)}.lock"
    start = time.monotonic()
    with path.open("a") as file:
        # The system lets go of it when the process ends, however it ends.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield time.monotonic() - start


def _name(device: torch.device) -> str:
    return str(torch.cuda.get_device_properties(device).uuid)

"""Turns on a GPU: one process computes while others trace and compile what they will train next.

Fleets that compute on one GPU at the same time take longer than one after the other, under CUDA's MPS about as long:
there five small ResMLP fleets did 1.9 times the steps on an H200, but beside EP and convolutions each took eight times
as long as alone. Tracing and compiling need the processor alone. Whoever is ready first goes first: with a lock alone
one process could be passed by for an hour.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

PAUSE = 0.05
"""Seconds between two looks at who comes first."""


@contextmanager
def gpu_turn(device: torch.device, folder: Path | None = None) -> Iterator[float]:
    """Wait until it is this process's turn on this GPU; the seconds waited. The CPU is free for all."""
    if device.type != "cuda":
        yield 0.0
        return
    line = (folder or Path(tempfile.gettempdir())) / f"walkback-{os.getuid()}-{_name(device)}"
    line.mkdir(exist_ok=True)
    start = time.monotonic()
    ticket = line / f"{time.time_ns():020d}-{os.getpid()}"
    ticket.touch()
    try:
        with (line / "turn").open("a") as file:
            while True:
                # The system lets go of it when the process ends, however it ends.
                fcntl.flock(file, fcntl.LOCK_EX)
                if _is_first(ticket):
                    break
                fcntl.flock(file, fcntl.LOCK_UN)
                time.sleep(PAUSE)
            yield time.monotonic() - start
    finally:
        ticket.unlink(missing_ok=True)


def _is_first(ticket: Path) -> bool:
    """Whether no living process came before; tickets of dead ones are removed."""
    for other in sorted(ticket.parent.glob("*-*")):
        if other.name >= ticket.name:
            break
        if _lives(int(other.name.rpartition("-")[2])):
            return False
        other.unlink(missing_ok=True)
    return True


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # Its number has gone to someone else's: at worst that one is waited for.
        pass
    return True


def _name(device: torch.device) -> str:
    return str(torch.cuda.get_device_properties(device).uuid)

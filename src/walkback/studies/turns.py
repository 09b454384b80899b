"""Turns on a GPU: one process computes while others trace and compile what they will train next.

Fleets that compute on one GPU at the same time take longer than one after the other; tracing and compiling need the
processor alone. Where CUDA's MPS serves the GPU, kernels of several processes do run at once: small fleets, which leave
most of the chip idle, then take turns in several places. Whoever is ready first goes first: with locks alone one
process could be passed by for an hour.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

PAUSE = 0.05
"""Seconds between two looks at who comes first."""
SHARED_PLACES = 5
"""Fleets at once under MPS. On an H200, ResMLP fleets of 6 models did 1.6 times the steps with 3, 1.9 with 5."""


@contextmanager
def turn(device: torch.device, folder: Path | None = None, places: int | None = None) -> Iterator[float]:
    """Wait until it is this process's turn on this GPU; the seconds waited. The CPU is free for all."""
    if device.type != "cuda":
        yield 0.0
        return
    places = places or places_on(device)
    line = (folder or Path(tempfile.gettempdir())) / f"walkback-{os.getuid()}-{_name(device)}"
    line.mkdir(exist_ok=True)
    start = time.monotonic()
    ticket = line / f"{time.time_ns():020d}-{os.getpid()}"
    ticket.touch()
    try:
        with ExitStack() as files:
            locks = [files.enter_context((line / f"place{number}").open("a")) for number in range(places)]
            while _before(ticket) >= places or not any(_taken(lock.fileno()) for lock in locks):
                time.sleep(PAUSE)
            yield time.monotonic() - start
    finally:
        ticket.unlink(missing_ok=True)


def places_on(device: torch.device) -> int:
    """How many fleets compute on this device at once."""
    return SHARED_PLACES if device.type == "cuda" and _is_served() else 1


def _is_served() -> bool:
    """Whether CUDA's MPS, which lets processes share a GPU, takes clients here."""
    return (Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")) / "control").exists()


def _taken(lock: int) -> bool:
    """Take a place if it is free. The system lets go of it when the process ends, however it ends."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _before(ticket: Path) -> int:
    """How many living processes came before; tickets of dead ones are removed."""
    count = 0
    for other in sorted(ticket.parent.glob("*-*")):
        if other.name >= ticket.name:
            break
        if _lives(int(other.name.rpartition("-")[2])):
            count += 1
        else:
            other.unlink(missing_ok=True)
    return count


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

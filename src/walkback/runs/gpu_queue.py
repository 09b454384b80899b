"""A queue for each GPU: one process trains while others trace and compile what they will train next.

Processes that train on one GPU at the same time take longer than one after the other, and about as long under CUDA's
MPS: there five small ResMLP fleets did 1.9 times the steps on an H200, but together with EP and convolutions each took
eight times as long as alone. Tracing and compiling need the CPU only. The queue is first come, first served: with a
lock alone one process could wait for an hour.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from walkback.core.locks import POLL, acquire_lock

PAUSE = POLL
"""Seconds between two checks of who is first in the queue."""


@contextmanager
def gpu_turn(device: torch.device, folder: Path | None = None) -> Iterator[float]:
    """Wait until this process is first in the GPU's queue; yields the seconds waited. On the CPU there is no queue."""
    if device.type != "cuda":
        yield 0.0
        return
    line = (folder or Path(tempfile.gettempdir())) / f"walkback-{os.getuid()}-{_name(device)}"
    line.mkdir(exist_ok=True)
    start = time.monotonic()
    ticket = line / f"{time.time_ns():020d}-{os.getpid()}"
    ticket.touch()
    try:
        while True:
            turn = acquire_lock(line / "turn")
            if _is_first(ticket):
                break
            turn.release()
            time.sleep(PAUSE)
        try:
            yield time.monotonic() - start
        finally:
            turn.release()
    finally:
        ticket.unlink(missing_ok=True)


def _is_first(ticket: Path) -> bool:
    """Whether no living process has an earlier ticket; tickets of dead processes are removed."""
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
    except PermissionError:  # The process id now belongs to another user's process: at worst we wait for that one.
        pass
    return True


def _name(device: torch.device) -> str:
    return str(torch.cuda.get_device_properties(device).uuid)

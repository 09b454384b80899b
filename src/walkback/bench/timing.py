"""Time several things in turn, A B C, A B C, ..., so that whatever slows the machine slows all of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping

import torch


def interleaved(
    tasks: Mapping[str, Callable[[], object]],
    repeats: int,
    device: torch.device,
    hear: Callable[[str], None] = lambda what: None,
) -> dict[str, list[float]]:
    """Seconds of each task in each round. One more round comes first and is not counted: caches, tracing, capture."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    was_collecting = gc.isenabled()
    try:
        for _ in range(repeats + 1):
            # Between rounds only: a collection costs more than some tasks.
            gc.collect()
            gc.disable()
            for name, task in tasks.items():
                hear(name)
                seconds[name].append(_seconds(task, device))
    finally:
        (gc.enable if was_collecting else gc.disable)()
    return {name: values[1:] for name, values in seconds.items()}


def _seconds(task: Callable[[], object], device: torch.device) -> float:
    _finish(device)
    start = time.perf_counter()
    task()
    _finish(device)
    return time.perf_counter() - start


def _finish(device: torch.device) -> None:
    """A GPU is still at work when the host goes on."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)

"""Time several things in turn, A B C, A B C, ..., so that whatever slows the machine slows all of them."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping

import torch

from walkback.training.gpu.cuda_graph import synchronize


def interleaved(
    tasks: Mapping[str, Callable[[], object]],
    repeats: int,
    device: torch.device,
    hear: Callable[[str], None] = lambda what: None,
    at_least: float = 0.0,
) -> dict[str, list[float]]:
    """Seconds of each task in each round. One more round comes first and is not counted: caches, tracing, capture.

    A task that is over in less than `at_least` seconds is done several times in a row, and the mean is what counts.
    """
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    was_collecting = gc.isenabled()
    times: dict[str, int] = {}
    try:
        for name, task in tasks.items():
            hear(name)
            _seconds(task, 1, device)
            times[name] = math.ceil(at_least / _seconds(task, 1, device)) if at_least else 1
        for _ in range(repeats):
            # Between rounds only: a collection costs more than some tasks.
            gc.collect()
            gc.disable()
            for name, task in tasks.items():
                hear(name)
                seconds[name].append(_seconds(task, times[name], device))
    finally:
        (gc.enable if was_collecting else gc.disable)()
    return seconds


def _seconds(task: Callable[[], object], times: int, device: torch.device) -> float:
    synchronize(device)
    start = time.perf_counter()
    for _ in range(times):
        task()
    synchronize(device)
    return (time.perf_counter() - start) / times


def round_seconds(device: torch.device, quick: bool) -> float:
    """How long a task is timed at once: on a GPU long enough that launching it is no part of the time."""
    return 0.3 if device.type == "cuda" and not quick else 0.0

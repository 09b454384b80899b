"""Time several tasks alternately, A B C, A B C, ..., so that whatever slows the machine slows all of them."""

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
    on_task: Callable[[str], None] = lambda name: None,
    at_least: float = 0.0,
) -> dict[str, list[float]]:
    """Seconds of each task in each of `repeats` rounds, after a warm-up round for caches, tracing and graph capture.

    A task that takes less than `at_least` seconds is repeated within a round, and its mean time is recorded.
    `on_task` is called with the name of each task before it is timed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    was_collecting = gc.isenabled()
    repetitions: dict[str, int] = {}
    try:
        for name, task in tasks.items():
            on_task(name)
            _mean_seconds(task, 1, device)
            repetitions[name] = math.ceil(at_least / _mean_seconds(task, 1, device)) if at_least else 1
        for _ in range(repeats):
            # Collect garbage between rounds only: a collection costs more than some tasks.
            gc.collect()
            gc.disable()
            for name, task in tasks.items():
                on_task(name)
                seconds[name].append(_mean_seconds(task, repetitions[name], device))
    finally:
        (gc.enable if was_collecting else gc.disable)()
    return seconds


def _mean_seconds(task: Callable[[], object], repetitions: int, device: torch.device) -> float:
    synchronize(device)
    start = time.perf_counter()
    for _ in range(repetitions):
        task()
    synchronize(device)
    return (time.perf_counter() - start) / repetitions


def round_seconds(device: torch.device, quick: bool) -> float:
    """The least seconds for which a task is timed in a round: on a GPU enough that launching it is negligible."""
    return 0.3 if device.type == "cuda" and not quick else 0.0

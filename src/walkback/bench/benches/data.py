"""Loading images: walkback's resident feed against a DataLoader that crops, flips and normalises them one by one.

Ratio: how many times as fast as the DataLoader without workers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from walkback.bench.loader import loader_batches, loader_epoch, synthetic_images
from walkback.bench.result import BenchOptions, BenchResult, BenchRow
from walkback.bench.setup import BENCH_BATCH
from walkback.bench.timing import interleaved, round_seconds
from walkback.data.feed import Feed
from walkback.runs.train_runs import choose_device

_STEPS = 40
DATA_BASE, LOADER_WORKERS, FEED = "DataLoader, no workers", "DataLoader, 2 workers", "resident feed"


def run(options: BenchOptions) -> BenchResult:
    device = choose_device(options.device)
    data = synthetic_images(_STEPS, options.quick).data
    feed = Feed(data, BENCH_BATCH, "crop_flip", torch.float32, device)
    tasks = {
        DATA_BASE: loader_epoch(loader_batches(data, 0, device), lambda batch: None, device),
        LOADER_WORKERS: loader_epoch(loader_batches(data, 2, device), lambda batch: None, device),
        FEED: _feed_epoch(feed, device),
    }
    repeats = options.rounds(7)
    seconds = interleaved(tasks, repeats, device, options.on_task, round_seconds(device, options.quick))
    images = feed.steps * BENCH_BATCH
    rows = []
    for name, values in seconds.items():
        ratios = [base / value for base, value in zip(seconds[DATA_BASE], values, strict=True)]
        rows.append(BenchRow.of(name, [1000 * value / images for value in values], ratios))
    rates = {row.what: 1e6 / row.ms.median for row in rows if row.ms}
    notes = [f"{name}: {rate:,.0f} images/s" for name, rate in rates.items()]
    if device.type == "cpu":
        notes.append("The feed has one thread, as in a worker of `walkback sweep`, and so has the DataLoader's Python.")
    settings = {
        "shape": list(data.train_x.shape[1:]),
        "images": images,
        "batch": BENCH_BATCH,
        "images_per_second": rates,
    }
    return BenchResult("data", "ms per 1,000 images", "x as fast", repeats, tuple(rows), settings, tuple(notes))


def _feed_epoch(feed: Feed, device: torch.device) -> Callable[[], None]:
    """A function that passes once over the data in a new random order, as a driver does."""
    epoch = 0

    def one_pass() -> None:
        nonlocal epoch
        with one_thread():
            order = {name: values.to(device) for name, values in feed.order(0, epoch).items()}
            for step in range(feed.steps):
                feed.take({name: values[step] for name, values in order.items()})
        epoch += 1

    return one_pass


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread in torch within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

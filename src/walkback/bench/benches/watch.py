"""The cost of watching every epoch (8 groups of 128), as a share of a plain training loop without a watch.

Bar: 3%
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from walkback.bench.eager_loop import plain_loop, plain_net
from walkback.bench.result import BenchOptions, BenchResult, BenchRow, BenchTarget
from walkback.bench.setup import BENCH_BATCH, scale
from walkback.bench.timing import interleaved
from walkback.runs.train_runs import choose_device
from walkback.watching.watch import Watch

_EPOCH = 50_000 // BENCH_BATCH
"""Steps of one epoch of CIFAR-10; some of them are timed and scaled up."""
_LOOP, _WATCHING = "plain-loop epoch", "watching it"


def run(options: BenchOptions) -> BenchResult:
    device = choose_device(options.device)
    size = scale(options.quick, steps=_EPOCH // 10)
    data = size.load()
    network = size.resolved("bp").net
    loop = plain_loop(data, network, BENCH_BATCH, device)
    # The cost of a measurement does not depend on the weights, so an untrained network of the same size is watched.
    net = plain_net(network).to(device)
    batches = [(data.test_x.to(device), data.test_y.to(device))]
    repeats = options.rounds(9)
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(net, batches, every=None, out=Path(folder) / "watch")
        seconds = interleaved({_LOOP: loop, _WATCHING: watch.measure}, repeats, device, options.on_task)
        watch.interrupt()
    epochs = [value * _EPOCH / size.steps for value in seconds[_LOOP]]
    shares = [value / epoch for value, epoch in zip(seconds[_WATCHING], epochs, strict=True)]
    targets = [] if options.quick else [BenchTarget("ratio", most=0.03)]
    rows = (BenchRow.of(_LOOP, epochs, [1.0]), BenchRow.of(_WATCHING, seconds[_WATCHING], shares, targets))
    note = f"An epoch is {_EPOCH} steps of {BENCH_BATCH}; {size.steps} of them are timed in each round and scaled up."
    settings = {**size.facts(), "samples": size.test, "steps_timed": size.steps}
    return BenchResult("watch", "ms", "of an epoch", repeats, rows, settings, (note,), is_share=True)

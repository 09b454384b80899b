"""The cost of watching every epoch (8 groups of 128), as a share of a plain training loop without a watch.

Bar: 3%
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from walkback.bench.eager_loop import plain_loop, plain_net
from walkback.bench.result import Bar, Options, Result, Row
from walkback.bench.setup import BATCH, scale
from walkback.bench.timing import interleaved
from walkback.runs.train_runs import choose_device
from walkback.watching.watch import Watch

EPOCH = 50_000 // BATCH
"""Steps of one epoch of CIFAR-10; a part of them is timed."""
LOOP, LOOK = "plain-loop epoch", "watching it"


def run(options: Options) -> Result:
    device = choose_device(options.device)
    size = scale(options.quick, steps=EPOCH // 10)
    data = size.load()
    network = size.recipe("bp").net
    loop = plain_loop(data, network, BATCH, device)
    # What a look costs does not depend on the weights: a network like the loop's own stands for it.
    net = plain_net(network).to(device)
    batches = [(data.test_x.to(device), data.test_y.to(device))]
    repeats = options.rounds(9)
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch(net, batches, every=None, out=Path(folder) / "watch")
        seconds = interleaved({LOOP: loop, LOOK: watch.look}, repeats, device, options.hear)
        watch.interrupt()
    epochs = [value * EPOCH / size.steps for value in seconds[LOOP]]
    shares = [value / epoch for value, epoch in zip(seconds[LOOK], epochs, strict=True)]
    bars = [] if options.quick else [Bar("ratio", most=0.03)]
    rows = (Row.of(LOOP, epochs, [1.0]), Row.of(LOOK, seconds[LOOK], shares, bars))
    note = f"An epoch is {EPOCH} steps of {BATCH}; {size.steps} of them are timed in each round and scaled up."
    settings = {**size.facts(), "samples": size.test, "steps_timed": size.steps}
    return Result("watch", "ms", "of an epoch", repeats, rows, settings, (note,), is_share=True)

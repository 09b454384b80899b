"""The cost of a diagnostic pass (8 groups of 128) as a share of one plain-loop training epoch of the same model.

Bars: 2% for the pass, 5% with the float64 replay; reference check and parameter gradients at most double the pass with
credit
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from walkback.bench.eager_loop import plain_loop
from walkback.bench.result import BenchOptions, BenchResult, BenchRow, BenchTarget
from walkback.bench.setup import BENCH_BATCH, scale
from walkback.bench.timing import interleaved
from walkback.measure.inputs import regroup
from walkback.measure.options import MeasureOptions
from walkback.measure.snapshot import measure
from walkback.measure.subject import LocalLoss, NetworkSubject
from walkback.runs.train_runs import choose_device
from walkback.training.driver import set_exact_arithmetic

_EPOCH = 50_000 // BENCH_BATCH
"""Steps of one epoch of CIFAR-10; some of them are timed and scaled up."""
EAGER_LOOP, PASS, REPLAY, _CREDIT = (
    "plain-loop epoch",
    "pass",
    "pass + float64 replay",
    "pass + replay + credit and nulls (dfa)",
)
_CHECK, _UPDATES, _BOTH = (f"{_CREDIT} + {what}" for what in ("reference check", "update_cos", "both"))
_LESIONS = "all of that + lesions"
MAX_FACTOR = 2.0
"""How many times the pass with credit the same with reference check and parameter gradients may take."""


def run(options: BenchOptions) -> BenchResult:
    device = choose_device(options.device)
    set_exact_arithmetic(device)
    size = scale(options.quick, steps=_EPOCH // 10)
    data = size.load()
    resolved = size.resolved("dfa")
    params = {name: leaf.to(device) for name, leaf in resolved.params().items()}
    state = {name: leaf.to(device) for name, leaf in resolved.state().items()}
    batches = [(data.test_x.to(device), data.test_y.to(device))]

    def diagnostic_pass(
        subject: NetworkSubject, replay: bool = True, check: bool = False, updates: bool = False, lesions: bool = False
    ) -> Callable[[], object]:
        what = MeasureOptions(site=site, replay=replay, check=check, updates=updates, lesions=lesions)
        return lambda: measure(subject, regroup(batches), what)

    site = resolved.credit_site
    without_rule = NetworkSubject(resolved.net, params)
    with_rule = NetworkSubject(resolved.net, params, resolved.rule, state, LocalLoss(site))
    tasks = {
        EAGER_LOOP: plain_loop(data, resolved.net, BENCH_BATCH, device),
        PASS: diagnostic_pass(without_rule, replay=False),
        REPLAY: diagnostic_pass(without_rule),
        _CREDIT: diagnostic_pass(with_rule),
        _CHECK: diagnostic_pass(with_rule, check=True),
        _UPDATES: diagnostic_pass(with_rule, updates=True),
        _BOTH: diagnostic_pass(with_rule, check=True, updates=True),
        _LESIONS: diagnostic_pass(with_rule, check=True, updates=True, lesions=True),
    }
    repeats = options.rounds(9)
    seconds = interleaved(tasks, repeats, device, options.on_task)
    epochs = [value * _EPOCH / size.steps for value in seconds.pop(EAGER_LOOP)]
    targets = (
        {} if options.quick else {PASS: [BenchTarget("ratio", most=0.02)], REPLAY: [BenchTarget("ratio", most=0.05)]}
    )
    rows = [BenchRow.of(EAGER_LOOP, epochs, [1.0])]
    for name, values in seconds.items():
        shares = [value / epoch for value, epoch in zip(values, epochs, strict=True)]
        rows.append(BenchRow.of(name, values, shares, targets.get(name, ())))
    note = f"An epoch is {_EPOCH} steps of {BENCH_BATCH}; {size.steps} of them are timed in each round and scaled up."
    factor = median(seconds[_BOTH]) / median(seconds[_CREDIT])
    price = f"Reference check and update_cos together: {factor:.2f} times the pass with credit (bar: {MAX_FACTOR:g})."
    settings = {**size.facts(), "samples": size.test, "steps_timed": size.steps}
    return BenchResult("diagnose", "ms", "of an epoch", repeats, tuple(rows), settings, (note, price), is_share=True)

"""The detectors: readings during training equal the full measurement, and measuring does not change training."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import walkback
from tiny import CPU, arch, driven_pairs, resolved, same_bits, train
from walkback.auditing.epoch_monitor import EpochMonitor
from walkback.core.errors import InputError
from walkback.core.jsonable import jsonable
from walkback.credit.trace import trace
from walkback.judge.quantities import quantities
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.measure.detector_readings import DetectorReading, Detectors
from walkback.measure.inputs import regroup
from walkback.measure.options import MeasureOptions
from walkback.measure.snapshot import measure
from walkback.measure.subject import NetworkSubject
from walkback.nets.network import plain_linear
from walkback.runs import train_runs
from walkback.training.fleet import Fleet
from walkback.training.single import Single
from walkback_papers.tables import alarm

SAMPLES = 300
"""Two groups of 128 and a rest."""
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
DATA = "prototypes:train=128,test=300,dim=6,prototypes=8,labels=4"
GRID = {"arch": "resmlp:d=8,depth=3", "data": DATA, "epochs": 4, "batch": 16, "device": "cpu"}


def samples(net, dtype, count=SAMPLES):
    draws = torch.Generator().manual_seed(5)
    x = torch.randn(count, *net.input_shape, generator=draws, dtype=torch.float64)
    if net.per_token:
        x = torch.randint(net.classes, x.shape, generator=draws).double()
    return x.to(dtype), torch.randint(net.classes, (count, *net.label_shape), generator=draws)


def reading_of_full_measurement(made, snapshot, x, y):
    """The same values from the full measurement: frozen pass, replay, quantities."""
    subject = NetworkSubject(made.net, snapshot.params, made.rule, snapshot.state)
    options = MeasureOptions(labels=made.rule.labels(made.net.depth), site=made.shared_options.site)
    measurements = measure(subject, regroup([(x, y)]), options)
    q = quantities(measurements, DiagnosticThresholds())
    # A layer that is not judged (before the first block the cls token is constant) has a cosine all the same.
    cosines = np.nanmean(measurements.arrays["credit_cos"], axis=1)
    return DetectorReading(
        growth=max(number.known for number in q.growth.values()),
        overflow=q.overflow,
        grad_top=q.top.grad_norm_128.known,
        direction=q.group_cos.known,
        hidden=tuple(layer.hidden_norm.known for layer in q.layers),
        grad=tuple(layer.grad_norm_128.known for layer in q.layers),
        cosine=tuple(cosines.tolist()),
    )


def assert_close_readings(reading, expected, tolerance):
    for name in ("growth", "grad_top", "hidden", "grad"):
        assert getattr(reading, name) == pytest.approx(getattr(expected, name), rel=tolerance, abs=0), name
    # A cosine's own scale is 1.
    assert reading.direction == pytest.approx(expected.direction, rel=0, abs=tolerance)
    assert reading.cosine == pytest.approx(expected.cosine, rel=0, abs=tolerance)
    assert reading.overflow == expected.overflow


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rule", "net"), driven_pairs())
def test_a_reading_equals_the_full_measurement(rule, net, dtype):
    made = resolved(rule, arch=arch(net), dtype=dtype)
    driver = Single(made, made.source.load(None), CPU)
    (snapshot,) = train(driver, 1)
    x, y = samples(made.net, made.dtype)
    (reading,) = Detectors(made.net, made.rule, x, y).measure(driver)
    assert_close_readings(reading, reading_of_full_measurement(made, snapshot, x, y), TOLERANCE[dtype])


@pytest.mark.parametrize(("rule", "net"), driven_pairs())
def test_a_fleet_has_the_readings_of_its_single_models(rule, net):
    made = [resolved(rule, arch=arch(net), seeds=seed) for seed in (1, 2)]
    data = made[0].source.load(None)
    fleet = Fleet(made, data, CPU)
    snapshots = train(fleet, 1)
    x, y = samples(made[0].net, made[0].dtype)
    together = Detectors(made[0].net, made[0].rule, x, y).measure(fleet)
    for each, snapshot, reading in zip(made, snapshots, together, strict=True):
        single = Single(each, data, CPU)
        single.restore([snapshot])
        (single_reading,) = Detectors(each.net, each.rule, x, y).measure(single)
        assert_close_readings(reading, single_reading, 1e-10)


@pytest.mark.parametrize("rule", ["dfa", "brsf", "node_perturbation"])
def test_readings_do_not_depend_on_how_many_groups_run_at_once(rule):
    made = resolved(rule)
    driver = Single(made, made.source.load(None), CPU)
    train(driver, 1)
    x, y = samples(made.net, made.dtype, 520)
    readings = [Detectors(made.net, made.rule, x, y, at_once=count).measure(driver)[0] for count in (1, 3, 8)]
    for reading in readings[1:]:
        assert_close_readings(reading, readings[0], 1e-10)


def test_too_few_samples_are_refused():
    made = resolved("bp")
    with pytest.raises(InputError, match=r"255 samples.*2 groups of 128"):
        Detectors(made.net, made.rule, *samples(made.net, made.dtype, 255))


class FixedDriver:
    """A driver of one model with fixed weights."""

    def __init__(self, made, params):
        self._held = params, made.state(), {k: torch.tensor(v, dtype=made.dtype) for k, v in made.knobs().items()}

    def apply(self, function, x, y, noise):
        return {name: value[None] for name, value in function(*self._held, x, y, noise).items()}


def test_an_overflow_fails_the_growth_detector():
    made = resolved("dfa", dtype="float32")
    params = made.params()
    params = {name: leaf * 1e30 if name.startswith("blocks.1.") else leaf for name, leaf in params.items()}
    (reading,) = Detectors(made.net, made.rule, *samples(made.net, made.dtype)).measure(FixedDriver(made, params))
    assert reading.overflow is not None
    row = jsonable(reading.to_json())
    json.dumps(row, allow_nan=False)
    thresholds = DiagnosticThresholds()
    assert alarm("D1", thresholds)(row)
    assert not alarm("D2", thresholds)(row)  # There is no finite gradient that could be small.


def test_states_that_are_infinite_from_the_start_did_not_grow():
    made = resolved("dfa", dtype="float32")
    params = {name: leaf * 1e39 if name.startswith("stem.") else leaf for name, leaf in made.params().items()}
    (reading,) = Detectors(made.net, made.rule, *samples(made.net, made.dtype)).measure(FixedDriver(made, params))
    assert not np.isfinite(reading.hidden[0])
    assert reading.overflow is None


def test_with_a_cls_token_the_growth_of_the_first_block_is_that_of_all_tokens():
    made = resolved("bp", arch=arch("vit_mini"))
    params = {name: 10 * leaf if name.startswith("blocks.0.") else leaf for name, leaf in made.params().items()}
    x, y = samples(made.net, made.dtype)
    states = trace(made.net, params, x, y, [plain_linear] * made.net.depth, with_input=True).states
    first, second = (state.flatten(1).norm(dim=1).mean() for state in states[:2])
    assert second > 5 * first, "the first block must grow most here"
    (reading,) = Detectors(made.net, made.rule, x, y).measure(FixedDriver(made, params))
    assert reading.growth == pytest.approx((second / first).item(), rel=1e-9)


def test_a_zero_gradient_fails_the_reference_detector_and_has_no_direction():
    made = resolved("dfa")
    params = {name: leaf * 0 if name.startswith("head.") else leaf for name, leaf in made.params().items()}
    (reading,) = Detectors(made.net, made.rule, *samples(made.net, made.dtype)).measure(FixedDriver(made, params))
    row = jsonable(reading.to_json())
    assert row["grad_top"] == 0
    assert row["direction"] is None
    assert row["cosine"] == [None] * (made.net.depth + 1)
    assert alarm("D2", DiagnosticThresholds())(row)


@pytest.mark.parametrize("driver", ["single", pytest.param("fleet", marks=pytest.mark.slow)])
def test_watching_does_not_change_training(tmp_path, driver):
    given = {**GRID, "seeds": [1, 2], "driver": driver}
    methods = ["dfa", "kp", "node_perturbation"] if driver == "fleet" else ["dfa"]
    plain = walkback.train(methods, out=tmp_path / "plain", **given)
    watched = walkback.train(methods, out=tmp_path / "watched", watch=1, **given)
    for left, right in zip(plain, watched, strict=True):
        assert left.test_acc == right.test_acc
        for name in walkback.load(left.path).record["files"]:
            files = [tmp_path / folder / left.run / name for folder in ("plain", "watched")]
            assert files[0].read_bytes() == files[1].read_bytes()
        rows = [walkback.load(each.path).log() for each in (left, right)]
        assert [set(row) & set(DetectorReading.__annotations__) for row in rows[0]] == [set()] * 4
        assert all(set(DetectorReading.__annotations__) <= set(row) for row in rows[1])
        assert [{key: row[key] for key in rows[0][0]} for row in rows[1]] == rows[0]


def test_a_cnn_is_measured_with_the_batch_statistics_of_its_weights():
    made = resolved("dfa", arch=arch("small_cnn"))
    data = made.source.load(None)
    watched, unwatched = Single(made, data, CPU), Single(made, data, CPU)
    x, y = samples(made.net, made.dtype)
    detectors = Detectors(made.net, made.rule, x, y)
    watched.train_epoch(lambda _: None)
    (reading,) = detectors.measure(watched)
    (snapshot,) = watched.snapshots()
    assert_close_readings(reading, reading_of_full_measurement(made, snapshot, x, y), 1e-10)
    (after,), (other,) = train(watched, 1), train(unwatched, 2)
    assert same_bits(after.params, other.params)


def test_watch_2_measures_every_other_epoch(tmp_path):
    (found,) = walkback.train("bp", out=tmp_path, seeds=1, watch=2, **GRID)
    assert ["growth" in row for row in walkback.load(found.path).log()] == [False, True, False, True]


class InterruptingMonitor:
    """Monitors epochs, and interrupts the training before the rows of an epoch are written for the n-th time."""

    def __init__(self, after):
        self._monitor, self._left = EpochMonitor(), after

    def before_training(self, *arguments):
        self._monitor.before_training(*arguments)

    def after_epoch(self, *arguments, **named):
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        return self._monitor.after_epoch(*arguments, **named)

    def after_training(self, members, data):
        self._monitor.after_training(members, data)


@pytest.mark.slow
def test_the_log_is_the_same_after_an_interruption(tmp_path):
    given = {**GRID, "seeds": [1, 2], "checkpoint_seconds": 0}
    whole = walkback.train(["dfa", "brsf"], out=tmp_path / "whole", watch=1, **given)
    resolved_runs = walkback.api._resolved(["dfa", "brsf"], (GRID["arch"], None), DATA, [1, 2], epochs=4, batch=16)
    options = train_runs.TrainOptions(tmp_path / "cut", resume=True, device="cpu", checkpoint_seconds=0)
    for after in (2, 0, 3):
        with pytest.raises(KeyboardInterrupt):
            train_runs.train_resolved(
                resolved_runs, options, train_runs.ProgressListener(), observer=InterruptingMonitor(after)
            )
    train_runs.train_resolved(resolved_runs, options, train_runs.ProgressListener(), observer=EpochMonitor())
    for each in whole:
        logs = [(tmp_path / folder / each.run / "train.jsonl").read_bytes() for folder in ("whole", "cut")]
        assert logs[0] == logs[1]
        assert len(logs[0].splitlines()) == 4


@pytest.mark.parametrize("watch", [0, -1, 1.5, True, "2"])
def test_watch_must_be_a_positive_number_of_epochs(tmp_path, watch):
    with pytest.raises(InputError, match=r"watch is .*; expected a whole number of epochs"):
        walkback.train("bp", out=tmp_path / "none", watch=watch, **GRID)
    assert not (tmp_path / "none").exists()

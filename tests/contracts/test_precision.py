"""TF32 is used in training steps of runs with dtype=tf32, and in no measurement or evaluation."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

import tiny
from walkback.auditing.measure_run import measure_network
from walkback.data.feed import TestSet
from walkback.measure.detector_readings import Detectors
from walkback.training.driver import Driver, matmul_precision, set_exact_arithmetic
from walkback.training.fleet import Fleet
from walkback.training.resolved_run import ResolvedRun
from walkback.training.single import Single

ON, OFF = (True, True), (False, False)
DATA = "prototypes:train=32,test=256,dim=6,prototypes=8,labels=4"


@pytest.fixture(autouse=True)
def _restore_switches():
    before = switches()
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def switches() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


class Spy(TorchDispatchMode):
    """Records the TF32 switches at each product or convolution; a CPU ignores them, but they can be read."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in flop_registry:
            self.seen.add(switches())
        return func(*args, **(kwargs or {}))


def switches_during(work) -> set[tuple[bool, bool]]:
    with Spy() as spy:
        work()
    return spy.seen


def driven(kind: str, resolved: ResolvedRun) -> Driver:
    data = resolved.source.load(None)
    return Single(resolved, data, tiny.CPU) if kind == "single" else Fleet([resolved, resolved], data, tiny.CPU)


@pytest.mark.parametrize("kind", ["single", "fleet"])
@pytest.mark.parametrize(
    ("rule", "dtype"),
    [("bp", "float32"), ("bp", "float64"), ("bp", "tf32"), ("kp", "tf32"), ("credit_bridge", "tf32")],
)
def test_training_steps_use_the_dtype_of_the_run_and_measurements_never_use_tf32(kind, rule, dtype):
    resolved = tiny.resolved(rule, data=DATA, dtype=dtype)
    driver, tests = driven(kind, resolved), TestSet(resolved.source.load(None), resolved.dtype, tiny.CPU)
    expected = ON if dtype == "tf32" else OFF
    detectors = Detectors(resolved.net, resolved.rule, *tests.batches()[0])
    between = []
    for _ in range(2):
        assert switches_during(lambda: driver.train_epoch(lambda _steps: between.append(switches()))) == {expected}
        assert switches_during(driver.test_accuracy) == {OFF}
        assert switches_during(lambda: detectors.measure(driver)) == {OFF}
        snapshot = driver.snapshots()[0]
        assert switches_during(lambda: measure_network(resolved, snapshot.params, snapshot.state, tests)) == {OFF}  # noqa: B023
    assert between == [OFF] * 4


@pytest.mark.parametrize("kind", ["single", "fleet"])
def test_statistics_of_the_data_are_not_computed_in_tf32(kind):
    resolved = tiny.resolved("bp", arch=tiny.arch("small_cnn"), dtype="tf32")
    assert resolved.net.buffers
    driver = driven(kind, resolved)
    assert switches_during(lambda: driver.train_epoch(lambda _steps: None)) == {ON}
    assert switches_during(driver.snapshots) == {OFF}
    assert switches_during(driver.test_accuracy) == {OFF}


@pytest.mark.parametrize("before", [ON, OFF, (True, False), (False, True)])
@pytest.mark.parametrize(("dtype", "inside"), [("float32", OFF), ("float64", OFF), ("tf32", ON)])
def test_the_switches_are_restored_also_after_an_exception(before, dtype, inside):
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
    resolved = tiny.resolved(dtype=dtype)
    with matmul_precision(resolved):
        assert switches() == inside
    assert switches() == before
    with pytest.raises(KeyError), matmul_precision(resolved):
        raise KeyError
    assert switches() == before
    set_exact_arithmetic(tiny.CPU)
    assert switches() == OFF


@pytest.mark.parametrize("kind", ["single", "fleet"])
def test_a_step_that_fails_leaves_tf32_off(kind, monkeypatch):
    driver = driven(kind, tiny.resolved(dtype="tf32"))

    def broken(*_):
        assert switches() == ON
        raise MemoryError

    monkeypatch.setattr(f"walkback.training.{kind}.step", broken)
    with pytest.raises(MemoryError):
        driver.train_epoch(lambda _steps: None)
    assert switches() == OFF


def test_a_tf32_run_has_float32_leaves_and_its_own_fleet_key_digest_and_name():
    coarse, fine = tiny.resolved("dfa", dtype="tf32"), tiny.resolved("dfa", dtype="float32")
    assert {leaf.dtype for leaf in (coarse.params() | coarse.state()).values()} == {torch.float32}
    assert tiny.same_bits(coarse.params(), fine.params())
    assert tiny.same_bits(coarse.state(), fine.state())
    for of in (ResolvedRun.fleet_key, lambda resolved: resolved.config.digest(), lambda resolved: resolved.name):
        assert of(coarse) != of(fine)


@pytest.mark.parametrize("kind", ["single", "fleet"])
def test_on_a_cpu_tf32_gives_the_bits_of_float32(kind):
    coarse, fine = (tiny.train(driven(kind, tiny.resolved("dfa", dtype=dtype)), 2) for dtype in ("tf32", "float32"))
    for one, other in zip(coarse, fine, strict=True):
        assert tiny.same_bits(one.params, other.params)

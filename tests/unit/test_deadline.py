"""Deadlines: what is interrupted, what is not, and what is kept."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import walkback
from walkback.runs import deadline, train_group
from walkback.runs.deadline import RERAISE_SECONDS, Deadline, TimeIsUpError
from walkback.runs.train_runs import ProgressListener
from walkback.training.single import Single

LONG = 30.0
"""Seconds; longer than anything here takes."""


def wait_in_small_steps():
    for _ in range(int(LONG / 0.001)):
        time.sleep(0.001)
    pytest.fail("was not interrupted")


class TestDeadline:
    @pytest.mark.parametrize("seconds", [None, float("inf")])
    def test_without_a_limit_it_never_passes(self, seconds):
        never = Deadline(seconds)
        assert not never.is_past
        assert never.left == float("inf")
        with never.interrupts():
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)

    def test_it_passes(self, monkeypatch):
        now = [100.0]
        monkeypatch.setattr(deadline, "time", SimpleNamespace(monotonic=lambda: now[0]))
        soon = Deadline(0.5)
        assert not soon.is_past
        assert soon.left == 0.5
        now[0] = 100.6
        assert soon.is_past
        assert soon.left == 0.0

    def test_long_work_is_interrupted(self):
        start = time.monotonic()
        with pytest.raises(TimeIsUpError), Deadline(0.1).interrupts():
            wait_in_small_steps()
        assert 0.1 <= time.monotonic() - start < LONG / 3

    def test_except_exception_does_not_swallow_it(self):
        def swallowing():
            try:
                wait_in_small_steps()
            except Exception:
                pytest.fail("swallowed")

        with pytest.raises(TimeIsUpError), Deadline(0.05).interrupts():
            swallowing()

    def test_it_is_raised_again_where_it_was_swallowed(self):
        start, heard = time.monotonic(), []

        def ignoring():
            try:
                wait_in_small_steps()
            except TimeIsUpError:
                heard.append(time.monotonic() - start)
            wait_in_small_steps()

        with pytest.raises(TimeIsUpError), Deadline(0.05).interrupts():
            ignoring()
        assert 0.05 <= heard[0] < time.monotonic() - start - 0.5 * RERAISE_SECONDS

    def test_an_error_that_a_library_makes_of_it_is_replaced(self):
        def wrapping():
            try:
                wait_in_small_steps()
            except TimeIsUpError as error:
                raise RuntimeError("compiling failed") from error

        with pytest.raises(TimeIsUpError), Deadline(0.05).interrupts():
            wrapping()

    def test_errors_before_the_deadline_stay_as_they_are(self):
        with pytest.raises(RuntimeError, match="no memory"), Deadline(LONG).interrupts():
            raise RuntimeError("no memory")

    def test_the_timer_and_the_signal_handler_are_restored(self):
        before = signal.getsignal(signal.SIGALRM)
        with Deadline(LONG).interrupts():
            assert signal.getsignal(signal.SIGALRM) is not before
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        assert signal.getsignal(signal.SIGALRM) is before
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)

    @pytest.mark.parametrize("seconds", [1e6, 1e18, 1e300])
    def test_a_deadline_in_years_does_not_interrupt(self, seconds):
        with Deadline(seconds).interrupts():
            signal.raise_signal(signal.SIGALRM)
            time.sleep(0.01)

    def test_nothing_is_begun_after_it(self):
        with pytest.raises(TimeIsUpError), Deadline(0.0).interrupts():
            pytest.fail("was begun")

    def test_other_threads_are_not_interrupted(self):
        done = []

        def work():
            with Deadline(0.01).interrupts():
                time.sleep(0.1)
            done.append(True)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert done


SMALL = {"data": "prototypes:train=64,test=32", "arch": "resmlp:d=8,depth=2", "epochs": 2, "batch": 32}


class TestTraining:
    def test_a_run_whose_compilation_is_interrupted_resumes_to_the_same_bits(self, tmp_path, monkeypatch):
        """The epochs trained so far are kept and the lock is released."""
        epochs = []
        train_epoch = Single.train_epoch
        with monkeypatch.context() as patch:
            patch.setattr(Single, "train_epoch", lambda self, tick: epochs.append(1) or train_epoch(self, tick))
            patch.setattr(Deadline, "is_past", property(lambda self: bool(epochs)))
            (result,) = walkback.train("bp", out=tmp_path / "a", driver="single", max_seconds=LONG, **SMALL)
        assert (result.status, result.epochs) == ("unfinished", 1)
        with monkeypatch.context() as patch:
            patch.setattr(Single, "warm_up", lambda self: wait_in_small_steps())
            again = {"out": tmp_path / "a", "driver": "single", "resume": True}
            (result,) = walkback.train("bp", **again, max_seconds=1.0, **SMALL)
        assert (result.status, result.epochs) == ("unfinished", 1)
        (result,) = walkback.train("bp", **again, **SMALL)
        (whole,) = walkback.train("bp", out=tmp_path / "b", driver="single", **SMALL)
        assert result.status == "done"
        models = [Path(each.path, "model.safetensors").read_bytes() for each in (result, whole)]
        assert models[0] == models[1]

    def test_waiting_for_the_gpu_is_interrupted(self, tmp_path, monkeypatch):
        monkeypatch.setattr(train_group, "gpu_turn", lambda device: wait_in_small_steps())
        (result,) = walkback.train("bp", out=tmp_path, max_seconds=1.0, **SMALL)
        assert (result.status, result.epochs) == ("unfinished", 0)

    def test_planning_counts(self, tmp_path):
        class Slow(ProgressListener):
            def planned(self, groups, steps):
                time.sleep(0.2)

        (result,) = walkback.train("bp", out=tmp_path, max_seconds=0.1, listener=Slow(), **SMALL)
        assert (result.status, result.epochs) == ("unfinished", 0)

"""The end of a command's time: what is interrupted, what is not, and what is left of it."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest

import walkback
from walkback.runs import train_group
from walkback.runs.deadline import RERAISE_SECONDS, Deadline, TimeIsUpError
from walkback.runs.train_runs import ProgressListener
from walkback.training.single import Single

LONG = 30.0
"""Seconds that nothing here takes."""


def wait_in_small_steps():
    for _ in range(int(LONG / 0.001)):
        time.sleep(0.001)
    pytest.fail("was not interrupted")


class TestDeadline:
    @pytest.mark.parametrize("seconds", [None, float("inf")])
    def test_without_one_there_is_always_time(self, seconds):
        never = Deadline(seconds)
        assert not never.is_past
        assert never.left == float("inf")
        with never.interrupts():
            assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)

    def test_it_passes(self):
        soon = Deadline(0.05)
        assert not soon.is_past
        assert 0 < soon.left <= 0.05
        time.sleep(0.06)
        assert soon.is_past
        assert soon.left == 0.0

    def test_what_takes_too_long_is_interrupted_where_it_is(self):
        start = time.monotonic()
        with pytest.raises(TimeIsUpError), Deadline(0.1).interrupts():
            wait_in_small_steps()
        assert 0.1 <= time.monotonic() - start < LONG / 3

    def test_handlers_of_errors_do_not_swallow_it(self):
        def swallowing():
            try:
                wait_in_small_steps()
            except Exception:
                pytest.fail("swallowed")

        with pytest.raises(TimeIsUpError), Deadline(0.05).interrupts():
            swallowing()

    def test_where_it_was_ignored_it_is_said_again(self):
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

    def test_an_error_that_a_library_makes_of_it_is_the_same(self):
        def wrapping():
            try:
                wait_in_small_steps()
            except TimeIsUpError as error:
                raise RuntimeError("compiling failed") from error

        with pytest.raises(TimeIsUpError), Deadline(0.05).interrupts():
            wrapping()

    def test_errors_in_time_are_what_they_are(self):
        with pytest.raises(RuntimeError, match="no memory"), Deadline(LONG).interrupts():
            raise RuntimeError("no memory")

    def test_nothing_is_interrupted_afterwards(self):
        before = signal.getsignal(signal.SIGALRM)
        with Deadline(0.05).interrupts():
            assert signal.getsignal(signal.SIGALRM) is not before
        time.sleep(0.1)
        assert signal.getsignal(signal.SIGALRM) is before
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)

    @pytest.mark.parametrize("seconds", [1e6, 1e18, 1e300])
    def test_years_are_waited_for(self, seconds):
        with Deadline(seconds).interrupts():
            signal.raise_signal(signal.SIGALRM)
            time.sleep(0.01)

    def test_after_it_nothing_is_begun(self):
        with pytest.raises(TimeIsUpError), Deadline(0.0).interrupts():
            pytest.fail("was begun")

    def test_in_another_thread_it_is_waited_for(self):
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
    def test_a_network_that_is_not_ready_in_time_is_left_as_it_was(self, tmp_path, monkeypatch):
        """Its epochs so far stay, its lock is free, and the same command goes on to the same bits."""
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

    def test_nor_does_it_wait_for_a_turn_that_does_not_come(self, tmp_path, monkeypatch):
        monkeypatch.setattr(train_group, "turn", lambda device: wait_in_small_steps())
        (result,) = walkback.train("bp", out=tmp_path, max_seconds=1.0, **SMALL)
        assert (result.status, result.epochs) == ("unfinished", 0)

    def test_planning_is_part_of_the_time(self, tmp_path):
        class Slow(ProgressListener):
            def planned(self, groups, steps):
                time.sleep(0.2)

        (result,) = walkback.train("bp", out=tmp_path, max_seconds=0.1, listener=Slow(), **SMALL)
        assert (result.status, result.epochs) == ("unfinished", 0)

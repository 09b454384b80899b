"""One process at a time on a GPU, several where they can share it; no waiting on the CPU."""

from __future__ import annotations

import multiprocessing
import time

import pytest
import torch

from walkback.studies import turns
from walkback.studies.turns import turn

GPU = torch.device("cuda")


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch):
    monkeypatch.setattr(turns, "_name", lambda device: "gpu")


def _hold(folder, ready, seconds, places=1):
    turns._name = lambda device: "gpu"
    with turn(GPU, folder, places):
        ready.set()
        time.sleep(seconds)


def test_another_process_is_waited_for(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready, 1.0))
    other.start()
    assert ready.wait(60)
    with turn(GPU, tmp_path) as waited:
        assert waited > 0.3
    other.join()


def test_a_process_that_was_killed_holds_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready, 600.0))
    other.start()
    assert ready.wait(60)
    other.kill()
    other.join()
    with turn(GPU, tmp_path) as waited:
        assert waited < 1


def _queue(folder, number, ready, order):
    turns._name = lambda device: "gpu"
    ready.set()
    with turn(GPU, folder):
        order.put(number)


def test_whoever_is_ready_first_goes_first(tmp_path):
    context = multiprocessing.get_context("spawn")
    order, started = context.Queue(), []
    with turn(GPU, tmp_path):
        for number in range(2):
            ready = context.Event()
            started.append(context.Process(target=_queue, args=(tmp_path, number, ready, order)))
            started[-1].start()
            assert ready.wait(60)
            while len(list(tmp_path.glob("*/*-*"))) < number + 2:
                time.sleep(0.01)
    assert [order.get(timeout=60) for _ in range(2)] == [0, 1]
    for process in started:
        process.join()
    assert [path.name for path in tmp_path.glob("*/*")] == ["place0"]


def test_a_shared_gpu_has_several_places_and_no_more(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready, 2.0, 2))
    other.start()
    assert ready.wait(60)
    with turn(GPU, tmp_path, places=2) as waited:
        assert waited < 1
        full = context.Event()
        third = context.Process(target=_hold, args=(tmp_path, full, 0.0, 2))
        third.start()
        while len(list(tmp_path.glob("*/*-*"))) < 3:
            time.sleep(0.01)
        assert not full.wait(0.3)
    assert full.wait(60)
    for process in (other, third):
        process.join()


def test_places_are_several_only_where_mps_takes_clients(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert turns.places_on(GPU) == 1
    (tmp_path / "control").touch()
    assert turns.places_on(GPU) == turns.SHARED_PLACES > 1
    assert turns.places_on(torch.device("cpu")) == 1


def test_the_cpu_is_free_for_all(tmp_path):
    with turn(torch.device("cpu"), tmp_path) as waited, turn(torch.device("cpu"), tmp_path):
        assert waited == 0
    assert not list(tmp_path.iterdir())

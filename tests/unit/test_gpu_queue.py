"""One process at a time on a GPU; no waiting on the CPU."""

from __future__ import annotations

import multiprocessing
import time

import pytest
import torch

from walkback.runs import gpu_queue
from walkback.runs.gpu_queue import gpu_turn

GPU = torch.device("cuda")


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch):
    monkeypatch.setattr(gpu_queue, "_name", lambda device: "gpu")


def _hold(folder, ready, seconds):
    gpu_queue._name = lambda device: "gpu"
    with gpu_turn(GPU, folder):
        ready.set()
        time.sleep(seconds)


def test_another_process_is_waited_for(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready, 1.0))
    other.start()
    assert ready.wait(60)
    with gpu_turn(GPU, tmp_path) as waited:
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
    with gpu_turn(GPU, tmp_path) as waited:
        assert waited < 1


def _queue(folder, number, ready, order):
    """Its number is in the file before its turn ends; a queue between processes would send it some time after."""
    gpu_queue._name = lambda device: "gpu"
    ready.set()
    with gpu_turn(GPU, folder), order.open("a") as file:
        file.write(f"{number}\n")


def test_whoever_is_ready_first_goes_first(tmp_path):
    context = multiprocessing.get_context("spawn")
    order, started, folder = tmp_path / "order", [], tmp_path / "turns"
    folder.mkdir()
    with gpu_turn(GPU, folder):
        for number in range(2):
            ready = context.Event()
            started.append(context.Process(target=_queue, args=(folder, number, ready, order)))
            started[-1].start()
            assert ready.wait(60)
            while len(list(folder.glob("*/*-*"))) < number + 2:
                time.sleep(0.01)
    for process in started:
        process.join(60)
    assert order.read_text().split() == ["0", "1"]
    assert [path.name for path in folder.glob("*/*")] == ["turn"]


def test_the_cpu_is_free_for_all(tmp_path):
    with gpu_turn(torch.device("cpu"), tmp_path) as waited, gpu_turn(torch.device("cpu"), tmp_path):
        assert waited == 0
    assert not list(tmp_path.iterdir())

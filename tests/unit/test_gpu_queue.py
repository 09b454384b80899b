"""The queue for a GPU: one process at a time, first come first served; no queue on the CPU."""

from __future__ import annotations

import multiprocessing
import threading
import time

import pytest
import torch

from walkback.runs import gpu_queue
from walkback.runs.gpu_queue import gpu_turn

GPU = torch.device("cuda")
PATIENCE = 300.0
"""Seconds after which a test gives up; nothing here takes as long, however busy the machine is."""


@pytest.fixture(autouse=True)
def one_gpu(monkeypatch):
    monkeypatch.setattr(gpu_queue, "_name", lambda device: "gpu")


def _hold(folder, ready, release):
    gpu_queue._name = lambda device: "gpu"
    with gpu_turn(GPU, folder):
        ready.set()
        release.wait(PATIENCE)


def _tickets(folder):
    return len(list(folder.glob("*/*-*")))


def test_a_process_waits_until_another_has_released_the_gpu(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready, release))
    other.start()
    assert ready.wait(PATIENCE)
    had_turn = threading.Event()

    def take_turn():
        with gpu_turn(GPU, tmp_path) as waited:
            assert waited > 0
            had_turn.set()

    thread = threading.Thread(target=take_turn)
    thread.start()
    while _tickets(tmp_path) < 2:
        time.sleep(0.01)
    assert not had_turn.wait(4 * gpu_queue.PAUSE)
    release.set()
    assert had_turn.wait(PATIENCE)
    thread.join()
    other.join()


def test_a_killed_process_does_not_keep_its_turn(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path, ready, release))
    other.start()
    assert ready.wait(PATIENCE)
    other.kill()
    other.join()
    with gpu_turn(GPU, tmp_path) as waited:
        assert waited < PATIENCE / 2


def _queue(folder, number, ready, order):
    """Write its number to the file before its turn ends; a multiprocessing queue would deliver it later."""
    gpu_queue._name = lambda device: "gpu"
    ready.set()
    with gpu_turn(GPU, folder), order.open("a") as file:
        file.write(f"{number}\n")


@pytest.mark.slow
def test_the_first_in_the_queue_goes_first(tmp_path):
    context = multiprocessing.get_context("spawn")
    order, started, folder = tmp_path / "order", [], tmp_path / "turns"
    folder.mkdir()
    with gpu_turn(GPU, folder):
        for number in range(2):
            ready = context.Event()
            started.append(context.Process(target=_queue, args=(folder, number, ready, order)))
            started[-1].start()
            assert ready.wait(PATIENCE)
            while _tickets(folder) < number + 2:
                time.sleep(0.01)
    for process in started:
        process.join(PATIENCE)
    assert order.read_text().split() == ["0", "1"]
    assert [path.name for path in folder.glob("*/*")] == ["turn"]


def test_there_is_no_queue_on_the_cpu(tmp_path):
    with gpu_turn(torch.device("cpu"), tmp_path) as waited, gpu_turn(torch.device("cpu"), tmp_path):
        assert waited == 0
    assert not list(tmp_path.iterdir())

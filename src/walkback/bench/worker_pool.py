"""Processes that train fleets side by side, an epoch whenever they are told to, as `walkback sweep` has them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

import torch

from walkback.data.dataset import Dataset
from walkback.training.fleet import Fleet
from walkback.training.resolved_run import ResolvedRun

STOP = ""


class WorkerPool:
    """One process of one thread for each list of fleets; they wait between epochs. To be closed after use."""

    def __init__(self, shares: Sequence[Sequence[Sequence[ResolvedRun]]], data: Dataset):
        # Not forked: a copy of a process whose threads are at work may never wake.
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection[str, str]] = []
        self._processes = []
        for fleets in shares:
            own, other = context.Pipe()
            process = context.Process(target=_work, args=(other, fleets, data), daemon=True)
            process.start()
            other.close()
            self._pipes.append(own)
            self._processes.append(process)

    def epoch(self) -> None:
        """One epoch of every fleet, each process doing its own one after the other."""
        for pipe in self._pipes:
            pipe.send("train")
        for pipe in self._pipes:
            pipe.recv()

    def close(self) -> None:
        # Told so: the end of a pipe alone is not seen while any process that was forked meanwhile still holds it.
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.send(STOP)
            pipe.close()
        for process in self._processes:
            process.join()


def _work(pipe: Connection[str, str], fleets: Sequence[Sequence[ResolvedRun]], data: Dataset) -> None:
    torch.set_num_threads(1)
    drivers = [Fleet(resolved_runs, data, torch.device("cpu")) for resolved_runs in fleets]
    try:
        while pipe.recv() != STOP:
            for driver in drivers:
                driver.train_epoch(lambda _: None)
            pipe.send("done")
    except EOFError:
        return  # Whoever told us when to train is gone.

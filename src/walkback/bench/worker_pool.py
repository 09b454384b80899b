"""Worker processes that train fleets in parallel, one epoch per command, like those of `walkback sweep`."""

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
    """One single-threaded process for each list of fleets; they wait between epochs. Call `close` after use."""

    def __init__(self, shares: Sequence[Sequence[Sequence[ResolvedRun]]], data: Dataset):
        # Spawned, not forked: a fork of a process with running threads can deadlock.
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection[str, str]] = []
        self._processes = []
        for fleets in shares:
            parent_end, child_end = context.Pipe()
            process = context.Process(target=_work, args=(child_end, fleets, data), daemon=True)
            process.start()
            child_end.close()
            self._pipes.append(parent_end)
            self._processes.append(process)

    def epoch(self) -> None:
        """Train every fleet for one epoch; each process trains its own fleets one after the other."""
        for pipe in self._pipes:
            pipe.send("train")
        for pipe in self._pipes:
            pipe.recv()

    def close(self) -> None:
        """Stop the processes and wait until they have ended."""
        # Send STOP: closing the pipe is not enough while a process that was forked meanwhile still holds it open.
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.send(STOP)
            pipe.close()
        for process in self._processes:
            process.join()


def _work(pipe: Connection[str, str], fleets: Sequence[Sequence[ResolvedRun]], data: Dataset) -> None:
    """Train one epoch of all fleets for each message on the pipe, until STOP."""
    torch.set_num_threads(1)
    drivers = [Fleet(resolved_runs, data, torch.device("cpu")) for resolved_runs in fleets]
    try:
        while pipe.recv() != STOP:
            for driver in drivers:
                driver.train_epoch(lambda _: None)
            pipe.send("done")
    except EOFError:
        return  # The parent process has ended.

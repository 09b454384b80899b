"""Concurrent fleets: several fleets on one GPU, each on its own CUDA stream.

A small fleet's kernels leave most of a GPU idle, because each waits for the one before. Kernels of other fleets can run
meanwhile: on an H200 six fleets of six small ResMLPs take 0.47 of the time they take one after the other
(`walkback bench convoy`). Each fleet computes the same bits as alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from walkback.data.dataset import Dataset
from walkback.training.driver import Driver, Snapshot, Tick, Trainer
from walkback.training.fleet import Fleet
from walkback.training.resolved_run import ResolvedRun


class ConcurrentFleets(Trainer):
    """Trains several fleets concurrently, step by step; all take the same number of steps on the same data."""

    def __init__(self, fleets: Sequence[Sequence[ResolvedRun]], data: Dataset, device: torch.device):
        self.resolved_runs = tuple(resolved for resolved_runs in fleets for resolved in resolved_runs)
        self.epoch = 0
        self._device = device
        # Created together: torch takes streams from a fixed pool in turn and reuses them after some.
        self._streams = [torch.cuda.Stream(device) if device.type == "cuda" else None for _ in fleets]  # type: ignore[no-untyped-call]
        pairs = zip(fleets, self._streams, strict=True)
        self._fleets = [Fleet(resolved_runs, data, device, stream) for resolved_runs, stream in pairs]
        assert len({fleet.steps_per_epoch for fleet in self._fleets}) == 1, "concurrent fleets take the same steps"
        self.steps_per_epoch = self._fleets[0].steps_per_epoch

    @property
    def drivers(self) -> Sequence[Driver]:
        return self._fleets

    def warm_up(self) -> None:
        for fleet in self._fleets:
            fleet.warm_up()

    def train_epoch(self, tick: Tick) -> list[dict[str, float]]:
        for fleet in self._fleets:
            fleet.begin_epoch()
        with self._ordered_streams() as fleets_with_streams:
            for index in range(self.steps_per_epoch):
                for fleet, stream in fleets_with_streams:
                    with torch.cuda.stream(stream):
                        fleet.take_step(index)
                tick(1)
        for fleet in self._fleets:
            fleet.draw_next_order()
        self.epoch += 1
        return [log for fleet in self._fleets for log in fleet.end_epoch()]

    def test_accuracy(self) -> list[float]:
        counts = []
        with self._ordered_streams() as fleets_with_streams:
            for fleet, stream in fleets_with_streams:
                with torch.cuda.stream(stream):
                    counts.append(fleet.count_correct())
        pairs = zip(self._fleets, counts, strict=True)
        return [accuracy for fleet, correct in pairs for accuracy in fleet.accuracies(correct)]

    def snapshots(self) -> list[Snapshot]:
        return [snapshot for fleet in self._fleets for snapshot in fleet.snapshots()]

    def restore(self, snapshots: Sequence[Snapshot]) -> None:
        assert len(snapshots) == len(self.resolved_runs), "one snapshot for each model"
        start = 0
        for fleet in self._fleets:
            end = start + len(fleet.resolved_runs)
            fleet.restore(snapshots[start:end])
            start = end
        self.epoch = self._fleets[0].epoch

    @contextmanager
    def _ordered_streams(self) -> Iterator[list[tuple[Fleet, torch.cuda.Stream | None]]]:
        """Each fleet with its stream. Work enqueued on them inside the context runs after all work enqueued before it
        on the current stream, and before all work enqueued after it."""
        streams = [stream for stream in self._streams if stream]
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream(self._device))
        yield list(zip(self._fleets, self._streams, strict=True))
        for stream in streams:
            torch.cuda.current_stream(self._device).wait_stream(stream)

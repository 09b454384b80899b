"""CUDA graph capture: work on fixed tensors is captured once and then replayed without the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


def captured(work: Callable[[], T], device: torch.device, stream: torch.cuda.Stream | None = None) -> Callable[[], T]:
    """The same function; on a GPU it is captured as a CUDA graph at the first call and replayed at every call.

    On a GPU each call returns the same tensors, with new values. `stream` is as in `capture`.
    """
    return _CapturedWork(work, stream) if device.type == "cuda" else work


class _CapturedWork(Generic[T]):
    def __init__(self, work: Callable[[], T], stream: torch.cuda.Stream | None):
        self._work = work
        self._stream = stream
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> T:
        if self._graph is None:
            self._graph, self._result = capture(self._work, self._stream)
        self._graph.replay()
        return self._result


def capture(work: Callable[[], T], stream: torch.cuda.Stream | None = None) -> tuple[torch.cuda.CUDAGraph, T]:
    """Capture the work as a CUDA graph; returns the graph and the work's result, whose tensors each replay overwrites.

    The work runs three times before, so that libraries do their setup outside of the capture. Graphs that run
    concurrently must be captured on different streams: cuBLAS matmuls on one stream share a workspace.
    """
    stream = stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = work()
    return graph, result


def synchronize(device: torch.device) -> None:
    """Wait for the device: a GPU runs asynchronously to the host."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)

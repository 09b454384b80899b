"""Work on fixed tensors that a GPU records once, as a CUDA graph, and then repeats without the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

T = TypeVar("T")


def captured(work: Callable[[], T], device: torch.device, stream: torch.cuda.Stream | None = None) -> Callable[[], T]:
    """The same work, recorded when it is first asked for; elsewhere than on a GPU it is done anew each time.

    On a GPU each call returns the same tensors, with new values. `stream` is as in `record`.
    """
    return _Recorded(work, stream) if device.type == "cuda" else work


class _Recorded(Generic[T]):
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
    """The work as a graph, and the tensors it writes. It is done three times before: libraries set up what they need
    outside of the recording.

    Graphs that are to run at the same time must be recorded on streams of their own: a library's products share a
    workspace on each.
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
    """Wait: a GPU is still at work when the host goes on."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)

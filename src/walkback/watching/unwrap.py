"""What stands between a model and its measurement in other people's training loops: wrappers and other processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch import nn

from walkback.measure.discovery import unwrap

PATCHED = "_original_forward"
"""Where Accelerate keeps a model's own forward when it puts one in its place that runs under autocast."""


@contextmanager
def as_written(model: nn.Module) -> Iterator[None]:
    """Let a model run its class's own forward; what was put in its place comes back afterwards."""
    bare, _ = unwrap(model)
    patched = bare.__dict__.pop("forward", None) if PATCHED in bare.__dict__ else None
    try:
        yield
    finally:
        if patched is not None:
            bare.__dict__["forward"] = patched


def is_first() -> bool:
    """Whether this is the process that looks and writes."""
    return not _is_shared() or dist.get_rank() == 0


def said_by_first(word: str) -> str:
    """What the first process says, in all of them."""
    if not _is_shared():
        return word
    said = [word]
    dist.broadcast_object_list(said, src=0)
    return said[0]


def _is_shared() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

"""Handle wrapped models and distributed processes in foreign training loops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch import nn

from walkback.nets.find_blocks import unwrap

PATCHED = "_original_forward"
"""The attribute in which Accelerate keeps the original forward of a model that it patches to run under autocast."""


@contextmanager
def original_forward(model: nn.Module) -> Iterator[None]:
    """Inside the context the model runs the forward of its class; a patched forward is restored afterwards."""
    bare, _ = unwrap(model)
    patched = bare.__dict__.pop("forward", None) if PATCHED in bare.__dict__ else None
    try:
        yield
    finally:
        if patched is not None:
            bare.__dict__["forward"] = patched


def is_rank_zero() -> bool:
    """Whether this process measures and writes: rank 0, or the only process."""
    return not _is_distributed() or dist.get_rank() == 0


def broadcast_from_rank_zero(text: str) -> str:
    """The text that rank 0 passed, in all processes."""
    if not _is_distributed():
        return text
    texts = [text]
    dist.broadcast_object_list(texts, src=0)
    return texts[0]


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

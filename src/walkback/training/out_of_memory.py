"""Recognises the errors by which torch, its libraries and the system report that memory ran out."""

from __future__ import annotations

import torch

_MESSAGES = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "alloc_failed",  # cuBLAS
    "could not create a primitive",  # oneDNN
    "could not create a memory",
)
"""Parts of the messages of generic `RuntimeError`s that mean out of memory."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error, or one in its chain of causes, means that memory ran out."""
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(current, RuntimeError) and any(words in str(current).lower() for words in _MESSAGES):
            return True
        current = current.__cause__ or current.__context__
    return False

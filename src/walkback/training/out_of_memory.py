"""How torch, its libraries and the system say that the memory is used up."""

from __future__ import annotations

import torch

_NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "alloc_failed",  # cuBLAS
    "could not create a primitive",  # oneDNN
    "could not create a memory",
)
"""Where they have no exception of its own for it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error, or one that it came from, says that the memory is used up."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(seen, RuntimeError) and any(words in str(seen).lower() for words in _NO_MEMORY):
            return True
        seen = seen.__cause__ or seen.__context__
    return False

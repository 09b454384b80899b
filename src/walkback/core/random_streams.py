"""Named random streams: a separate generator for each seed and purpose, no global random state.

A stream is named by (seed, purpose, counters). The same name gives the same bits, independently of earlier draws and of
the fleet in which a model is trained. Streams used during training have the epoch in their name, so a run resumes
exactly without stored generator states.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def stream_seed(seed: int, purpose: str, *counters: int) -> int:
    """A 63-bit seed derived from the stream's name alone."""
    name = ":".join(["walkback", str(seed), purpose, *map(str, counters)])
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def generator(seed: int, purpose: str, *counters: int) -> torch.Generator:
    """The CPU generator of a stream. Draws are made on the CPU so that all devices get the same bits."""
    import torch

    return torch.Generator().manual_seed(stream_seed(seed, purpose, *counters))

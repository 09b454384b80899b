"""Named random streams: one seed, one generator for each purpose, no hidden randomness.

A stream is named by (seed, purpose, counters): the same name gives the same bits whatever else was drawn before, in
whatever fleet the model is trained. That is also why a run resumes exactly without storing generator states: a stream
that depends on time carries the epoch in its name.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def stream_seed(seed: int, purpose: str, *counters: int) -> int:
    """A 63-bit seed that depends on every part of the name and on nothing else."""
    name = ":".join(["walkback", str(seed), purpose, *map(str, counters)])
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1


def generator(seed: int, purpose: str, *counters: int) -> torch.Generator:
    """The CPU generator of that name. Draws are made on the CPU so that every device sees the same bits."""
    import torch

    return torch.Generator().manual_seed(stream_seed(seed, purpose, *counters))
